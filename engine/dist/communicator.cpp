#include "engine/dist/communicator.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/core/host_name.h"

namespace warpstep {

Transport::~Transport() = default;

std::vector<int> Transport::left_peers() const {
  return {};
}

namespace {

using SteadyClock = std::chrono::steady_clock;

// Of all ranks' values that are exchanged at a time: scratch memory is bounded by it, and what is
// summed is still in a cache.
constexpr std::size_t message_bytes = std::size_t{4} << 20;
constexpr std::size_t most_bytes = std::size_t{1} << 30;  // of a message
constexpr std::size_t block = 1024;                       // values that are summed at a time

// Messages move on only while the transport is polled, so an exchange that is under way is polled
// without a pause; the core is offered to others meanwhile, as another rank may compute on it.
// After that a rank waits for one that computes, and sleeps.
constexpr auto spin_for = std::chrono::milliseconds(5);
constexpr auto device_spin_for = std::chrono::microseconds(100);  // a device needs no polls
constexpr auto sleep_for = std::chrono::microseconds(50);
constexpr auto look_every = std::chrono::milliseconds(20);  // whether a rank has ended

// `values` divided evenly among the ranks.
template <class T>
std::vector<std::span<T>> even_parts(std::span<T> values, int size) {
  std::vector<std::span<T>> parts;
  for (std::size_t r = 0, n = static_cast<std::size_t>(size); r < n; ++r) {
    const std::size_t begin = values.size() * r / n, end = values.size() * (r + 1) / n;
    parts.push_back(values.subspan(begin, end - begin));
  }
  return parts;
}

template <class T>
std::vector<std::span<T>> parts_to(std::span<T> values, Communicator::Ends ends) {
  std::vector<std::span<T>> parts;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    parts.push_back(values.subspan(begin, end - begin));
    begin = end;
  }
  return parts;
}

// Calls work(pieces) for at most `most` elements of each part at a time, to the end of all.
template <class T, class Work>
void in_pieces(std::vector<std::span<T>> parts, std::size_t most, Work work) {
  while (std::ranges::any_of(parts, [](const auto& part) { return !part.empty(); })) {
    std::vector<std::span<T>> pieces;
    for (std::span<T>& part : parts) {
      pieces.push_back(part.first(std::min(most, part.size())));
      part = part.subspan(pieces.back().size());
    }
    work(pieces);
  }
}

std::string whom(const std::vector<int>& silent) {
  return fmt::format("rank{} {}, which did not answer", silent.size() == 1 ? "" : "s",
                     fmt::join(silent, ", "));
}

template <class T>
Transport::Message message(int peer, std::span<T> values) {
  return {peer, std::as_writable_bytes(values)};
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Transport> transport, const CommunicatorOptions& options)
    : transport_(std::move(transport)),
      options_(options),
      world_(transport_->world()),
      activities_(world_.size, world_.rank) {}

// The ranks on this machine.
Communicator::Neighbours Communicator::find_neighbours() {
  std::string boot;  // tells machines of one name apart
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  const std::string here = host_name() + " " + boot;
  const std::vector<std::string> machines = gather(here);
  const auto before = machines.begin() + world_.rank;
  if (world_.local_size < 1)
    world_.local_size = static_cast<int>(std::ranges::count(machines, here));
  if (world_.local_rank < 0)
    world_.local_rank = static_cast<int>(std::count(machines.begin(), before, here));
  return {.are_all = std::ranges::count(machines, machines.front()) == world_.size,
          .is_first = std::find(machines.begin(), before, here) == before};
}

// The first rank of each machine offers its memory: one that another can reach is of its machine.
// Launchers may give each rank of a machine the local rank 0.
void Communicator::share_memory() {
  const Neighbours neighbours = find_neighbours();
  const std::vector<std::string> offers =
      gather(neighbours.is_first ? activities_.offer() : std::string());
  if (!neighbours.is_first)
    for (const std::string& offer : offers)
      if (activities_.take(offer)) break;
  if (!neighbours.are_all) return;
  auto windows = std::make_unique<Windows>(world_.size, world_.rank);
  const std::string offer = gather(world_.rank == 0 ? windows->offer() : std::string()).front();
  const bool taken = world_.rank == 0 ? !offer.empty() : windows->take(offer);
  const std::vector<std::string> answers = gather(taken ? "taken" : "");
  if (std::ranges::count(answers, "taken") == world_.size) windows_ = std::move(windows);
}

void Communicator::sum(std::span<float> values, float share) {
  sum_all(values, share);
}
void Communicator::sum(std::span<double> values, double share) {
  sum_all(values, share);
}

template <class T>
void Communicator::sum_all(std::span<T> values, T share) {
  const std::size_t most = piece_bytes() / sizeof(T);
  for (std::size_t begin = 0; begin < values.size(); begin += most) {
    const auto parts =
        even_parts(values.subspan(begin, std::min(most, values.size() - begin)), world_.size);
    sum_parts<T>(parts, share);
    gather_parts<T>(parts);
  }
}

void Communicator::sum_own(std::span<float> values, Ends ends, float share) {
  in_pieces(parts_to(values, ends),
            piece_bytes() / sizeof(float) / static_cast<std::size_t>(world_.size),
            [&](const auto& pieces) { sum_parts<float>(pieces, share); });
}

std::size_t Communicator::piece_bytes() const {
  return windows_ ? Windows::bytes : message_bytes;
}

// Each rank sums its part.
template <class T>
void Communicator::sum_parts(std::span<const std::span<T>> parts, T share) {
  const std::span<T> own = parts[static_cast<std::size_t>(world_.rank)];
  const std::vector<const T*> terms = windows_ ? shown_terms(parts) : received_terms(parts);
  for (std::size_t begin = 0; begin < own.size(); begin += block) {
    const std::size_t count = std::min(block, own.size() - begin);
    std::array<T, block> sum{};
    for (const T* term : terms)
      for (std::size_t i = 0; i < count; ++i) sum[i] += share * term[begin + i];
    std::copy_n(sum.data(), count, own.data() + begin);
  }
}

// This rank's part, of each rank: in messages from the others.
template <class T>
std::vector<const T*> Communicator::received_terms(std::span<const std::span<T>> parts) {
  const std::span<T> own = parts[static_cast<std::size_t>(world_.rank)];
  scratch_.resize(
      std::max(scratch_.size(), own.size_bytes() * static_cast<std::size_t>(world_.size)));
  std::vector<const T*> terms;
  std::vector<Transport::Message> sends, receives;
  for (int rank = 0; rank < world_.size; ++rank) {
    if (rank == world_.rank) {
      terms.push_back(own.data());
      continue;
    }
    auto* arrived =
        reinterpret_cast<T*>(scratch_.data()) + static_cast<std::size_t>(rank) * own.size();
    terms.push_back(arrived);
    receives.push_back(message(rank, std::span(arrived, own.size())));
    sends.push_back(message(rank, parts[static_cast<std::size_t>(rank)]));
  }
  exchange(sends, receives);
  return terms;
}

// The same, in the windows of the others.
template <class T>
std::vector<const T*> Communicator::shown_terms(std::span<const std::span<T>> parts) {
  windows_->begin();
  std::size_t at = 0, own_at = 0;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    if (static_cast<int>(rank) == world_.rank)
      own_at = at;
    else
      std::ranges::copy(parts[rank], reinterpret_cast<T*>(windows_->own()) + at);
    at += parts[rank].size();
  }
  exchange_windows();
  std::vector<const T*> terms;
  for (int rank = 0; rank < world_.size; ++rank)
    terms.push_back(rank == world_.rank ? parts[static_cast<std::size_t>(rank)].data()
                                        : reinterpret_cast<const T*>(windows_->of(rank)) + own_at);
  return terms;
}

