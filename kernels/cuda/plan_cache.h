// Plans kept from one run to the next: choosing a plan takes cuDNN up to some seconds (engines that
// are compiled at run time) and measuring all of them minutes; taking one from a file takes less
// than a millisecond.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/cuda/settings.h"

namespace warpstep::cuda {

// How a plan was chosen: what was measured is not mixed up with what heuristics proposed.
enum class Choice { heuristic, measured };

// A folder with a small file a plan; and in memory, so that a model's equal layers are planned once
// even without a folder. Nothing here is ever an error: a file that is missing, truncated, damaged
// or of another key is no plan, and a folder that cannot be written keeps none. So does one that
// others than the user may write to, or that is a link: what a plan does on the device is not
// checked. Processes may share a folder; an object of this class belongs to one thread.
class PlanCache {
 public:
  // `library` with its version: "cuDNN 9.19.0". Plans of another version, another kind of device
  // (one that is only assumed is another) or other settings are not found.
  PlanCache(const Settings& settings, std::string_view library);

  // `subject` is what is computed: Graph::key(). With a heuristic choice, a measured one is better
  // still, and is what is found first.
  std::optional<std::string> find(std::string_view subject) const;
  void keep(std::string_view subject, std::string_view plan);

  std::filesystem::path file(std::string_view subject, Choice choice) const;  // for tests

 private:
  bool is_safe() const;
  std::string key(std::string_view subject, Choice choice) const;

  std::filesystem::path folder_;
  std::string device_and_settings_;
  Choice choice_;                            // of what is kept
  std::map<std::string, std::string> kept_;  // by subject, of this process
};

}  // namespace warpstep::cuda
