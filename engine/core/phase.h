// Phases of a run: start, indexing, an evaluation, a checkpoint, ... They are few, so that they are
// recorded always, also where spans are not; the profiler and the summary read them.
//
//   static const record::Name name{"evaluation"};
//   const record::Phase phase{name, step};        // from here to the end of the scope
//   const record::PhasePart part{reading_name};   // adds its scope to a part of that phase
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/record.h"

namespace warpstep::record {

// A phase, or a part of the phase that follows it with a smaller depth. A part may be interrupted:
// then `ns` is less than end - begin.
struct PhaseEntry {
  std::uint64_t begin_ns = 0, end_ns = 0;  // engine/core/clock.h
  std::uint64_t ns = 0;
  std::uint64_t arg = 0;    // the name defines it: the step of a checkpoint
  std::uint32_t name = 0;   // as Entry's
  std::uint32_t depth = 0;  // phases around it
};
static_assert(sizeof(PhaseEntry) == 40);

// Records the time from its construction to the end of its scope. Phases nest within a thread.
class Phase {
 public:
  explicit Phase(const Name& name, std::uint64_t arg = 0) noexcept;
  // Of something that began earlier.
  Phase(const Name& name, std::uint64_t arg, std::uint64_t begin_ns) noexcept;
  ~Phase() { end(); }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

  void end() noexcept;  // once; before the scope's end

 private:
  friend class PhasePart;
  struct Part {
    std::uint64_t begin_ns = 0, end_ns = 0, ns = 0;
    std::uint32_t name = 0;
  };
  static constexpr std::size_t most_parts = 6;

  Phase* around_;  // null after end() of the outermost
  bool open_ = true;
  std::uint32_t depth_ = 0;
  PhaseEntry entry_;
  Part parts_[most_parts];  // by name, in the order of their first times
  std::size_t part_count_ = 0;
};

// Adds the time of its scope to a part of the calling thread's innermost phase; nothing without
// one. Within another PhasePart it adds nothing: that time is counted already.
class PhasePart {
 public:
  explicit PhasePart(const Name& name) noexcept;
  ~PhasePart();
  PhasePart(const PhasePart&) = delete;
  PhasePart& operator=(const PhasePart&) = delete;

 private:
  Phase* phase_;  // null: not counted
  std::uint32_t name_;
  std::uint64_t begin_ns_ = 0;
};

// The ended phases since the last call, parts before their phase. Phases that nobody takes are kept
// up to a limit of some 10,000.
std::vector<PhaseEntry> take_phases();

// When the process was created, by the kernel's clock to 10 ms; else when this library was loaded.
// A process that waited in another program before its exec (`sleep 60; exec warpstep`) begins when
// this one was loaded.
std::uint64_t process_start_ns();

}  // namespace warpstep::record
