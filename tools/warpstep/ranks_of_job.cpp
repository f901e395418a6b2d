#include "tools/warpstep/ranks_of_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "data/formats/cached.h"
#include "engine/core/checksum.h"
#include "engine/core/cpus.h"
#include "engine/core/host_name.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "engine/core/version.h"
#include "engine/dist/tcp.h"
#include "profiler/analysis/compare_statistics.h"
#include "profiler/sources/sampler_proc.h"
#include "tools/warpstep/fitting.h"
#include "tools/warpstep/profiling.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

// This rank among those that run on exactly its CPUs, by the same --pin-cpus: launchers may
// give each its own.
CpuShare share_of_cpus(Communicator& communicator, const std::string& pin_cpus) {
  const std::string mine =
      fmt::format("{} {} {}", host_name(), text_of_cpus(allowed_cpus()), pin_cpus);
  const std::vector<std::string> all = communicator.gather(mine);
  const auto before = all.begin() + communicator.world().rank;
  return {.index = static_cast<int>(std::count(all.begin(), before, mine)),
          .count = static_cast<int>(std::ranges::count(all, mine))};
}

// The other ranks that may run on some of this rank's CPUs.
std::vector<profiler::Sibling> siblings_of(Communicator& communicator) {
  std::error_code none;
  const std::string boot = profiler::first_line("/proc/sys/kernel/random/boot_id"),
                    space = std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
  // A process has the same number in all of one namespace of a running machine.
  const std::string numbers = boot.empty() || space.empty() ? "" : boot + " " + space;
  const CpuSet mine = allowed_cpus();
  const Json place{{"numbers", numbers}, {"process", ::getpid()}, {"cpus", mine}};
  std::vector<profiler::Sibling> siblings;
  for (const std::string& text : communicator.gather(printed(place))) {
    const Json other = parse_json<Json>(text, {});
    const auto process = other.at("process").get<int>();
    if (numbers.empty() || other.at("numbers") != numbers || process == ::getpid()) continue;
    const auto cpus = other.at("cpus").get<CpuSet>();
    const auto shared =
        std::ranges::count_if(cpus, [&](int cpu) { return std::ranges::binary_search(mine, cpu); });
    if (shared > 0)
      siblings.push_back({process, static_cast<double>(shared) / static_cast<double>(cpus.size())});
  }
  return siblings;
}

std::unique_ptr<Transport> connect_ranks(std::chrono::milliseconds timeout) {
  std::optional<TcpOptions> place = tcp_options_of_environment();
  if (!place)
    fail<UsageError>("--dist env needs RANK, WORLD_SIZE and MASTER_ADDR, as torchrun sets them");
  place->timeout = timeout;
  const std::jthread note([&place](const std::stop_token& connected) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    if (!std::condition_variable_any().wait_for(lock, connected, std::chrono::seconds(2),
                                                [] { return false; }) &&
        !connected.stop_requested())
      say("rank {} waits for the others of {}, which meet at {} port {}; --dist none trains "
          "alone\n",
          place->world.rank, place->world.size, place->host, place->port);
  });
  return open_tcp(*place);
}

// MPI itself waits without end for ranks that do not start.
std::unique_ptr<Transport> start_mpi(std::chrono::milliseconds timeout) {
  const std::jthread watch([timeout](const std::stop_token& started) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any wake;
    const auto is_waiting_after = [&](std::chrono::milliseconds time) {
      wake.wait_for(lock, started, time, [] { return false; });
      return !started.stop_requested();
    };
    const auto soon = std::min<std::chrono::milliseconds>(timeout, std::chrono::seconds(10));
    if (!is_waiting_after(soon)) return;
    say("waits for the other ranks to start MPI; --dist none trains alone\n");
    if (!is_waiting_after(timeout - soon)) return;
    output::put(stderr,
                "warpstep train: not all ranks have started MPI after {:.0f} s (--dist-timeout)\n",
                std::chrono::duration<double>(timeout).count());
    std::fflush(stderr);
    std::_Exit(failed);
  });
  return open_mpi();
}

// Of all weights: of a file of another rank, or of a checkpoint.
std::string digest_of(const Store& store) {
  std::vector<std::uint32_t> sums;
  const auto add = [&sums](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    sums.push_back(crc32c({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}));
  };
  for (std::size_t p = 0; p < store.parameters().size(); ++p) add(store.read(p));
  add(std::vector(sums));
  return fmt::format("{:08x}", sums.back());
}

// What a launcher of MPI left in the environment. To be asked before MPI starts: a process without
// a launcher then gets these variables from MPI itself.
struct Launched {
  bool of_several = launcher() == "mpi";
  bool at_all =
      std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMI_SIZE") || std::getenv("PMIX_RANK");
};

