// What can be done about a loader, and what each would gain.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/analysis/findings_rules.h"
#include "profiler/analysis/loader_model.h"

namespace warpstep::profiler::advice {

struct RemedyChoice {
  std::string flag, advice;
  double gain_ns = 0;  // a step, by the model
};

// Of the time that a stage takes, what is left; measured on small PNG and large JPEG files, rounded
// up.
constexpr double packed_read = 0.25;     // loose files against packed ones in a known order: 0.1
constexpr double decoded_decode = 0.05;  // PNG against a copy of pixels: 0.02 to 0.04
constexpr double seekable_decode = 0.5;  // crops of seekable JPEG against all of it: 0.21 to 0.47
constexpr double bytes_pixels = 0.3;     // making numbers on the CPU against copying bytes: 0.29

double stage_share(const LoaderView& view, const std::string& stage);  // of the work, of 1
double gain(const LoaderModel& model, const Remedy& remedy);

bool is_loose(const Facts& facts);  // each sample is a file
// "warpstep data pack shapes shapes-packed --decode"; nothing when the set cannot be packed, or
// has been.
std::optional<std::string> pack_command(const Facts& facts);

// The cheapest first; with `waiting` those against waiting for data, else those that make the work
// less. None that is set already.
std::vector<RemedyChoice> remedies(const Facts& facts, const LoaderModel& model, bool waiting);

}  // namespace warpstep::profiler::advice
