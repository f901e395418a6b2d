// The machine while a run goes on: a thread that looks twice a second.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

struct SamplerOptions {
  std::chrono::milliseconds period{500};
  std::filesystem::path proc = "/proc";  // of a test: another tree
  bool gpu = true;                       // NVML, loaded at run time
};

// Samples under these names (Kind::metric): "cpu N %", "cpu %", "process cpu %", "process rss
// bytes", "memory available bytes", "swap used bytes", "disk read bytes/s", "disk write bytes/s",
// "disk busy %", "network received bytes/s", "network sent bytes/s"; for each GPU with NVML "gpu N
// utilisation %", "gpu N memory used bytes", "gpu N power W", "gpu N temperature C", "gpu N sm
// clock MHz", "gpu N memory clock MHz", "gpu N throttle reasons".
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options = {});
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  std::vector<Sample> take();        // since the last call
  std::vector<std::string> notes();  // what cannot be read here, and why

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace warpstep::profiler