// Each rank gives its part to all others.
template <class T>
void Communicator::gather_parts(std::span<const std::span<T>> parts) {
  if (windows_) {
    windows_->begin();
    std::ranges::copy(parts[static_cast<std::size_t>(world_.rank)],
                      reinterpret_cast<T*>(windows_->own()));
    exchange_windows();
    for (int rank = 0; rank < world_.size; ++rank)
      if (const std::span<T> part = parts[static_cast<std::size_t>(rank)]; rank != world_.rank)
        std::copy_n(reinterpret_cast<const T*>(windows_->of(rank)), part.size(), part.data());
    return;
  }
  std::vector<Transport::Message> sends, receives;
  for (int rank = 0; rank < world_.size; ++rank)
    if (rank != world_.rank) {
      sends.push_back(message(rank, parts[static_cast<std::size_t>(world_.rank)]));
      receives.push_back(message(rank, parts[static_cast<std::size_t>(rank)]));
    }
  exchange(sends, receives);
}

void Communicator::all_gather(std::span<std::byte> all, Ends ends) {
  gather_in_pieces(parts_to(all, ends));
}

void Communicator::all_gather(std::span<std::byte> all) {
  gather_in_pieces(even_parts(all, world_.size));
}

void Communicator::gather_in_pieces(std::vector<std::span<std::byte>> parts) {
  in_pieces(std::move(parts),
            windows_ ? Windows::bytes / static_cast<std::size_t>(world_.size) : most_bytes,
            [&](const auto& pieces) { gather_parts<std::byte>(pieces); });
}

