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

struct NvmlFunctions;

struct SamplerOptions {
  std::chrono::milliseconds period{500};
  std::filesystem::path proc = "/proc";  // of a test: another tree
  bool gpu = true;                       // NVML, loaded at run time
  const NvmlFunctions* nvml = nullptr;   // of a test: instead of the library
};

// Samples under these names (Kind::metric): "cpu N %", "cpu %", "process cpu %", "process rss
// bytes", "memory available bytes", "swap used bytes", "disk read bytes/s", "disk write bytes/s",
// "disk busy %", "network received bytes/s", "network sent bytes/s"; for each GPU with NVML "gpu N
// utilisation %", "gpu N memory used bytes", "gpu N power W", "gpu N temperature C", "gpu N sm
// clock MHz", "gpu N memory clock MHz", "gpu N throttle reasons".
//
// A core busy all the time is "cpu N %" 100, and so is the process with "process cpu %" 100.
// "disk busy %" is of the busiest disk: the share of time with requests under way. Bytes of disks
// and networks are the whole machine's. "throttle reasons" are NVML's bits. Shares and rates are of
// the time since the sample before, and begin with the second one.
//
// Sampling never disturbs a run: what cannot be read is a note, once, and a machine whose reading
// takes long is read less often (pause_after()). A sample without GPUs costs about 0.08 ms of
// processor time on a machine with 2 cores, 0.02 % of a core at two a second.
class Sampler {
 public:
  // Takes the first sample, in the calling thread.
  explicit Sampler(const SamplerOptions& options = {});
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Takes a sample now, besides those of the thread.
  void look();

  std::vector<Sample> take();                      // since the last call, by time
  const std::string& why() const { return why_; }  // it looks at the machine once only; else empty
  std::vector<std::string> notes();                // what cannot be read here, and why

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::string why_;
};

// How long the sampler sleeps after a reading that took `cost` of processor time: the period, or
// more so that it stays below 0.5 % of a core.
std::chrono::nanoseconds pause_after(std::chrono::nanoseconds cost,
                                     std::chrono::nanoseconds period);

}  // namespace warpstep::profiler