// Of a process that MPI found alone. It may be one of several that another MPI started, each of
// which would train. `insists`: on MPI, whose launcher may well start a single process.
void require_launcher(const Launched& launched, bool insists, const std::string& mpi) {
  if (launched.of_several)
    fail<RankError>(
        "this process was started as one of several ranks, but {} found it alone: start the ranks "
        "with its own mpirun or with srun --mpi=pmix, or give --dist env or --dist none",
        mpi);
  if (insists && !launched.at_all)
    fail<RankError>(
        "--dist mpi: no launcher of MPI started this process; start the ranks with mpirun -np N, "
        "or leave the option out to train in this process alone");
}

}  // namespace

std::shared_ptr<Communicator> join_job(const JobOptions& options, const std::atomic<bool>& stop) {
  const std::string how = options.dist == "auto" ? launcher() : options.dist;
  const char* const world_size = std::getenv("WORLD_SIZE");
  if (how.empty() && std::getenv("RANK") && world_size && std::atoi(world_size) > 1)
    say("WORLD_SIZE is {}, but MASTER_ADDR is not set: this process trains alone; set it, or give "
        "--dist none\n",
        std::atoi(world_size));
  if (const int tasks = tasks_without_pmi(); tasks > 0 && (how.empty() || how == "mpi"))
    fail<RankError>(
        "srun started {} tasks without PMI, and each would train by itself: start them with srun "
        "--mpi=pmix, set RANK, WORLD_SIZE and MASTER_ADDR in each task and give --dist env, or "
        "give --dist none if each is to train alone",
        tasks);
  if (how.empty() || how == "none") return nullptr;
  const std::chrono::seconds timeout(options.timeout_seconds);
  const Launched launched;
  auto communicator =
      std::make_shared<Communicator>(how == "env" ? connect_ranks(timeout) : start_mpi(timeout),
                                     CommunicatorOptions{.timeout = timeout, .stop = &stop});
  const World& world = communicator->world();
  if (world.size == 1) {
    if (how == "mpi") require_launcher(launched, options.dist == "mpi", communicator->describe());
    return nullptr;
  }
  output::is_quiet = world.rank > 0;
  return communicator;
}

void get_acquainted(Communicator& communicator) {
  communicator.share_memory();
  const World& world = communicator.world();
  say("ranks: {} ({} on this machine), {}\n", world.size, world.local_size,
      communicator.describe());
}

void take_place(std::shared_ptr<Communicator> communicator, RunOptions& options) {
  options.siblings = siblings_of(*communicator);
  options.out = communicator->gather(options.out).front();
  options.cores = std::max(1, allowed_cores() / share_of_cpus(*communicator, "").count);
  options.pinned_part = share_of_cpus(*communicator, options.pin_cpus);
  options.communicator = std::move(communicator);
}

std::string exchange_calls(const Graph& graph) {
  std::string calls;
  for (const Node& node : graph.nodes) {
    const bool moves_values = std::get_if<AllReduce>(&node.op) || std::get_if<AllGather>(&node.op);
    const auto* norm = std::get_if<BatchNorm>(&node.op);
    if (const auto* grad = std::get_if<BatchNormGrad>(&node.op)) norm = &grad->norm;
    if (!moves_values && (!norm || norm->ranks == 1)) continue;
    calls += node.title();
    if (moves_values)
      for (const int id : node.in) calls += " " + graph.value(id).name;
    calls += "\n";
  }
  return fmt::format("{:08x}",
                     crc32c({reinterpret_cast<const std::uint8_t*>(calls.data()), calls.size()}));
}

void require_alike(Communicator& communicator, const Job& job, const Progress& progress) {
  RunOptions shared = job.options;  // may differ between machines
  shared.threads = shared.workers = 0;
  shared.data.clear();
  shared.pin_cpus = shared.plan_cache = shared.profile_rank = shared.profile_raw = {};
  Json facts{{"version", fmt::format("{} ({})", version(), commit())}};
  for (const auto& [key, value] : job.data.items())  // copies have other paths and times
    if (key.find("fingerprint") != std::string::npos || key.find("content") != std::string::npos ||
        key.ends_with("images") || key == "classes" || key == "tokens" || key == "vocabulary")
      facts["data"][key] = value;
  facts["options"] = shared;  // after the data, of which some follow
  facts["options"]["check_numerics"] = job.options.check_numerics;
  facts["start"] = {{"step", progress.step}, {"weights", digest_of(job.step->store())}};
  const Backend& backend = *job.device.backend;
  facts["exchange"] = {{"backend", backend.name()},
                       {"bucket_bytes", backend.exchange().bucket_bytes},
                       {"calls", exchange_calls(job.step->graph())}};
  const std::vector<std::string> all = communicator.gather(printed(facts));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const Json flat = parse_json<Json>(all[0], {}).flatten(),
               other = parse_json<Json>(all[rank], {}).flatten();
    for (const auto& [key, value] : flat.items())
      if (!other.contains(key) || other.at(key) != value)
        fail<UsageError>(
            "rank {} differs from rank 0 in {}: {} instead of {}; start all ranks of one version "
            "with the same options, data, checkpoint and WARPSTEP_ variables",
            rank, key.substr(1), other.contains(key) ? printed(other.at(key)) : "nothing",
            printed(value));
    fail<UsageError>("rank {} has options or data that rank 0 lacks", rank);
  }
}

