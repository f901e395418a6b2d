// A simulation of PM sampling for tests, with the clock of a FakeCupti: counts become samples in a
// buffer of the hardware, and each function can fail.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "profiler/sources/cupti_pm_host.h"
#include "profiler/sources/cupti_testing.h"

namespace warpstep::profiler::testing {

// The faults to inject; set them before the call that should fail.
struct PmFaults {
  std::map<std::string, CUptiResult> results;  // by the table's member: "enable"
  std::string missing;                         // what the loader said
  std::set<std::string> absent;                // metrics, by the name's first word
  std::set<std::string> in_more_passes;        // counted alone only
  CUpti_Profiler_Support_Level v_gpu = CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
  std::size_t hardware_samples = 100'000;  // that fit into the buffer
  bool overflow_is_an_error = false;       // instead of a flag
  bool no_times = false;
  bool endless = false;  // each reading finds a sample, and says that it stopped before the end
  double value = -1;     // of all metrics, instead of their own
};

struct PmValues {
  double sm = 0, tensor = 0, dram = 0;  // %
};

// The functions of api() reach the last one that was created.
class FakePm {
 public:
  explicit FakePm(FakeCupti& cupti);
  ~FakePm();
  FakePm(const FakePm&) = delete;
  FakePm& operator=(const FakePm&) = delete;

  CuptiPmApi api() const;
  PmFaults faults;
  std::string chip = "GH100";

  // Advances the clock and, while sampling is on, writes a sample of that time.
  void sample(const PmValues& values, std::uint64_t lasts_ns = 1'000'000);
  std::size_t waiting();  // samples in the hardware's buffer

  std::vector<std::string> calls;  // of the device's side except decoding, in order
  CUpti_PmSampling_SetConfig_Params config{};
  int hosts = 0;                  // host objects now
  bool config_image_kept = true;  // it existed, unchanged, as long as CUPTI may read it

 private:
  struct Functions;
  friend struct Functions;
  struct Raw {
    std::uint64_t begin_ns = 0, end_ns = 0;
    PmValues values;
  };

  CUptiResult result_of(const char* function);
  CUptiResult device_call(const char* function);
  std::uint64_t now() const;

  FakeCupti& cupti_;
  std::recursive_mutex mutex_;
  bool started_ = false;
  bool overflowed_ = false;
  std::vector<std::uint8_t> config_image_;
  std::deque<Raw> buffer_;
};

}  // namespace warpstep::profiler::testing
