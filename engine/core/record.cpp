#include "engine/core/record.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <ranges>
#include <utility>

namespace warpstep::record {
namespace {

constexpr std::size_t max_listeners = 4;

// An entry in words that may be read while they are overwritten; the reader then discards them.
constexpr std::size_t words = sizeof(Entry) / sizeof(std::uint64_t);
using Slot = std::array<std::atomic<std::uint64_t>, words>;

// One thread writes, overwriting the oldest. `begun` is raised before a slot is written and `head`
// after it: who has read a slot of entry i, and then finds that begun <= i + ring_entries, read it
// whole. The words are stored with release and loaded with acquire, which orders them after `begun`
// without a fence, and costs nothing on x86.
struct Ring {
  std::array<Slot, ring_entries> slots;
  alignas(64) std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> head{0};              // entries written
  alignas(64) std::atomic<std::uint64_t> tail{0};  // entries that drain() has read
  std::atomic<std::uint64_t> first{0};             // for drain(): earlier ones are not wanted
  std::atomic<std::uint64_t> last{0};              // for drain(): of the last time of Keep::all
  std::atomic<bool> abandoned{false};              // its thread has ended
  std::uint32_t thread = 0;

  void read(std::uint64_t from, std::uint64_t to, std::vector<Entry>& entries) const;
};

// Appends the entries from..to (excluded) that were not overwritten: the newest of them.
void Ring::read(std::uint64_t from, std::uint64_t to, std::vector<Entry>& entries) const {
  const std::size_t before = entries.size();
  for (std::uint64_t at = from; at < to; ++at) {
    std::array<std::uint64_t, words> copy{};
    for (std::size_t w = 0; w < words; ++w)
      copy[w] = slots[at % ring_entries][w].load(std::memory_order_acquire);
    entries.push_back(std::bit_cast<Entry>(copy));
  }
  const std::uint64_t now_begun = begun.load(std::memory_order_acquire);
  const std::uint64_t whole = now_begun > ring_entries ? now_begun - ring_entries : 0;
  if (whole <= from) return;
  const auto torn = static_cast<std::ptrdiff_t>(std::min(whole, to) - from);
  const auto first_read = entries.begin() + static_cast<std::ptrdiff_t>(before);
  entries.erase(first_read, first_read + torn);
}

// Never destroyed: threads may end after main() has.
struct Registry {
  std::mutex mutex;
  std::map<std::pair<std::string, Kind>, std::uint32_t> ids;
  std::vector<NameInfo> names;
  std::vector<Thread> threads;
  std::map<std::uint32_t, std::string> named;  // running threads by gettid()
  std::vector<std::unique_ptr<Ring>> rings;    // of running threads, or with unread entries
  std::vector<std::unique_ptr<Ring>> spare;
  std::uint64_t dropped = 0;
  std::uint64_t recorded = 0;  // by rings that were given back
};
Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}

std::array<std::atomic<const Listener*>, max_listeners> listeners{};
std::mutex listeners_mutex;
constexpr std::uint32_t drains = 4, one_listener = 1 << 8;  // in detail::mode

// A thread that holds a lock at a fork does not exist in the new process, which would wait for it
// for ever: so the thread that forks holds them.
void lock_before_fork() {
  registry().mutex.lock();
  listeners_mutex.lock();
}
void unlock_after_fork() {
  listeners_mutex.unlock();
  registry().mutex.unlock();
}
[[maybe_unused]] const int forks_whole =
    pthread_atfork(lock_before_fork, unlock_after_fork, unlock_after_fork);

// Of the calling thread: its ring, created at its first entry, and whether it is in `named`.
struct Place {
  Ring* ring = nullptr;
  bool is_named = false;
};
thread_local constinit Place place;

void leave(void*) {
  if (place.is_named) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.named.erase(static_cast<std::uint32_t>(::gettid()));
  }
  if (place.ring) place.ring->abandoned.store(true, std::memory_order_release);
  place = {};
}