void share_batch(RunOptions& options) {
  if (options.global_batch == 0) return;
  const int ranks = options.world().size;
  if (options.global_batch % ranks != 0)
    fail<UsageError>("--global-batch {}: {} ranks cannot share it evenly; give a multiple of {}",
                     options.global_batch, ranks, ranks);
  if (ranks > 1 && !options.class_weights.empty())
    fail<UsageError>(
        "--class-weights does not go with --global-batch on several ranks: a rank's loss is the "
        "mean by the weights of its own labels, so the steps would depend on the number of ranks; "
        "give --batch, with which {0} ranks train as one process with --accumulate {0}",
        ranks);
  options.batch = options.global_batch / ranks;
}

int ranks_of(const Json& config) {
  const auto stored = config.find("ranks");
  const bool is_number = stored != config.end() && stored->is_number_integer();
  return is_number ? std::max(1, stored->get<int>()) : 1;
}

void continue_in_world(const Json& config, const RunOptions& options, RunOptions& before) {
  const int ranks = ranks_of(config);
  if (options.global_batch > 0) {
    before.global_batch = before.batch * ranks;
    before.batch = options.batch;
  } else if (before.global_batch = 0; ranks != options.world().size) {
    fail<UsageError>(
        "the run has had {} with --batch {} so far and would continue with {}, which would be "
        "given other batches; continue with the same ones by --global-batch {}, or with {}",
        counted(ranks, "rank"), before.batch, options.world().size, before.batch * ranks,
        counted(ranks, "rank"));
  }
}

std::string text_of_ranks(const profiler::RanksView& view, bool brief) {
  constexpr std::size_t shown_straggles = 10;
  std::string text = view.verdict + "\n";
  const auto add = [&](const profiler::Table& table, std::size_t rows) {
    if (!table.rows.empty()) text += fmt::format("\n{}\n{}\n", to_text(table, rows), table.note);
  };
  if (!brief) add(ranks_table(view), view.ranks.size());
  add(exchanges_table(view), view.exchanges.size());
  if (!brief) add(straggles_table(view), shown_straggles);
  return printable_lines(text);
}

namespace {

// The run directories of a job's ranks; empty where they are not all in this file system, or too
// large to be compared here.
std::vector<std::string> profiled_runs(const std::string& out, int ranks) {
  std::uint64_t bytes = 0;
  std::vector<std::string> runs;
  std::string words;
  for (int rank = 0; rank < ranks; ++rank) {
    runs.push_back(directory_of(out, {.size = ranks, .rank = rank}));
    const std::filesystem::path session = runs.back() + "/session.prof";
    std::error_code none;
    if (!std::filesystem::is_regular_file(session, none)) return {};
    bytes += std::filesystem::file_size(session);
    words += " " + shell_word(runs.back());
  }
  if (report_fits(bytes, data::host_budget_bytes())) return runs;
  say("profile: the ranks' sessions have {}: their comparison may not fit into memory here; "
      "make it with: warpstep ranks{}\n",
      quantity(static_cast<double>(bytes), Unit::bytes), words);
  return {};
}

// None where a rank has no spans.
std::optional<profiler::RanksView> compared(const std::vector<std::string>& runs) {
  std::vector<profiler::Session> sessions;
  for (const std::string& run : runs) {
    sessions.push_back(open_profiled_run(run).session);
    if (sessions.back().windows.empty()) return std::nullopt;
  }
  if (sessions.empty()) return std::nullopt;
  profiler::sort_by_rank(sessions);
  return profiler::rank_view(sessions);
}

double median_without(const std::vector<double>& all, std::size_t left_out) {
  std::vector<double> others = all;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(left_out));
  return profiler::median(std::move(others));
}

