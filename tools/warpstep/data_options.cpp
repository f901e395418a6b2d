#include "tools/warpstep/data_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "data/transforms/recipe.h"
#include "engine/core/error.h"
#include "tools/warpstep/run_options.h"

namespace warpstep::tools {
namespace {

// The parsers below as checks of the command line: what they throw is the message.
template <class Parse>
TextCheck check_by(Parse parse) {
  return [parse](const std::string& text) {
    try {
      parse(text);
      return std::string();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
  };
}

void check_recipe(const std::string& text) {
  if (text != "auto" && text != "none") data::Recipe recipe(text);
}

std::string known_transforms() {
  std::string text;
  for (const data::TransformKind* kind : data::TransformKind::all())
    text += fmt::format("\n  {:<40} {}", kind->usage, kind->what);
  return text;
}

}  // namespace

ShuffleChoice parse_shuffle(const std::string& text) {
  if (text == "full") return {};
  if (text == "none") return {.shuffle = data::Shuffle::none};
  ShuffleChoice choice{.shuffle = data::Shuffle::window};
  if (text == "window") return choice;
  const std::string prefix = "window:";
  if (text.starts_with(prefix)) {
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + prefix.size(), end, choice.window);
    if (error == std::errc() && at == end && choice.window >= 32) return choice;
  }
  fail<UsageError>("--shuffle {}: there are full, none, window and window:SAMPLES from 32 on",
                   text);
}

data::DataErrors parse_data_errors(const std::string& text) {
  if (text == "fail") return data::DataErrors::fail;
  if (text == "skip") return data::DataErrors::skip;
  if (text == "mask") return data::DataErrors::mask;
  fail<UsageError>("--data-errors {}: there are fail, skip and mask", text);
}

std::uint64_t parse_bytes(const std::string& text) {
  if (text == "none") return 0;
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  const std::string unit(at, end);
  constexpr std::array<std::pair<const char*, unsigned>, 4> units{
      {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}}};
  for (const auto& [name, shift] : units)
    if (error == std::errc() && unit == name && number > 0 &&
        number <= (~std::uint64_t{0} >> shift))
      return number << shift;
  fail<UsageError>("'{}' is no amount of memory; write for example 512MiB, 2GiB or none", text);
}

void declare_data_options(CLI::App& app, RunOptions& o) {
  app.add_option("--workers", o.workers,
                 "loader threads, or auto: as many as keep the step from waiting")
      ->transform(CLI::Validator(
          [](std::string& text) {
            if (text == "auto") text = "0";
            return std::string();
          },
          "N|auto"))
      ->check(CLI::Range(0, 256));
  app.add_option("--prefetch", o.prefetch, "batches that the loader keeps ready")
      ->capture_default_str()
      ->check(CLI::Range(2, 64));
  app.add_option("--tier", o.tier,
                 "where decoded images are: resident (on the device), mapped (in memory), decoded "
                 "(nowhere: every time anew), or auto; batches are the same")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "resident", "mapped", "decoded"}));
  app.add_option("--transforms", o.transforms,
                 "of training images, in order, by comma; none; or auto: the model's own. There "
                 "are:" +
                     known_transforms())
      ->capture_default_str()
      ->check(CLI::Validator(check_by(check_recipe), "", "transforms"));
  app.add_option("--eval-transforms", o.eval_transforms,
                 "of test images; auto: the training's without chance")
      ->capture_default_str()
      ->check(CLI::Validator(check_by(check_recipe), "", "transforms"));
  app.add_option("--normalize", o.normalize,
                 "where bytes become numbers: device (a kernel of the step) or cpu (the loader)")
      ->capture_default_str()
      ->check(CLI::IsMember({"device", "cpu"}));
  app.add_option("--mean", o.mean, "of x/255, one a channel; measured when not given")
      ->expected(1, 4)
      ->check(finite_number());
  app.add_option("--std", o.std, "of x/255, one a channel; measured when not given")
      ->expected(1, 4)
      ->check(number_from_zero());
  app.add_option("--shuffle", o.shuffle,
                 "full, none, or window[:SAMPLES], which reads neighbours together: for sets that "
                 "do not fit into memory")
      ->capture_default_str()
      ->check(CLI::Validator(check_by(parse_shuffle), "", "shuffle"));
  app.add_option("--data-errors", o.data_errors,
                 "for a sample that cannot be decoded: fail, skip (the next good one of its batch) "
                 "or mask (it does not count)")
      ->capture_default_str()
      ->check(CLI::IsMember({"fail", "skip", "mask"}));
  app.add_option("--max-bad", o.max_bad, "share of the samples that skip and mask put up with")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--memory", o.memory, "most that loading may take, for example 2GiB; or none")
      ->capture_default_str()
      ->check(CLI::Validator(check_by(parse_bytes), "", "memory"));
  app.add_option("--data-io", o.data_io,
                 "how packed files are read: mmap, or pread for network mounts")
      ->capture_default_str()
      ->check(CLI::IsMember({"mmap", "pread"}));
}

}  // namespace warpstep::tools
