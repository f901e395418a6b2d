#include "bench/excuses.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "engine/core/error.h"

namespace warpstep::bench {
namespace {

// Of all architectures.
constexpr std::array<std::string_view, 5> instruction_sets{"avx512", "avx2", "sse41", "neon",
                                                           "any"};

// Its name in WARPSTEP_CPU_ISA.
std::string_view word_of(CpuIsa isa) {
  for (const CpuIsaLimit& limit : cpu_architecture().limits)
    if (limit.isa == isa && limit.bf16 == Bf16Isa::none) return limit.word;
  return "any";
}

// "45%" as 0.45; nothing if it is no share.
std::optional<double> share_in(const std::string& word) {
  double percent = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, percent);
  if (error != std::errc() || stop + 1 != end || *stop != '%' || !(percent >= 0 && percent < 1000))
    return std::nullopt;
  return percent / 100;
}

Excuse parse(const std::string& text, const std::string& place) {
  std::istringstream words(text);
  Excuse excuse;
  std::string share;
  words >> excuse.pattern >> excuse.isa >> share >> std::ws;
  std::getline(words, excuse.reason);
  if (std::ranges::find(instruction_sets, excuse.isa) == instruction_sets.end())
    fail<UsageError>("{}: '{}' is no instruction set; write avx512, avx2, sse41, neon or any",
                     place, excuse.isa);
  const std::optional<double> least = share_in(share);
  if (!least) fail<UsageError>("{}: '{}' is no share; write one like 45%", place, share);
  excuse.least_share = *least;
  if (excuse.reason.empty()) fail<UsageError>("{}: the reason is missing", place);
  return excuse;
}

}  // namespace

bool Excuse::matches(const std::string& call) const {
  return fnmatch(pattern.c_str(), call.c_str(), 0) == 0;
}

std::vector<Excuse> read_excuses(const std::filesystem::path& file, CpuIsa isa) {
  std::ifstream in(file);
  if (!in) fail<UsageError>("{}: cannot read the list of excused calls", file.string());
  std::vector<Excuse> excuses;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    Excuse excuse = parse(line, fmt::format("{}:{}", file.string(), number));
    excuse.line = number;
    if (excuse.isa == "any" || excuse.isa == word_of(isa)) excuses.push_back(std::move(excuse));
  }
  return excuses;
}

}  // namespace warpstep::bench
