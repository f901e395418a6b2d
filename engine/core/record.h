// What the profiler is told while a program runs: named spans of time, counters and marks, a ring a
// thread. Told nothing to, it costs a load and a branch.
//
//   static const record::Name name{"checkpoint"};   // once
//   const record::Span span{name, bytes};           // from here to the end of the scope
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/clock.h"

namespace warpstep::record {

// What a name stands for; decides how its entries are analysed.
enum class Kind : std::uint16_t {
  range,     // of a user's, or of no other kind
  call,      // of a program; arg: its index
  wait,      // of the trainer's thread for data; arg: the batch, counted through all epochs
  sync,      // of a thread for the device
  host_api,  // a library's or driver's function
  sample,    // a loader worker makes a row; arg: its ticket, batch * rows + row
  stage,     // of a sample: "read", "decode", ...
  idle,      // a loader worker has nothing to do
  copy,      // between host and device, as the host sees it; arg: bytes
  mark,      // an instant; arg as the name says
  counter,   // arg: the value
  kernel,    // of a device; not of entries
  metric,    // of the machine, sampled; not of entries
};

// Interned for the life of the process; equal texts of one kind are one name.
class Name {
 public:
  explicit Name(std::string_view text, Kind kind = Kind::range);

  std::uint32_t id() const { return id_; }
  Kind kind() const { return kind_; }

 private:
  std::uint32_t id_;
  Kind kind_;
};

struct Entry {
  std::uint64_t begin_ns = 0, end_ns = 0;  // equal for marks and counters; engine/core/clock.h
  std::uint64_t arg = 0;
  std::uint32_t name = 0;
  Kind kind = Kind::range;
  std::uint16_t reserved = 0;
};
static_assert(sizeof(Entry) == 32);

// Somebody else who wants to know of spans when they begin and end: NVTX, CUPTI.
struct Listener {
  void (*begin)(std::uint32_t name, Kind kind, std::uint64_t arg) noexcept = nullptr;
  void (*end)(Kind kind) noexcept = nullptr;
};
// `listener` must stay for the life of the process. At most four; more are refused: false.
bool add_listener(const Listener& listener);
void remove_listener(const Listener& listener);

namespace detail {
// Bit 0: entries are kept. Bits 8 and up: the number of listeners.
extern std::atomic<std::uint32_t> mode;
constexpr std::uint32_t keeps = 1;
void push(const Entry& entry) noexcept;
void tell_begin(std::uint32_t name, Kind kind, std::uint64_t arg) noexcept;
void tell_end(Kind kind) noexcept;
}  // namespace detail

// Whether entries are kept now.
inline bool is_on() {
  return (detail::mode.load(std::memory_order_relaxed) & detail::keeps) != 0;
}

// The scope's time, under a name.
class Span {
 public:
  explicit Span(const Name& name, std::uint64_t arg = 0) noexcept {
    const std::uint32_t mode = detail::mode.load(std::memory_order_relaxed);
    if (mode != 0) [[unlikely]]
      begin(name, arg, mode);
  }
  ~Span() {
    if (mode_ != 0) [[unlikely]]
      end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void begin(const Name& name, std::uint64_t arg, std::uint32_t mode) noexcept;
  void end() noexcept;

  std::uint32_t mode_ = 0;
  Entry entry_;
};

// A span that is over.
inline void note(const Name& name, std::uint64_t begin_ns, std::uint64_t end_ns,
                 std::uint64_t arg = 0) noexcept {
  if (is_on()) detail::push({begin_ns, end_ns, arg, name.id(), name.kind()});
}
// A span that ends now; how long it took.
inline std::uint64_t note_since(const Name& name, std::uint64_t begin_ns) noexcept {
  const std::uint64_t end_ns = now_ns();
  note(name, begin_ns, end_ns);
  return end_ns - begin_ns;
}
// An instant or a counter's value.
inline void mark(const Name& name, std::uint64_t arg = 0) noexcept {
  if (!is_on()) return;
  const std::uint64_t now = now_ns();
  detail::push({now, now, arg, name.id(), name.kind()});
}

// The calling thread's name, for the system's tools (15 characters of it) and for the profiler.
void name_thread(const std::string& name);

// ---- The profiler's side: one reader at a time.

void keep_entries(bool on);

struct Thread {
  std::uint32_t id = 0;      // counted from 0 in the order of their first entries
  std::uint32_t system = 0;  // gettid()
  std::string name;
};
std::vector<Thread> threads();  // all that ever had entries

struct NameInfo {
  std::string text;
  Kind kind = Kind::range;
};
std::vector<NameInfo> names(std::size_t from = 0);  // by id

// Gives all entries that threads have made since the last call, a thread's in the order in which
// they ended.
void drain(const std::function<void(std::uint32_t thread, std::span<const Entry>)>& take);
// Entries lost so far because a thread's ring was full.
std::uint64_t dropped();

constexpr std::size_t ring_entries = std::size_t{1} << 14;  // 512 KiB a thread

}  // namespace warpstep::record