void Communicator::broadcast(std::span<std::byte> bytes) {
  for (std::size_t begin = 0; begin < bytes.size(); begin += most_bytes) {
    const std::span<std::byte> piece =
        bytes.subspan(begin, std::min(most_bytes, bytes.size() - begin));
    std::vector<Transport::Message> sends, receives;
    if (world_.rank != 0) receives.push_back({0, piece});
    for (int rank = 1; world_.rank == 0 && rank < world_.size; ++rank)
      sends.push_back({rank, piece});
    exchange(sends, receives);
  }
}

std::vector<std::string> Communicator::gather(std::string_view mine) {
  const auto size = static_cast<std::size_t>(world_.size);
  const auto to_all = [&](auto bytes_of_rank, std::span<std::byte> own) {
    std::vector<Transport::Message> sends, receives;
    for (int rank = 0; rank < world_.size; ++rank)
      if (rank != world_.rank) {
        sends.push_back({rank, own});
        receives.push_back({rank, bytes_of_rank(static_cast<std::size_t>(rank))});
      }
    exchange(sends, receives);
  };
  std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(size, length);
  to_all([&](std::size_t rank) { return std::as_writable_bytes(std::span(&lengths[rank], 1)); },
         std::as_writable_bytes(std::span(&length, 1)));
  std::string own(mine);
  std::vector<std::string> texts(size, own);
  for (std::size_t rank = 0; rank < size; ++rank) texts[rank].resize(lengths[rank]);
  to_all([&](std::size_t rank) { return std::as_writable_bytes(std::span(texts[rank])); },
         std::as_writable_bytes(std::span(own)));
  return texts;
}

void Communicator::abort(int code) {
  transport_->abort(code);
  std::_Exit(code);
}

void Communicator::exchange(std::span<const Transport::Message> sends,
                            std::span<const Transport::Message> receives) {
  transport_->start(sends, receives);
  wait([&] { return transport_->done(); }, [&] { return transport_->silent_peers(); });
}

// A rank that has ended is noticed here: shared memory stays as it left it.
void Communicator::exchange_windows() {
  windows_->give();
  const auto since = SteadyClock::now();
  auto next_look = since + look_every;
  wait(
      [&] {
        if (windows_->all_given()) return true;
        if (SteadyClock::now() < next_look) return false;
        next_look = SteadyClock::now() + look_every;
        if (another_ended() && !windows_->all_given()) give_up(since, whom(windows_->silent()));
        return false;
      },
      [&] { return windows_->silent(); });
}

template <class Done, class Silent>
void Communicator::wait(Done done, Silent silent) {
  const auto since = SteadyClock::now();
  activities_.set_waiting(true);
  while (!done())
    if (await(since, spin_for) && !done()) give_up(since, whom(silent()));
  activities_.set_waiting(false);
  exchanged_ += SteadyClock::now() - since;
}

void Communicator::wait_until(const std::function<bool()>& done) const {
  const auto since = SteadyClock::now();
  // The device waits for a rank that has ended as for one that is late.
  const auto is_left = [&] {
    return SteadyClock::now() - since > options_.patience && look_due() && another_ended();
  };
  while (!done())
    if ((await(since, device_spin_for) || is_left()) && !done())
      give_up(since, "an exchange between the GPUs of all ranks");
}

bool Communicator::is_to_end() const {
  return options_.stop != nullptr && *options_.stop;
}

