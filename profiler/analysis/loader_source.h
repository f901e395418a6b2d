// Where samples are read from: does each read wait by itself (latency), or do all readers share a
// bandwidth?
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace warpstep::profiler {

// The read of one sample.
struct ReadTime {
  std::uint64_t begin_ns = 0, end_ns = 0;
  double blocked_ns = 0;  // of it, neither on a core nor waiting for one
  double bytes = 0;
  double readers = 1;  // at the same time, itself among them: the mean over its time
};

// Sets `readers` of each.
void count_readers(std::vector<ReadTime>& reads);

// blocked = latency + readers * bytes * ns_per_byte: from how much longer reads take with more
// readers, or with more bytes, whichever is known better; without the 2 % that took longest. With
// one reader and files of equal size the parts cannot be told apart: the range of ns_per_byte says
// so.
struct SourceFit {
  double latency_ns = 0;
  double ns_per_byte = 0;
  double least_ns_per_byte = 0, most_ns_per_byte = 0;  // three standard errors of it
  double limit_ns_per_byte = 0;  // what would explain all of the blocked time; 0: no bytes known
  double bytes_per_s = 0;        // while at least one read was in progress
  double reads_per_s = 0;        // the same
  double readers = 0;            // at once, while any
  double bandwidth_share = 0;    // of the blocked time, of 1: what the shared bandwidth explains
  double left_out_share = 0;     // of the blocked time, of 1: that of the reads that took longest
  // How much longer the source works on a byte than its readers are blocked for it, by one reader:
  // while one waits for a core, or uses it, the source serves the others.
  double busy_per_blocked = 1;

  bool tells_apart() const {  // latency and bandwidth
    return most_ns_per_byte - least_ns_per_byte <= 0.5 * limit_ns_per_byte;
  }
  // Of 1: the bandwidth that the reads used, of the one that they could have had.
  double used() const { return bytes_per_s * busy_per_blocked * ns_per_byte / 1e9; }
  bool is_limited = false;     // by the control group, however many readers there are
  bool is_serial = false;      // one read at a time: the others wait for a lock, or a queue
  bool is_saturated() const {  // more readers share it
    return is_limited || is_serial || (tells_apart() && used() >= 0.85);
  }
};
SourceFit fit_source(std::span<const ReadTime> reads);

}  // namespace warpstep::profiler
