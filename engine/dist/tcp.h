// Messages over TCP between ranks that were started without MPI: by torchrun, or by any launcher
// that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Each two ranks share a connection.
//
// There is no authentication: any program that reaches the port while a job starts can take part.
// Use the network of the cluster.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/dist/communicator.h"

namespace warpstep {

struct TcpOptions {
  World world;
  std::string host;        // rank 0's
  std::uint16_t port = 0;  // on which rank 0 listens; the others use any that is free
  std::string job;         // of its ranks, which take no others; empty if unknown
  std::chrono::milliseconds timeout{60'000};  // for all ranks to connect
};

// The place in a job that the environment gives: RANK, WORLD_SIZE and MASTER_ADDR, with LOCAL_RANK
// and LOCAL_WORLD_SIZE (as torchrun sets them; a Communicator finds out what is missing), and the
// port after MASTER_PORT, on which torchrun itself listens, or WARPSTEP_PORT. The job is Slurm's or
// torchrun's. Empty without the first three. UsageError for values that are not numbers or do not
// fit together.
std::optional<TcpOptions> tcp_options_of_environment();

// Connects all ranks with each other. A rank that reaches another job's rank 0 tries again. Throws
// RankError that names the missing ranks, or why rank 0 cannot be reached.
std::unique_ptr<Transport> open_tcp(const TcpOptions& options);

}  // namespace warpstep