// At most every 20 ms, of all threads that wait.
bool Communicator::look_due() const {
  const auto now = SteadyClock::now();
  auto next = next_look_.load();
  return now >= next && next_look_.compare_exchange_strong(next, now + look_every);
}

// Called again and again while a rank waits, for messages or for what a device computes; true: for
// too long.
bool Communicator::await(SteadyClock::time_point since, SteadyClock::duration spin) const {
  const auto waited = SteadyClock::now() - since;
  if (waited < spin) {
    sched_yield();
    return false;
  }
  if (waited > options_.timeout) return true;
  if (is_to_end() && waited > options_.patience && look_due()) {
    if (another_ended()) return true;
    // Of ranks that are not known one may have ended: a job that is to end does not wait for long,
    // except where all have come together, and one of them may write a large checkpoint.
    if (waited > options_.patience_with_unknown && !activities_.knows_all() &&
        !activities_.own().is_agreed())
      return true;
  }
  std::this_thread::sleep_for(sleep_for);
  return false;
}

void Communicator::give_up(SteadyClock::time_point since, const std::string& awaited) const {
  fail<PeerError>("waited {:.1f} s {} for {}{}: {}",
                  std::chrono::duration<double>(SteadyClock::now() - since).count(),
                  activities_.own().place(), awaited, is_to_end() ? ", and the job is ending" : "",
                  activities());
}

bool Communicator::another_ended() const {
  return activities_.another_ended() || !transport_->left_peers().empty();
}

std::string Communicator::activities_at_an_end() const {
  const auto until = SteadyClock::now() + options_.patience;
  while (!another_ended() && SteadyClock::now() < until) std::this_thread::sleep_for(look_every);
  return activities();
}

std::string Communicator::activities() const {
  std::string text = activities_.describe();
  for (const int rank : transport_->left_peers())
    if (!activities_.knows(rank)) text += fmt::format("; rank {} has left the job", rank);
  return text;
}

namespace {

int number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}

}  // namespace

std::string launcher() {
  const bool has_place = std::getenv("RANK") && std::getenv("MASTER_ADDR");
  const char* const own = has_place && number("WORLD_SIZE") > 1 ? "env" : "";
  // torchrun's variables are nearer than those of an srun that started torchrun on each machine.
  if (has_place && std::getenv("TORCHELASTIC_RUN_ID")) return own;
  // SLURM_NTASKS is also set in the shell of an allocation, which is no rank.
  if (number("OMPI_COMM_WORLD_SIZE") > 1 || number("PMI_SIZE") > 1 ||
      (std::getenv("PMIX_RANK") && number("SLURM_STEP_NUM_TASKS") > 1))
    return "mpi";
  return own;
}

// SLURM_PROCID is also set in a batch script, and both in the processes that a task starts as
// ranks.
int tasks_without_pmi() {
  for (const char* of_ranks :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "TORCHELASTIC_RUN_ID"})
    if (std::getenv(of_ranks)) return 0;
  const int tasks = number("SLURM_STEP_NUM_TASKS");
  return std::getenv("SLURM_PROCID") && tasks > 1 ? tasks : 0;
}

std::unique_ptr<Transport> open_mpi() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&open_mpi), &self) == 0) self.dli_fname = "";
  const auto path = std::filesystem::path(self.dli_fname).parent_path() / "libwarpstep_mpi.so";
  if (!std::filesystem::exists(path))
    fail<RankError>(
        "this process was started as a rank of an MPI job, but Warpstep was built without MPI ({} "
        "not found): install Open MPI's headers (libopenmpi-dev) and build again, or give --dist "
        "none to train in this process alone",
        path.string());
  return load_transport(path);
}

std::unique_ptr<Transport> load_transport(const std::filesystem::path& path) {
  // Open MPI loads components that look for its symbols in the program.
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!module) fail<RankError>("{} does not load: {}", path.filename().string(), dlerror());
  const auto entry = reinterpret_cast<Transport* (*)()>(dlsym(module, "warpstep_transport"));
  if (!entry) fail<RankError>("{} has no transport: {}", path.string(), dlerror());
  const std::string why_not =
      other_build(module, path, "MPI module", "warpstep_transport_build", transport_interface());
  if (!why_not.empty()) fail<RankError>("{}", why_not);
  return std::unique_ptr<Transport>(entry());
}

}  // namespace warpstep
