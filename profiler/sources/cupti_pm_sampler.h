// PM sampling on one device: the hardware writes its counters into a buffer, which a thread reads
// every 10 ms.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "profiler/sources/cupti_pm_host.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {

struct PmSettings {
  std::uint64_t interval_ns = 1'000'000;
  std::uint64_t interval_cycles = 1'000'000;  // for chips that trigger by system clock only
  std::size_t hardware_buffer_bytes = std::size_t{64} << 20;
  std::uint32_t samples_at_once = 128;             // capacity of a counter data image
  std::size_t max_samples = std::size_t{1} << 20;  // per window: 17 minutes
  std::chrono::milliseconds between_decodes{10};
  std::chrono::milliseconds between_readings{500};  // of the clocks, within a window
};

// open_pm_sampling() with any tables of functions.
OpenedPmSampling open_pm_sampling(const CuptiApi& cupti, const CuptiPmApi& pm, int device,
                                  const PmSettings& settings = {});

class PmSampler final : public PmSampling {
 public:
  PmSampler(const CuptiApi& cupti, const CuptiPmApi& pm, int device, const PmSettings& settings)
      : cupti_(cupti), pm_(pm), device_(device), settings_(settings) {}
  ~PmSampler() override;  // releases the counters
  PmSampler(const PmSampler&) = delete;
  PmSampler& operator=(const PmSampler&) = delete;

  void open();  // once; throws PmFailure
  const PmHost& host() const { return *host_; }

  void begin() override;
  Measured end(std::uint64_t from_ns, std::uint64_t to_ns) override;
  std::string what() const override;

 private:
  static constexpr std::size_t most_metrics = 4;
  struct Raw {
    std::uint64_t begin_ns = 0, end_ns = 0;  // of CUPTI's clock
    std::array<double, most_metrics> values{};
  };

  void check(const char* function, CUptiResult result, bool others_may_hold_it = false) const;
  void check_device();
  std::string chip_name();
  std::vector<std::uint8_t> availability();
  void enable();
  void configure();
  void make_counter_data();

  void start();
  void stop();
  void finish() noexcept;
  void work() noexcept;
  void stop_thread();
  bool is_stopping();
  bool decode();
  void clear_counter_data();
  void read(std::size_t sample);
  void break_off(const char* why) noexcept;
  Measured map(std::uint64_t from_ns, std::uint64_t to_ns);

  const CuptiApi cupti_;
  const CuptiPmApi pm_;
  const int device_;
  const PmSettings settings_;

  bool owns_sampling_ = false;  // of the process
  bool initialized_ = false;    // CUPTI's profiler
  std::string chip_;
  // Owns the config image, to which CUPTI keeps a pointer until PM sampling is disabled.
  std::optional<PmHost> host_;
  CUpti_PmSampling_Object* object_ = nullptr;
  std::vector<std::uint8_t> counter_data_;

  // State of the window; used by the reading thread while it runs.
  bool started_ = false;
  std::vector<ClockReading> clocks_;
  std::vector<Raw> raw_;
  std::uint64_t overflows_ = 0, without_times_ = 0, without_values_ = 0, dropped_ = 0;
  bool first_ = true;      // the next sample is the first of the window
  bool is_used_ = true;    // the counter data image must be initialised again
  std::string broken_;     // why sampling stopped; empty: it works
  bool reported_ = false;  // broken_
  std::mutex mutex_;       // protects the following
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace warpstep::profiler
