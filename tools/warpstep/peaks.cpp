#include "tools/warpstep/peaks.h"

#include <algorithm>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/core/file.h"
#include "engine/core/json_text.h"

namespace warpstep::tools {
namespace {

Json kept_peaks(const std::filesystem::path& file) {
  std::ifstream in(file);
  Json kept = parse_json<Json>(std::string(std::istreambuf_iterator<char>(in), {}));
  return kept.is_object() ? kept : Json::object();
}

// The larger of both; true where that is the kept one.
bool raise(Json& value, const Json& kept) {
  if (!kept.is_number() || !value.is_number() || kept.get<double>() <= value.get<double>())
    return false;
  value = kept;
  return true;
}

}  // namespace

PeakSizes host_peak_sizes(std::uint64_t free_bytes) {
  constexpr std::int64_t n = 1024, count = std::int64_t{1} << 24;
  // Of the matrices a copy in another layout; of the relu its input and output. Less than all of it
  // would measure a cache.
  constexpr std::uint64_t product_bytes = 6ULL * 4 * n * n, stream_bytes = 2ULL * 4 * count;
  return {.product = product_bytes <= free_bytes / 4 ? n : 0,
          .stream = stream_bytes <= free_bytes / 4 ? count : 0};
}

Json with_best_peaks(Json measured, const std::string& key, const std::filesystem::path& folder) {
  if (folder.empty() || !measured.is_object() || measured.empty()) return measured;
  try {
    const std::filesystem::path file = folder / "peaks.json";
    Json kept = kept_peaks(file);
    Json& mine = kept[key];
    if (!mine.is_object()) mine = Json::object();
    const Json before = mine;
    Json now = measured;
    now.erase("how");
    bool is_kept = false;
    if (measured.contains("flops_per_second"))
      for (auto& [precision, value] : measured["flops_per_second"].items()) {
        is_kept |= raise(value, mine["flops_per_second"][precision]);
        mine["flops_per_second"][precision] = value;
      }
    if (measured.contains("bytes_per_second")) {
      is_kept |= raise(measured["bytes_per_second"], mine["bytes_per_second"]);
      mine["bytes_per_second"] = measured["bytes_per_second"];
    }
    if (is_kept) measured["now"] = now;
    if (is_kept && measured.contains("how"))
      measured["how"] = measured["how"].get<std::string>() + "; the best seen on this machine";
    if (mine == before) return measured;
    std::filesystem::create_directories(folder);
    write_atomically(file, printed(kept, 2) + "\n");
  } catch (const std::exception&) {  // no cache: what was measured now
  }
  return measured;
}

}  // namespace warpstep::tools
