// What a loader's threads tell the profiler.
#pragma once

#include <cstdint>
#include <string>

#include "engine/core/record.h"

namespace warpstep::data::spans {

inline const record::Name sample{"sample", record::Kind::sample};  // arg: its ticket
inline const record::Name pixels{"pixels", record::Kind::stage};
inline const record::Name idle{"idle", record::Kind::idle};
inline const record::Name worker_cpu{"worker cpu ns", record::Kind::counter};  // of a claim

// A name that is told apart from that of another loader: "batch ready", or "batch ready, test
// loader".
std::string of_loader(const std::string& name, const std::string& thread_name);

// Between its construction and end() a worker asked for work and waited; told when that took longer
// than asking does.
class Idle {
 public:
  Idle() : since_ns_(record::is_on() ? now_ns() : 0) {}
  void end() const;

 private:
  std::uint64_t since_ns_;
};

// The CPU time that the calling thread takes in a scope.
class CpuTime {
 public:
  CpuTime();
  ~CpuTime();
  CpuTime(const CpuTime&) = delete;
  CpuTime& operator=(const CpuTime&) = delete;

 private:
  std::uint64_t begin_ns_;
};

}  // namespace warpstep::data::spans
