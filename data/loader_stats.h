// What a loader tells of itself, and what follows from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/batch.h"

namespace warpstep::data {

struct BatchTiming {  // on the steady clock
  Position position;
  std::uint64_t first_claim_ns = 0;  // a worker began with it
  std::uint64_t ready_ns = 0;        // its last sample was written
  std::uint64_t taken_ns = 0;        // next() gave it
};

struct StageTime {
  std::string name;  // "wait", "read", "decode", "resize", transforms by name, "pixels", "copy"
  std::uint64_t ns = 0;
};

struct WorkerStats {
  std::vector<StageTime> stages;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;  // read, before decoding
};

struct LoaderStats {  // since the loader was made
  std::vector<WorkerStats> workers;
  std::vector<StageTime> stages;  // sums over the workers
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;            // read, before decoding
  std::uint64_t batches = 0;          // taken
  std::uint64_t trainer_wait_ns = 0;  // of next() for a batch
  std::uint64_t first_taken_ns = 0;   // steady clock; 0 before the first
  std::uint64_t last_taken_ns = 0;
  double mean_ready = 0;             // batches that were ready when one was taken
  int prefetch = 0;                  // batches in the ring
  int active = 0;                    // workers that are not parked
  std::size_t bad = 0;               // rows that could not be decoded
  std::vector<BatchTiming> timings;  // of the last batches taken, oldest first

  std::uint64_t stage_ns(const std::string& name) const;  // 0 when there is none
};

// Memory that a loader may take at most, in bytes. Decoders of images that differ in size are
// counted by the set's first image, and without the coefficients of progressive JPEG files (2 bytes
// a number, all of the image at once).
struct MemoryBound {
  std::uint64_t slots = 0;
  std::uint64_t workers = 0;  // scratch and decoders
  std::uint64_t order = 0;
  std::uint64_t dataset = 0;  // tables, pixels kept

  std::uint64_t total() const { return slots + workers + order + dataset; }
  std::string text() const;  // "152.3 MiB: 3 slots ..."
};

// One line: who waits for whom, which stage takes the workers' time, and what would change it.
// "data: 2 workers, trainer waits 0.2 %, decode 91 %, read 4 %, ..." `encoding` is what the samples
// are stored as ("png", "jpeg", "packed jpeg", "pixels"), `most_workers` how many there could be.
std::string diagnose(const LoaderStats& stats, const std::string& encoding, int most_workers);

}  // namespace warpstep::data
