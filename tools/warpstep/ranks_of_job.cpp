#include "tools/warpstep/ranks_of_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/core/cpus.h"
#include "engine/core/version.h"
#include "engine/dist/tcp.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// How many ranks run on exactly this rank's CPUs: launchers may give each its own.
int ranks_on_same_cpus(Communicator& communicator) {
  const std::string mine = host_name() + " " + text_of_cpus(available_cpus().allowed);
  const std::vector<std::string> all = communicator.gather(mine);
  return static_cast<int>(std::ranges::count(all, mine));
}

std::unique_ptr<Transport> connect_ranks(std::chrono::milliseconds timeout) {
  std::optional<TcpOptions> place = tcp_options_of_environment();
  if (!place)
    fail<UsageError>("--dist env needs RANK, WORLD_SIZE and MASTER_ADDR, as torchrun sets them");
  place->timeout = timeout;
  return open_tcp(*place);
}

}  // namespace

std::shared_ptr<Communicator> join_job(const JobOptions& options, const std::atomic<bool>& stop) {
  const std::string how = options.dist == "auto" ? launcher() : options.dist;
  if (how.empty() || how == "none") return nullptr;
  const std::chrono::seconds timeout(options.timeout_seconds);
  auto communicator =
      std::make_shared<Communicator>(how == "env" ? connect_ranks(timeout) : open_mpi(),
                                     CommunicatorOptions{.timeout = timeout, .stop = &stop});
  const World& world = communicator->world();
  if (world.size == 1) return nullptr;
  output::is_quiet = world.rank > 0;
  say("ranks: {} ({} on this machine), {}\n", world.size, world.local_size,
      communicator->describe());
  return communicator;
}

void take_place(std::shared_ptr<Communicator> communicator, RunOptions& options) {
  options.out = communicator->gather(options.out).front();
  const int cores = std::max(1, allowed_cores() / ranks_on_same_cpus(*communicator));
  if (options.threads == 0) options.threads = cores;
  if (options.workers == 0) options.workers = std::clamp(cores - 1, 1, 8);
  options.communicator = std::move(communicator);
}

void require_alike(Communicator& communicator, const RunOptions& options, const Json& data) {
  RunOptions shared = options;  // may differ between machines
  shared.threads = shared.workers = 0;
  shared.data.clear();
  shared.pin_cpus = shared.plan_cache = shared.profile_rank = shared.profile_raw = {};
  Json facts{{"version", fmt::format("{} ({})", version(), commit())}};
  for (const auto& [key, value] : data.items())  // copies have other paths and times
    if (key.find("fingerprint") != std::string::npos || key.find("content") != std::string::npos ||
        key.ends_with("images") || key == "classes" || key == "tokens")
      facts["data"][key] = value;
  facts["options"] = shared;  // behind the data, of which some follow
  const std::vector<std::string> all = communicator.gather(facts.dump());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const Json flat = Json::parse(all[0]).flatten(), other = Json::parse(all[rank]).flatten();
    for (const auto& [key, value] : flat.items())
      if (!other.contains(key) || other.at(key) != value)
        fail<UsageError>(
            "rank {} differs from rank 0 in {}: {} instead of {}; start all ranks of one version "
            "with the same options and the same data",
            rank, key.substr(1), other.contains(key) ? other.at(key).dump() : "nothing",
            value.dump());
    fail<UsageError>("rank {} has options or data that rank 0 lacks", rank);
  }
}

void share_batch(RunOptions& options) {
  if (options.global_batch == 0) return;
  const int ranks = options.world().size;
  if (options.global_batch % ranks != 0)
    fail<UsageError>("--global-batch {}: {} ranks cannot share it evenly; give a multiple of {}",
                     options.global_batch, ranks, ranks);
  options.batch = options.global_batch / ranks;
}

void continue_in_world(const Json& config, const RunOptions& options, RunOptions& before) {
  const auto stored = config.find("ranks");
  const int ranks = stored != config.end() && stored->is_number_integer() ? stored->get<int>() : 1;
  if (options.global_batch > 0) {
    before.global_batch = before.batch * ranks;
    before.batch = options.batch;
  } else if (before.global_batch = 0; ranks != options.world().size) {
    fail<UsageError>(
        "the run has had {} rank{} with --batch {} so far and would continue with {}, which would "
        "be given other batches; continue with the same ones by --global-batch {}, or start as "
        "many ranks with mpirun -np {}",
        ranks, ranks == 1 ? "" : "s", before.batch, options.world().size, before.batch * ranks,
        ranks);
  }
}

void meet(Communicator& communicator) {
  communicator.gather("");
}

std::string directory_of(const std::string& out, const World& world) {
  return world.rank == 0 ? out : fmt::format("{}/ranks/{}", out, world.rank);
}

void end_job(Communicator& communicator, const std::string& error, int code) {
  // What is wrong with all ranks is said once: rank 0 ends the others before they report it.
  const int rank = communicator.world().rank;
  if (rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  output::put(stderr, "warpstep train: rank {}: {}\n", rank, error);
  std::fflush(stderr);
  communicator.abort(code);
}

}  // namespace warpstep::tools