// Who is waited for, by what each rank's steps took without their exchanges.
std::string counted_ranks(const std::vector<Json>& ranks, bool on_device) {
  constexpr double least = 0.05;  // of a step: these are means, without the steps one by one
  std::vector<double> own, exchanges;
  for (const Json& rank : ranks) {
    exchanges.push_back(rank.at("exchange").get<double>());
    own.push_back(rank.at("step").get<double>() - exchanges.back());
  }
  if (on_device)
    return "gradients are exchanged on the GPUs: --profile deep shows which rank the others wait "
           "for";
  const auto ms = [](double seconds) { return quantity(1e9 * seconds, Unit::ns); };
  const auto slowest = static_cast<std::size_t>(std::ranges::max_element(own) - own.begin());
  const double excess = own[slowest] - median_without(own, slowest);
  const auto [fewest, most] = std::ranges::minmax(exchanges);
  const std::string range =
      ms(fewest) == ms(most) ? ms(most) : fmt::format("{} to {}", ms(fewest), ms(most));
  const std::string took = fmt::format("exchanges take {} of a step of {}, with the waits", range,
                                       ms(ranks[0].at("step").get<double>()));
  if (excess < least * own[slowest])
    return fmt::format("no rank keeps the others waiting; {}", took);
  return fmt::format(
      "rank {} ({}) keeps the others waiting: its own part of a step takes {}, {} more than "
      "others'; {}; --profile spans says which part it is",
      slowest, ranks[slowest].at("host").get<std::string>(), ms(own[slowest]), ms(excess), took);
}

}  // namespace

std::uint64_t report_ranks(Communicator& communicator, const std::string& out,
                           const RankTotals& own) {
  flush_results();  // this rank is done, and another may end the job
  const Json mine{{"host", host_name()},
                  {"step", own.step_seconds},
                  {"exchange", own.exchange_seconds},
                  {"spans", own.has_spans},
                  {"bad_rows", own.bad_rows}};
  std::uint64_t bad_rows = 0;
  std::vector<Json> ranks;  // and all have written their profiles
  for (const std::string& text : communicator.gather(printed(mine))) {
    ranks.push_back(parse_json<Json>(text, {}));
    bad_rows += ranks.back().at("bad_rows").get<std::uint64_t>();
  }
  if (communicator.world().rank > 0 || own.step_seconds == 0) return bad_rows;
  const bool all_have_spans =
      std::ranges::all_of(ranks, [](const Json& rank) { return rank.at("spans").get<bool>(); });
  try {
    if (const auto view = all_have_spans ? compared(profiled_runs(out, communicator.world().size))
                                         : std::nullopt) {
      print_result("\n{}", text_of_ranks(*view, true));
      return bad_rows;
    }
  } catch (const Error& error) {  // the job itself is done and saved
    say("ranks: their profiles cannot be compared: {}\n", error.what());
  }
  print_result("  ranks      {}\n", counted_ranks(ranks, own.on_device));
  return bad_rows;
}

profiler::Analysis analyse_in_job(const ProfiledRun& run) {
  const auto number = [&](const char* key) {
    const auto at = run.session.stamp.find(key);
    return at != run.session.stamp.end() && at->is_number_integer() ? at->get<int>() : 0;
  };
  const World world{.size = number("ranks"), .rank = number("rank")};
  std::optional<profiler::RanksView> job;
  try {
    const bool is_ranks = world.rank >= 0 && world.rank < world.size && world.size > 1;
    if (is_ranks && run.file.filename() == "session.prof")
      job = compared(profiled_runs(run_of_job(run.directory(), world).string(), world.size));
  } catch (const Error& error) {
    say("ranks: the job's profiles cannot be compared: {}\n", error.what());
  }
  return profiler::analyse(run.session, job ? &*job : nullptr);
}

void meet(Communicator& communicator) {
  communicator.gather("");
}

std::string directory_of(const std::string& out, const World& world) {
  return world.rank == 0 ? out : fmt::format("{}/ranks/{}", out, world.rank);
}

std::filesystem::path run_of_job(const std::filesystem::path& run, const World& world) {
  if (world.rank == 0) return run;
  std::filesystem::path whole = std::filesystem::absolute(run).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // "RUN/ranks/1/"
  return whole.parent_path().parent_path();
}

void end_job(Communicator& communicator, const std::string& error, int code, bool of_another) {
  using std::chrono::milliseconds;
  const World& world = communicator.world();
  if (of_another) {
    std::this_thread::sleep_for(
        milliseconds(300));  // the other may notice its error a little later
    if (communicator.failure_below(world.size) != 0)
      std::this_thread::sleep_for(milliseconds(5000));
  } else {
    communicator.set_failed(code);
  }
  // What is wrong with all ranks is said once: rank 0 ends the others before they report it, or
  // they see that one before them, or the one that they waited for, has said it.
  const int rank = world.rank;
  if (rank > 0) {
    std::this_thread::sleep_for(milliseconds(1500));
    const int said = communicator.failure_below(of_another ? world.size : rank);
    if (said != 0 && (!of_another || communicator.another_ended())) communicator.abort(said);
  }
  output::put(stderr, "warpstep train: rank {}: {}\n", rank, printable_lines(error));
  if (rank == 0) output::put(stderr, "{}", output::below_error);
  std::fflush(stdout);  // no buffer is written after this
  std::fflush(stderr);
  communicator.abort(code);
}

}  // namespace warpstep::tools
