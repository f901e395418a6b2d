// The report's tables, one function each.
#pragma once

#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/analysis/analysis.h"

namespace warpstep::profiler {

// Cells. A figure that is not known is 0 in the structures and empty in tables.
inline Cell cell(double value) {
  return value;
}
inline Cell cell(std::string value) {
  return value;
}
inline Cell cell(std::uint64_t value) {
  return static_cast<std::int64_t>(value);
}
inline Cell known(double value) {
  return value != 0 && std::isfinite(value) ? Cell(value) : Cell();
}
inline Cell known(const std::string& value) {
  return value.empty() ? Cell() : Cell(value);
}

// What the steps of a run count: "tokens" of text, else "samples".
std::string_view items(const Session& session);

// How times of calls and their shares differ where kernels ran at once; "" where none did.
std::string overlaps_text(const Work& work);

Table breakdown_table(const Analysis& analysis);
// `numbers`: only these steps; a run may have millions.
Table steps_table(const Session& session, const Analysis& analysis,
                  const std::set<std::uint64_t>* numbers = nullptr);
Table layers_table(const Analysis& analysis);
Table calls_table(const Analysis& analysis);
Table ops_table(const Analysis& analysis);
Table kernels_table(const Analysis& analysis);
Table host_table(const Analysis& analysis);
Table memory_table(const Analysis& analysis);
Table loader_table(const Analysis& analysis);
Table stalls_table(const Analysis& analysis);
Table critical_path_table(const Analysis& analysis);
Table findings_table(const Analysis& analysis);
Table devices_table(const Session& session, const Analysis& analysis);
Table samples_table(const Session& session);

}  // namespace warpstep::profiler
