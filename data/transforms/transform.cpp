#include "data/transforms/transform.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "engine/core/error.h"

namespace warpstep::data {
namespace {

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(by, at);
    parts.emplace_back(text.substr(at, end - at));
    if (end == std::string_view::npos) return parts;
    at = end + 1;
  }
}

bool is_number(std::string_view text) {
  return !text.empty() && (text[0] == '-' || text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
}

// A static in a function, so that it exists before the TransformKinds of all files.
std::vector<const TransformKind*>& kinds() {
  static std::vector<const TransformKind*> all;
  return all;
}

}  // namespace

Geometry Geometry::whole(const Shape& image) {
  return {.source = {0, 0, image[0], image[1]},
          .height = image[0],
          .width = image[1],
          .out = {0, 0, image[0], image[1]},
          .mirrored = false};
}

Window Geometry::seen() const {
  const Window all{0, 0, height, width};
  return intersection(out, kept ? intersection(*kept, all) : all);
}

std::string_view name(TransformStage stage) {
  switch (stage) {
    case TransformStage::geometry: return "geometry";
    case TransformStage::bytes: return "bytes";
    case TransformStage::jitter: return "jitter";
    case TransformStage::mask: return "mask";
    case TransformStage::colour: return "colour";
    case TransformStage::mix: return "mix";
  }
  return "?";
}

Transform::~Transform() = default;

TransformArguments::TransformArguments(std::string_view text, std::string_view usage)
    : text_(text), usage_(usage) {
  const std::size_t equals = text.find('=');
  name_ = text.substr(0, equals);
  if (equals == std::string_view::npos) return;
  for (const std::string& part : split(text.substr(equals + 1), ':')) {
    if (is_number(part)) {
      values_.push_back(part);
    } else {
      const std::size_t inner = part.find('=');
      const std::string word = part.substr(0, inner);
      for (const auto& [before, value] : words_)
        if (before == word) refuse(fmt::format("'{}' is given twice", word));
      words_.emplace_back(word, inner == std::string::npos ? "" : part.substr(inner + 1));
    }
  }
}

void TransformArguments::refuse(std::string_view what) const {
  fail<UsageError>("transform {}: {}; usage: {}", text_, what, usage_);
}

double TransformArguments::parse(std::string_view value, double least, double most,
                                 bool whole) const {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(number) ||
      (whole && number != std::floor(number)))
    refuse(fmt::format("'{}' is not a {}", value, whole ? "whole number" : "number"));
  if (number < least || number > most)
    refuse(fmt::format("{} is not from {} to {}", value, least, most));
  return number;
}

std::int64_t TransformArguments::whole(std::size_t i, std::int64_t least, std::int64_t most) const {
  if (i >= values_.size()) refuse("a number is missing");
  return static_cast<std::int64_t>(
      parse(values_[i], static_cast<double>(least), static_cast<double>(most), true));
}

double TransformArguments::number(std::size_t i, double least, double most) const {
  if (i >= values_.size()) refuse("a number is missing");
  return parse(values_[i], least, most, false);
}

ImageExtent TransformArguments::extent(std::size_t i) const {
  if (i >= values_.size()) refuse("a size is missing");
  const std::vector<std::string> sides = split(values_[i], 'x');
  if (sides.size() > 2) refuse(fmt::format("'{}' is not a size", values_[i]));
  const auto side = [&](const std::string& text) {
    return static_cast<std::int64_t>(parse(text, 1, 16384, true));
  };
  return {side(sides.front()), side(sides.back())};
}

bool TransformArguments::has(std::string_view word) const {
  for (const auto& [name, value] : words_) {
    if (name != word) continue;
    if (!value.empty()) refuse(fmt::format("'{}' takes no value", word));
    return true;
  }
  return false;
}

std::int64_t TransformArguments::whole(std::string_view word, std::int64_t least, std::int64_t most,
                                       std::int64_t absent) const {
  for (const auto& [name, value] : words_)
    if (name == word)
      return static_cast<std::int64_t>(
          parse(value, static_cast<double>(least), static_cast<double>(most), true));
  return absent;
}

void TransformArguments::most(std::size_t values,
                              std::initializer_list<std::string_view> words) const {
  if (values_.size() > values) refuse(fmt::format("accepts at most {} numbers", values));
  for (const auto& [word, value] : words_)
    if (std::find(words.begin(), words.end(), word) == words.end())
      refuse(fmt::format("'{}' is not known", word));
}

TransformKind::TransformKind(const char* kind_name, const char* kind_usage, const char* kind_what,
                             Make kind_make)
    : name(kind_name), usage(kind_usage), what(kind_what), make(kind_make) {
  auto& all = kinds();
  const auto before = [](const TransformKind* a, const TransformKind* b) {
    return std::string_view(a->name) < b->name;
  };
  all.insert(std::upper_bound(all.begin(), all.end(), this, before), this);
}

const std::vector<const TransformKind*>& TransformKind::all() {
  return kinds();
}

}  // namespace warpstep::data
