// The host's side of PM sampling: which metrics a chip can count at once, and what its counters
// mean. Needs no device, so the real library answers for any chip on any machine.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "profiler/sources/cupti_pm_api.h"

namespace warpstep::profiler {

// Why PM sampling does not go on, to be told in a sentence.
class PmFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct PmMetric {
  const char* shown;               // "SM active %"
  std::vector<const char*> names;  // CUPTI's, best first: chips differ
};
const std::vector<PmMetric>& pm_metrics();

// CUPTI's object for a chip, its config image among it.
class PmHost {
 public:
  // Takes as many of pm_metrics() as the chip counts in one pass, which PM sampling is limited to:
  // the first ones first. `availability` is the device's counter availability image; without one
  // all of the chip's counters count as available. Throws PmFailure when there is none.
  PmHost(const CuptiApi& cupti, const CuptiPmApi& pm, std::string chip,
         std::vector<std::uint8_t> availability = {});
  ~PmHost();
  PmHost(const PmHost&) = delete;
  PmHost& operator=(const PmHost&) = delete;

  const std::vector<std::string>& shown() const { return shown_; }      // of those taken
  std::vector<const char*>& names() { return names_; }                  // CUPTI's
  const std::vector<std::string>& lacking() const { return lacking_; }  // one sentence each
  std::span<const std::uint8_t> config_image() const { return config_image_; }

  // The metrics' values in a sample of a counter data image.
  CUptiResult evaluate(std::span<const std::uint8_t> counter_data, std::size_t sample,
                       std::span<double> values);

 private:
  enum class Fit { absent, passes, fits };
  Fit try_metrics(std::vector<const char*> names);
  void release();

  const CuptiApi& cupti_;
  const CuptiPmApi& pm_;
  std::string chip_;
  std::vector<std::uint8_t> availability_;
  CUpti_Profiler_Host_Object* object_ = nullptr;
  std::vector<std::uint8_t> config_image_;
  std::vector<const char*> names_;
  std::vector<std::string> shown_, lacking_;
};

}  // namespace warpstep::profiler
