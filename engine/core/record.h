// Trace events: named spans of time, marks and counters, written to one ring per thread, which the
// profiler reads. When recording is off, a span costs one load and two branches.
//
//   static const record::Name name{"checkpoint"};   // once
//   const record::Span span{name, bytes};           // from here to the end of the scope
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/clock.h"

namespace warpstep::record {

// The kind of a name decides how its entries are analysed.
enum class Kind : std::uint16_t {
  range,     // a user's, or of no other kind
  call,      // a call of a program; arg: its index
  wait,      // the trainer's thread waits for data; arg: the batch, counted through all epochs
  sync,      // a thread waits for the device
  host_api,  // a library's or driver's function
  sample,    // a loader worker makes a row; arg: its ticket, batch * rows + row
  stage,     // a stage of a sample: "read" (arg: bytes), "decode", ...
  idle,      // a loader worker has nothing to do
  copy,      // between host and device, as the host sees it; arg: bytes
  mark,      // an instant; the name defines arg
  counter,   // arg: the value
  kernel,    // on a device; never the kind of an entry
  metric,    // of the machine, sampled; never the kind of an entry
};

// Interned for the life of the process; equal texts of the same kind share one id.
class Name {
 public:
  explicit Name(std::string_view text, Kind kind = Kind::range);
  // `is_detail`: hundreds of such spans per step or evaluation, although their kind says otherwise.
  Name(std::string_view text, Kind kind, bool is_detail);

  std::uint32_t id() const { return id_; }
  Kind kind() const { return kind_; }
  bool is_detail() const { return is_detail_; }