// leave() will run when the calling thread ends. As a destructor of `place` it would need memory
// for each thread: where there is none, glibc ends the process.
void leave_at_end() {
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    constexpr pthread_key_t none = std::numeric_limits<pthread_key_t>::max();
    return pthread_key_create(&made, leave) == 0 ? made : none;
  }();
  pthread_setspecific(key, &place);
}

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

// Of threads that have ended some rings stay, with what happened before.
constexpr std::size_t most_abandoned = 8;

void give_back(Registry& all, std::unique_ptr<Ring> ring) {
  all.recorded += ring->head.load(std::memory_order_relaxed);
  ring->begun = ring->head = ring->tail = ring->first = ring->last = 0;
  ring->abandoned = false;
  all.spare.push_back(std::move(ring));
}

void give_back_abandoned(Registry& all) {
  const auto is_abandoned = [](const std::unique_ptr<Ring>& ring) {
    return ring->abandoned.load(std::memory_order_acquire);
  };
  auto count = static_cast<std::size_t>(std::ranges::count_if(all.rings, is_abandoned));
  for (auto& ring : all.rings) {
    if (count <= most_abandoned) break;
    if (!is_abandoned(ring)) continue;
    const std::uint64_t from = std::max(ring->tail.load(), ring->first.load());
    if ((detail::mode & drains) != 0 && from < ring->head) continue;  // drain() wants them
    give_back(all, std::move(ring));
    --count;
  }
  std::erase(all.rings, nullptr);
}

Ring* open_ring() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  give_back_abandoned(all);
  std::unique_ptr<Ring> ring;
  if (all.spare.empty()) {
    ring = std::make_unique<Ring>();
  } else {
    ring = std::move(all.spare.back());
    all.spare.pop_back();
  }
  const auto system = static_cast<std::uint32_t>(::gettid());
  std::string name;
  if (const auto named = all.named.find(system); place.is_named && named != all.named.end())
    name = named->second;
  if (name.empty()) name = ::getpid() == ::gettid() ? "main" : "thread " + std::to_string(system);
  ring->thread = thread_of(all, name, system);
  leave_at_end();
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
  const auto from = std::bit_cast<std::array<std::uint64_t, words>>(entry);
  Slot& slot = ring->slots[head % ring_entries];
  ring->begun.store(head + 1, std::memory_order_relaxed);
  for (std::size_t w = 0; w < words; ++w) slot[w].store(from[w], std::memory_order_release);
  ring->head.store(head + 1, std::memory_order_release);
}

void notify_begin(std::uint32_t name, Kind kind, std::uint64_t arg) noexcept {
  for (const auto& slot : listeners)
    if (const Listener* listener = slot.load(std::memory_order_acquire))
      listener->begin(name, kind, arg);
}

void notify_end(Kind kind) noexcept {
  for (const auto& slot : listeners | std::views::reverse)
    if (const Listener* listener = slot.load(std::memory_order_acquire)) listener->end(kind);
}

}  // namespace detail

Name::Name(std::string_view text, Kind kind) : Name(text, kind, record::is_detail(kind)) {}

Name::Name(std::string_view text, Kind kind, bool is_detail) : kind_(kind), is_detail_(is_detail) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto [at, is_new] =
      all.ids.try_emplace({std::string(text), kind}, static_cast<std::uint32_t>(all.names.size()));
  if (is_new) all.names.push_back({std::string(text), kind});
  id_ = at->second;
}

void Span::begin(const Name& name, std::uint64_t arg, std::uint32_t mode,
                 std::uint64_t begin_ns) noexcept {
  mode_ = mode & (detail::keeps | ~(one_listener - 1));
  if (name.is_detail() && (mode & detail::keeps_details) == 0) mode_ &= ~detail::keeps;
  if (mode_ == 0) return;
  std::construct_at(&entry_, Entry{0, 0, arg, name.id(), name.kind()});
  if (mode_ != detail::keeps) detail::notify_begin(entry_.name, entry_.kind, arg);
  entry_.begin_ns = begin_ns != 0 ? begin_ns : now_ns();
}

