// The tags of TensorBoard's scalars, one list for the curves of a running program (--tensorboard)
// and for those of a session (warpstep export).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "profiler/export/event_file.h"

namespace warpstep::profiler {

// Every number in a record of metrics.jsonl, also in nested objects and arrays. {"kind": "step",
// "loss": 2, "blocks": [{"norm": 1}]} has train/loss and train/blocks/0/norm; evaluations have
// validation/..., other kinds their own names. Without "step" and "time", which are the event's.
std::vector<Scalar> scalars_of(const nlohmann::ordered_json& record);

// A metric of the sampler: "gpu 0 power W" becomes system/gpu_0_power_W; bytes become megabytes,
// shares percents. Nothing for loads of single cores and for bit masks.
std::optional<Scalar> machine_scalar(std::string_view metric, double value);

}  // namespace warpstep::profiler
