// Samples the machine during a run, twice per second unless it thins, in a separate thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "profiler/session/session.h"
#include "profiler/sources/sampler_nvml.h"

namespace warpstep::profiler {

struct SamplerOptions {
  std::chrono::milliseconds period{500};
  // Samples become rarer after an hour, but for the times that Sampler::dense() asks for: a file of
  // them grows by the logarithm of the time.
  bool thins = false;
  // Tests use other folders; control groups are those of proc/.., as are sys/fs/cgroup's.
  std::filesystem::path proc = "/proc";
  std::vector<GpuPlace> gpus;           // through NVML, loaded at run time; empty: not loaded
  std::vector<Sibling> siblings;        // the other ranks of a job, on this machine
  const NvmlFunctions* nvml = nullptr;  // tests supply these instead of the library
  // If set, it receives each sample in place of take(), one call at a time: the first from the
  // constructor, later ones from the sampler's thread or from look().
  std::function<void(const std::vector<Metric>&)> receive;
};

// Samples have these names (Kind::metric): "cpu N %", "cpu %", "process cpu %", "siblings
// cpu %" (on CPUs that this process may use), "stolen cpu %" (of the machine's CPUs, given to other
// virtual machines; only where that ever was), "process rss bytes" and of it "process
// private bytes" (no pages of files), "memory available bytes", "swap used bytes", "disk read
// bytes/s", "disk write bytes/s", "disk busy %", "network received bytes/s", "network sent
// bytes/s"; for each of the GPUs with NVML "gpu N utilisation %", "gpu N memory used bytes", "gpu N
// power W", "gpu N temperature C", "gpu N sm clock MHz", "gpu N memory clock MHz", "gpu N throttle
// reasons".
//
// What the process was not given: for each of its threads by name ("main", "loader 0"; "kernels":
// the sum of the team without main; "other threads") "NAME run delay %", the time that it was ready
// and had no core, and "NAME on cpu %"; "kernels threads"; "kernels cpus", on which the team may
// run; "involuntary switches/s"; with a CPU quota "cpu periods/s", "cpu throttled periods/s" and
// "cpu throttled %" (summed over cores); "cpu pressure %", "memory pressure %", "io pressure %"
// (PSI, "some") and the same with "group "; "major faults/s", "reclaimed pages/s" and "swapped
// pages/s" (of the machine); "refaulted pages/s" of files, which were read again after the kernel
// had dropped them (of the machine, or of the group with a memory limit); with a memory limit
// "memory limit bytes", "memory limit used bytes" (without cached files) and "memory limit hits/s".
// Of other programs that this process can see,
// their "other processes", those that used the CPU most as "program NAME cpu %", at most three; and
// "traced by NAME", 1, while a debugger or tracer is attached. "memory available bytes" is no more
// than what the limit leaves. Metrics that a kernel or a container does not have are left out.
//
// 100 means one core that is always busy, for "cpu N %" as for "process cpu %", "siblings
// cpu %" and "stolen cpu %"; "cpu N %" and "cpu %" have what is stolen. "disk busy %" is of
// the busiest disk: the share of time with requests in flight. Bytes of disks and networks are of
// the whole machine. "throttle reasons" are NVML's bits. Shares and rates cover the time since the
// previous sample, so the first sample has none.
//
// Sampling never disturbs a run: unreadable values become one note, and a machine that is slow to
// read is read less often (pause_after()). A sample without GPUs costs about 0.09 ms of CPU time on
// a machine with 2 cores and 3 us more for each thread, 0.03 % of a core at two samples per second
// with 20 threads.
class Sampler {
 public:
  // Takes the first sample, in the calling thread.
  explicit Sampler(const SamplerOptions& options = {});
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Takes an extra sample now.
  void look();
  // Whether samples are of use that are a period apart, as within a window.
  void dense(bool on);

  std::vector<Sample> take();                      // since the last call, by time
  const std::string& why() const { return why_; }  // why it samples only once; else empty
  std::vector<std::string> notes();                // values that cannot be read, and why

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::string why_;
};

// How long the sampler sleeps after a reading that took `cost` of CPU time: the period, or longer
// to stay below 0.5 % of a core.
std::chrono::nanoseconds pause_after(std::chrono::nanoseconds cost,
                                     std::chrono::nanoseconds period);
// That of a sampler that thins, `age` after its begin.
std::chrono::nanoseconds thinned(std::chrono::nanoseconds pause, std::chrono::nanoseconds age);

}  // namespace warpstep::profiler
