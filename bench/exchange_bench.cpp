// Times sums over the ranks of a job, as a training step on CPUs makes them (engine/dist/).
//
//   mpirun -np 2 build/release/bin/exchange_bench 4300000
//
// Prints the median and the quartiles of 40 sums in ms, of rank 0, and of the sums in shares with
// which the optimiser's state is divided.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/program.h"
#include "engine/dist/communicator.h"
#include "engine/dist/tcp.h"

namespace {

using warpstep::Communicator;
using Clock = std::chrono::steady_clock;

template <class Work>
void measure(Communicator& communicator, const char* name, Work work) {
  constexpr int warm = 5, count = 40;
  std::vector<double> ms;
  for (int i = 0; i < warm + count; ++i) {
    communicator.gather("");
    const auto begin = Clock::now();
    work();
    if (i >= warm)
      ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::ranges::sort(ms);
  if (communicator.world().rank == 0)
    fmt::print("{:<24}{:8.2f} ms ({:.2f} to {:.2f})\n", name, ms[count / 2], ms[count / 4],
               ms[3 * count / 4]);
}

void measure_all(std::size_t count) {
  const auto options = warpstep::tcp_options_of_environment();
  Communicator communicator(warpstep::launcher() == "env" ? warpstep::open_tcp(*options)
                                                          : warpstep::open_mpi());
  communicator.share_memory();
  const int ranks = communicator.world().size;
  if (communicator.world().rank == 0)
    fmt::print("{} floats, {} ranks, {}\n", count, ranks, communicator.describe());
  std::vector<float> values(count, 1.5F);
  const float share = 1.0F / static_cast<float>(ranks);
  std::vector<std::size_t> ends, byte_ends;
  for (int rank = 1; rank <= ranks; ++rank) {
    ends.push_back(count * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks));
    byte_ends.push_back(ends.back() * sizeof(float));
  }
  measure(communicator, "sum", [&] { communicator.sum(std::span(values), share); });
  measure(communicator, "sum in shares", [&] {
    communicator.sum_own(std::span(values), ends, share);
    communicator.all_gather(std::as_writable_bytes(std::span(values)), byte_ends);
  });
  std::vector<double> few(4, 1);
  measure(communicator, "sum of 4 doubles", [&] { communicator.sum(std::span(few)); });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times sums over the ranks of a job", "exchange_bench");
  std::size_t count = 4'300'000;
  app.add_option("FLOATS", count, "of a sum")->check(CLI::PositiveNumber)->capture_default_str();
  return warpstep::bench::run_program(app, argc, argv, [&] {
    measure_all(count);
    return 0;
  });
}