void Span::finish(std::uint64_t end_ns) noexcept {
  entry_.end_ns = end_ns;
  if (mode_ != detail::keeps) detail::notify_end(entry_.kind);
  if (mode_ & detail::keeps) detail::push(entry_);
  mode_ = 0;
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
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  leave_at_end();
  try {
    all.named[static_cast<std::uint32_t>(::gettid())] = name;
    place.is_named = true;
    if (place.ring) all.threads[place.ring->thread].name = name;
  } catch (const std::bad_alloc&) {  // reports then name it by its number
  }
}

void keep(Keep what) {
  constexpr std::uint32_t all_bits = detail::keeps | detail::keeps_details | drains;
  constexpr std::array<std::uint32_t, 4> bits{0, detail::keeps,
                                              detail::keeps | detail::keeps_details, all_bits};
  if (what == Keep::all && (detail::mode.load() & drains) == 0) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    // Where drain() has not come since the last Keep::all it takes what is between, too.
    for (const auto& ring : all.rings)
      if (ring->tail.load() >= ring->last.load()) ring->first.store(ring->head.load());
  } else if (what != Keep::all && (detail::mode.load() & drains) != 0) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    for (const auto& ring : all.rings) ring->last.store(ring->head.load());
  }
  // Bits are set before others are cleared, and never all of them in between.
  const std::uint32_t wanted = bits[static_cast<std::size_t>(what)];
  if ((detail::mode.load() & all_bits) == wanted) return;
  detail::mode.fetch_or(wanted);
  detail::mode.fetch_and(~(all_bits & ~wanted));
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
  // A thread that begins gives rings of ended ones back, which must not happen to one that is read.
  const std::lock_guard lock(all.mutex);
  std::vector<Entry> entries;
  for (const auto& ring : all.rings) {
    const std::uint64_t head = ring->head.load(std::memory_order_acquire);
    const std::uint64_t wanted = std::max(ring->tail.load(), ring->first.load());
    if (wanted >= head) continue;
    entries.clear();
    ring->read(std::max(wanted, head > ring_entries ? head - ring_entries : 0), head, entries);
    all.dropped += head - wanted - entries.size();
    if (!entries.empty()) take(ring->thread, entries);
    ring->tail.store(head);
  }
  // Without a recorder nobody asks for what ended threads did before.
  for (auto& ring : all.rings) {
    if (!ring->abandoned.load(std::memory_order_acquire) || ring->head > ring->tail) continue;
    if ((detail::mode.load() & detail::keeps) == 0) give_back(all, std::move(ring));
  }
  std::erase(all.rings, nullptr);
  give_back_abandoned(all);
}

std::uint64_t copy(std::uint64_t since_ns,
                   const std::function<void(std::uint32_t, std::span<const Entry>)>& take) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);  // rings are not given back meanwhile
  std::uint64_t complete_ns = since_ns;
  std::vector<Entry> entries;
  for (const auto& ring : all.rings) {
    std::uint64_t block = 512;
    const std::uint64_t head = ring->head.load(std::memory_order_acquire);
    const std::uint64_t oldest = head > ring_entries ? head - ring_entries : 0;
    // From the newest, which is as much as a short time needs.
    std::uint64_t from = head;
    entries.clear();
    do {
      from = head - oldest > block ? head - block : oldest;
      block *= 2;
      entries.clear();
      ring->read(from, head, entries);
    } while (from > oldest && (entries.empty() || entries.front().end_ns > since_ns));
    const bool is_cut = oldest > 0 && !entries.empty() && entries.front().end_ns > since_ns;
    if (is_cut) complete_ns = std::max(complete_ns, entries.front().end_ns);
    const auto first =
        std::ranges::find_if(entries, [&](const Entry& entry) { return entry.end_ns > since_ns; });
    if (first != entries.end()) take(ring->thread, std::span(first, entries.end()));
  }
  return complete_ns;
}

std::uint64_t recorded() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::uint64_t sum = all.recorded;
  for (const auto& ring : all.rings) sum += ring->head.load(std::memory_order_relaxed);
  return sum;
}

std::uint64_t dropped() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.dropped;
}

}  // namespace warpstep::record
