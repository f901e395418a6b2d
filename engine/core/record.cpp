#include "engine/core/record.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace warpstep::record {
namespace {

constexpr std::size_t max_listeners = 4;

// One thread writes, one thread reads.
struct Ring {
  std::array<Entry, ring_entries> entries;
  alignas(64) std::atomic<std::uint64_t> head{0};  // entries written
  alignas(64) std::atomic<std::uint64_t> tail{0};  // entries read
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<bool> abandoned{false};  // its thread has ended
  std::uint32_t thread = 0;
};

// Never destroyed: threads may end after main() has.
struct Registry {
  std::mutex mutex;
  std::map<std::pair<std::string, Kind>, std::uint32_t> ids;
  std::vector<NameInfo> names;
  std::vector<Thread> threads;
  std::map<std::uint32_t, std::string> named;  // running threads by gettid()
  std::vector<std::unique_ptr<Ring>> rings;    // of running threads, or with unread entries
  std::vector<std::unique_ptr<Ring>> spare;
  std::uint64_t dropped = 0;  // by threads that have ended
};
Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}

std::array<std::atomic<const Listener*>, max_listeners> listeners{};
std::mutex listeners_mutex;
constexpr std::uint32_t one_listener = 1 << 8;  // in detail::mode

// The ring of the calling thread, created at its first entry.
struct Place {
  Ring* ring = nullptr;
  std::string name;
  ~Place() {
    if (!name.empty()) {
      Registry& all = registry();
      const std::lock_guard lock(all.mutex);
      all.named.erase(static_cast<std::uint32_t>(::gettid()));
    }
    if (ring) ring->abandoned.store(true, std::memory_order_release);
    ring = nullptr;
  }
};
thread_local Place place;

// A new thread reuses the lane of an ended thread with the same name, so workers that are restarted
// in each epoch appear as one.
std::uint32_t thread_of(Registry& all, const std::string& name, std::uint32_t system) {
  const auto is_running = [&](std::uint32_t id) {
    return std::any_of(all.rings.begin(), all.rings.end(), [&](const auto& ring) {
      return ring->thread == id && !ring->abandoned.load(std::memory_order_acquire);
    });
  };
  for (Thread& thread : all.threads) {
    if (thread.name != name || is_running(thread.id)) continue;
    thread.system = system;
    return thread.id;
  }
  const auto id = static_cast<std::uint32_t>(all.threads.size());
  all.threads.push_back({id, system, name});
  return id;
}

Ring* open_ring() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::unique_ptr<Ring> ring;
  if (all.spare.empty()) {
    ring = std::make_unique<Ring>();
  } else {
    ring = std::move(all.spare.back());
    all.spare.pop_back();
  }
  const auto system = static_cast<std::uint32_t>(::gettid());
  std::string name = place.name;
  if (name.empty()) name = ::getpid() == ::gettid() ? "main" : "thread " + std::to_string(system);
  ring->thread = thread_of(all, name, system);
  place.ring = ring.get();
  all.rings.push_back(std::move(ring));
  return place.ring;
}

}  // namespace

namespace detail {

std::atomic<std::uint32_t> mode{0};

void push(const Entry& entry) noexcept {
  Ring* ring = place.ring;
  if (!ring) {
    try {
      ring = open_ring();
    } catch (...) {
      return;  // without memory for a ring the thread continues unrecorded
    }
  }
  const std::uint64_t head = ring->head.load(std::memory_order_relaxed);
  if (head - ring->tail.load(std::memory_order_acquire) == ring_entries) {
    ring->dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  ring->entries[head % ring_entries] = entry;
  ring->head.store(head + 1, std::memory_order_release);
}

void notify_begin(std::uint32_t name, Kind kind, std::uint64_t arg) noexcept {
  for (const auto& slot : listeners)
    if (const Listener* listener = slot.load(std::memory_order_acquire))
      listener->begin(name, kind, arg);
}

void notify_end(Kind kind) noexcept {
  for (auto slot = listeners.rbegin(); slot != listeners.rend(); ++slot)
    if (const Listener* listener = slot->load(std::memory_order_acquire)) listener->end(kind);
}

}  // namespace detail

Name::Name(std::string_view text, Kind kind) : kind_(kind) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto [at, is_new] =
      all.ids.try_emplace({std::string(text), kind}, static_cast<std::uint32_t>(all.names.size()));
  if (is_new) all.names.push_back({std::string(text), kind});
  id_ = at->second;
}

void Span::begin(const Name& name, std::uint64_t arg, std::uint32_t mode) noexcept {
  mode_ = mode;
  entry_ = {0, 0, arg, name.id(), name.kind()};
  if (mode_ != detail::keeps) detail::notify_begin(entry_.name, entry_.kind, arg);
  entry_.begin_ns = now_ns();
}

void Span::end() noexcept {
  entry_.end_ns = now_ns();
  if (mode_ != detail::keeps) detail::notify_end(entry_.kind);
  if (mode_ & detail::keeps) detail::push(entry_);
}

bool add_listener(const Listener& listener) {
  const std::lock_guard lock(listeners_mutex);
  for (auto& slot : listeners) {
    if (slot.load() != nullptr) continue;
    slot.store(&listener, std::memory_order_release);
    detail::mode.fetch_add(one_listener);
    return true;
  }
  return false;
}

void remove_listener(const Listener& listener) {
  const std::lock_guard lock(listeners_mutex);
  for (auto& slot : listeners) {
    if (slot.load() != &listener) continue;
    slot.store(nullptr);
    detail::mode.fetch_sub(one_listener);
  }
}

void name_thread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  place.name = name;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.named[static_cast<std::uint32_t>(::gettid())] = name;
  if (place.ring) all.threads[place.ring->thread].name = name;
}

void keep_entries(bool on) {
  if (on)
    detail::mode.fetch_or(detail::keeps);
  else
    detail::mode.fetch_and(~detail::keeps);
}

std::vector<Thread> threads() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.threads;
}

std::map<std::uint32_t, std::string> named_threads() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.named;
}

std::vector<NameInfo> names(std::size_t from) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  from = std::min(from, all.names.size());
  return {all.names.begin() + static_cast<std::ptrdiff_t>(from), all.names.end()};
}

void drain(const std::function<void(std::uint32_t, std::span<const Entry>)>& take) {
  Registry& all = registry();
  std::vector<Ring*> rings;
  {
    const std::lock_guard lock(all.mutex);
    for (const auto& ring : all.rings) rings.push_back(ring.get());
  }
  for (Ring* ring : rings) {
    const std::uint64_t head = ring->head.load(std::memory_order_acquire);
    for (std::uint64_t at = ring->tail.load(std::memory_order_relaxed); at < head;) {
      const std::size_t first = at % ring_entries;
      const std::size_t count = std::min<std::uint64_t>(head - at, ring_entries - first);
      take(ring->thread, std::span(ring->entries).subspan(first, count));
      at += count;
      ring->tail.store(at, std::memory_order_release);
    }
  }
  const std::lock_guard lock(all.mutex);
  for (auto& ring : all.rings) {
    if (!ring->abandoned.load(std::memory_order_acquire) || ring->head != ring->tail) continue;
    all.dropped += ring->dropped.exchange(0);
    ring->head = ring->tail = 0;
    ring->abandoned = false;
    all.spare.push_back(std::move(ring));
  }
  std::erase(all.rings, nullptr);
}

std::uint64_t dropped() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::uint64_t sum = all.dropped;
  for (const auto& ring : all.rings) sum += ring->dropped.load(std::memory_order_relaxed);
  return sum;
}

}  // namespace warpstep::record
