// Messages over MPI, between the ranks of MPI_COMM_WORLD: a module of its own, so that a machine
// without MPI runs everything else. Compiled with WARPSTEP_BUILD_VERSION, as version() is the
// engine's.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "engine/dist/communicator.h"

namespace warpstep {
namespace {

void require(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail<RankError>("MPI: {} failed: {}", what, text.data());
}

class MpiTransport final : public Transport {
 public:
  MpiTransport() {
    int provided = 0;
    require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    require(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    require(MPI_Comm_rank(MPI_COMM_WORLD, &world_.rank), "MPI_Comm_rank");
    require(MPI_Comm_size(MPI_COMM_WORLD, &world_.size), "MPI_Comm_size");
    MPI_Comm local = MPI_COMM_NULL;
    require(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_.rank, MPI_INFO_NULL,
                                &local),
            "MPI_Comm_split_type");
    require(MPI_Comm_rank(local, &world_.local_rank), "MPI_Comm_rank");
    require(MPI_Comm_size(local, &world_.local_size), "MPI_Comm_size");
    require(MPI_Comm_free(&local), "MPI_Comm_free");
  }
  // Waits for all ranks: a process that ends by an error calls abort() instead.
  ~MpiTransport() override { MPI_Finalize(); }

  World world() const override { return world_; }

  std::string describe() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string all(text.data());
    return all.substr(0, all.find_first_of(",\n"));
  }

  void start(std::span<const Message> sends, std::span<const Message> receives) override {
    requests_.clear();
    peers_.clear();
    for (const Message& message : receives) add(message, MPI_Irecv);
    for (const Message& message : sends) add(message, MPI_Isend);
  }

  bool done() override {
    int all = 0;
    require(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all,
                        MPI_STATUSES_IGNORE),
            "exchanging data with other ranks");
    return all != 0;
  }

  std::vector<int> silent_peers() const override {
    std::vector<int> peers;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int arrived = 0;
      MPI_Request_get_status(requests_[i], &arrived, MPI_STATUS_IGNORE);
      if (arrived == 0 && std::ranges::find(peers, peers_[i]) == peers.end())
        peers.push_back(peers_[i]);  // of both what is sent and what is received
    }
    return peers;
  }

  [[noreturn]] void abort(int code) override {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

 private:
  template <class Start>
  void add(const Message& message, Start start) {
    if (message.bytes.empty()) return;
    MPI_Request request = MPI_REQUEST_NULL;
    require(start(message.bytes.data(), static_cast<int>(message.bytes.size()), MPI_BYTE,
                  message.peer, 0, MPI_COMM_WORLD, &request),
            "exchanging data with other ranks");
    requests_.push_back(request);
    peers_.push_back(message.peer);
  }

  World world_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // of requests_: those that receive come first
};

}  // namespace
}  // namespace warpstep

extern "C" __attribute__((visibility("default"))) warpstep::Transport* warpstep_transport() {
  return new warpstep::MpiTransport;
}

extern "C" __attribute__((visibility("default"))) const warpstep::ModuleBuild*
warpstep_transport_build() {
  static const warpstep::ModuleBuild build{WARPSTEP_BUILD_VERSION, warpstep::transport_interface()};
  return &build;
}