 private:
  std::uint32_t id_;
  Kind kind_;
  bool is_detail_;
};

struct Entry {
  std::uint64_t begin_ns = 0, end_ns = 0;  // equal for marks and counters; engine/core/clock.h
  std::uint64_t arg = 0;
  std::uint32_t name = 0;
  Kind kind = Kind::range;
  std::uint16_t reserved = 0;
};
static_assert(sizeof(Entry) == 32);

// Called at the begin and end of every span, whether or not entries are kept: NVTX, CUPTI.
struct Listener {
  void (*begin)(std::uint32_t name, Kind kind, std::uint64_t arg) noexcept = nullptr;
  void (*end)(Kind kind) noexcept = nullptr;
};
// `listener` must live as long as the process. At most four; false when there is no room.
bool add_listener(const Listener& listener);
void remove_listener(const Listener& listener);

namespace detail {
// Bit 0: entries are kept, bit 1: also the details. Bits 8 and up: the number of listeners.
extern std::atomic<std::uint32_t> mode;
constexpr std::uint32_t keeps = 1, keeps_details = 2;
void push(const Entry& entry) noexcept;
void notify_begin(std::uint32_t name, Kind kind, std::uint64_t arg) noexcept;
void notify_end(Kind kind) noexcept;
}  // namespace detail

// Whether entries are being kept.
inline bool is_on() {
  return (detail::mode.load(std::memory_order_relaxed) & detail::keeps) != 0;
}
// Also those of the kinds call, sample and stage: hundreds per step.
inline bool has_details() {
  return (detail::mode.load(std::memory_order_relaxed) & detail::keeps_details) != 0;
}
constexpr bool is_detail(Kind kind) {
  return kind == Kind::call || kind == Kind::sample || kind == Kind::stage;
}
// A detail of this length that note() is given is kept anyway: it may be why a step was slow.
inline constexpr std::uint64_t long_detail_ns = 200'000;

// Records the time from its construction to the end of its scope, or to end().
class Span {
 public:
  explicit Span(const Name& name, std::uint64_t arg = 0) noexcept {
    const std::uint32_t mode = detail::mode.load(std::memory_order_relaxed);
    if (mode != 0 && (mode != detail::keeps || !name.is_detail())) [[unlikely]]
      begin(name, arg, mode);
  }
  // From a time that the caller has just read: reading the clock is most of a span's cost.
  Span(const Name& name, std::uint64_t arg, std::uint64_t begin_ns) noexcept {
    const std::uint32_t mode = detail::mode.load(std::memory_order_relaxed);
    if (mode != 0 && (mode != detail::keeps || !name.is_detail())) [[unlikely]]
      begin(name, arg, mode, begin_ns);
  }
  ~Span() {
    if (mode_ != 0) [[unlikely]]
      finish(now_ns());
  }
  // Ends it now, before the end of its scope, at a time that the caller has just read.
  void end(std::uint64_t end_ns) noexcept {
    if (mode_ != 0) [[unlikely]]
      finish(end_ns);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void begin(const Name& name, std::uint64_t arg, std::uint32_t mode,
             std::uint64_t begin_ns = 0) noexcept;  // 0: now
  void finish(std::uint64_t end_ns) noexcept;

  std::uint32_t mode_ = 0;
  union {          // filled by begin(): where mode_ is 0 it costs nothing
    Entry entry_;  // NOLINT(readability-identifier-naming): private, as its union is
  };
};

// Records a span that has ended.
inline void note(const Name& name, std::uint64_t begin_ns, std::uint64_t end_ns,
                 std::uint64_t arg = 0) noexcept {
  if (!is_on()) return;
  if (name.is_detail() && !has_details() && end_ns - begin_ns < long_detail_ns) return;
  detail::push({begin_ns, end_ns, arg, name.id(), name.kind()});
}
// Records a span that ends now; returns its length in ns.
inline std::uint64_t note_since(const Name& name, std::uint64_t begin_ns,
                                std::uint64_t arg = 0) noexcept {
  const std::uint64_t end_ns = now_ns();
  note(name, begin_ns, end_ns, arg);
  return end_ns - begin_ns;
}
// Records an instant or a counter's value.
inline void mark(const Name& name, std::uint64_t arg = 0) noexcept {
  if (!is_on()) return;
  const std::uint64_t now = now_ns();
  detail::push({now, now, arg, name.id(), name.kind()});
}

// Names the calling thread with a text that is not empty, for the system's tools (first 15
// characters) and for the profiler.
void name_thread(const std::string& name);

// ---- The profiler's side: only one reader at a time.

// A thread's ring overwrites its oldest entries, and is read in two ways: drain() takes all entries
// from the moment at which keep(Keep::all) began, and counts those it came too late for; copy()
// takes the newest and leaves them there.
enum class Keep : std::uint8_t {
  nothing,
  coarse,    // without details, but for long ones
  detailed,  // all, for copy()
  all,       // all, for drain()
};
void keep(Keep what);
inline void keep_entries(bool on) {
  keep(on ? Keep::all : Keep::nothing);
}

struct Thread {
  std::uint32_t id = 0;      // counted from 0 in the order of their first entries
  std::uint32_t system = 0;  // gettid()
  std::string name;
};
std::vector<Thread> threads();  // all that ever recorded an entry
// The running threads that have a name, by gettid(), whether or not they recorded anything.
std::map<std::uint32_t, std::string> named_threads();

struct NameInfo {
  std::string text;
  Kind kind = Kind::range;
};
std::vector<NameInfo> names(std::size_t from = 0);  // by id

// Passes on all entries since the last call; those of one thread come in the order in which they
// ended. `take` runs under the lock of names and threads, so it must not ask for or add any.
void drain(const std::function<void(std::uint32_t thread, std::span<const Entry>)>& take);
// Entries lost so far because drain() came too late.
std::uint64_t dropped();
// Passes on the entries that end after `since_ns` and are still in the rings; from any thread, also
// while others record. Returns when the oldest entry ended that all threads' rings still have:
// `since_ns` if nothing after it was overwritten.
std::uint64_t copy(std::uint64_t since_ns,
                   const std::function<void(std::uint32_t thread, std::span<const Entry>)>& take);
// Entries recorded so far, by all threads.
std::uint64_t recorded();

constexpr std::size_t ring_entries = std::size_t{1} << 14;  // 512 KiB per thread

}  // namespace warpstep::record
