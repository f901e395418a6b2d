// Plans kept from one run to the next. Choosing a plan takes cuDNN up to some seconds (engines that
// are compiled at run time), measuring all of them minutes, reading one from a file less than a
// millisecond.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/cuda/settings.h"

namespace warpstep::cuda {

// How a plan was chosen; the cache keeps both kinds apart.
enum class Choice { heuristic, measured };

// A folder with one small file per plan, and the same in memory, so that a model's equal layers are
// planned once even without a folder. Nothing here throws: a file that is missing, truncated,
// damaged or of another key is ignored, and so is a folder that cannot be written. A folder is also
// ignored if it is a link or others may write to it, because a plan runs on the device unchecked.
// Processes may share a folder; an object of this class belongs to one thread.
class PlanCache {
 public:
  // `library` with its version: "cuDNN 9.19.0". find() ignores plans of another version, another
  // kind of device (an assumed device is another kind) or other settings.
  PlanCache(const Settings& settings, std::string_view library);

  // `subject` is the key of the computation: Graph::key(). A heuristic search also finds measured
  // plans, and prefers them.
  std::optional<std::string> find(std::string_view subject) const;
  void keep(std::string_view subject, std::string_view plan) { keep(subject, plan, choice_); }
  // With --autotune: a plan that could not be measured. Another run measures again.
  void keep_unmeasured(std::string_view subject, std::string_view plan) {
    keep(subject, plan, Choice::heuristic);
  }

  std::filesystem::path file(std::string_view subject, Choice choice) const;  // for tests

 private:
  void keep(std::string_view subject, std::string_view plan, Choice choice);
  bool is_safe() const;
  std::string key(std::string_view subject, Choice choice) const;

  std::filesystem::path folder_;
  std::string device_and_settings_;
  Choice choice_;                            // of plans that keep() stores
  std::map<std::string, std::string> kept_;  // by subject, in this process
};

}  // namespace warpstep::cuda
