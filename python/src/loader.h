// The loader for Python: batches as tensors in the memory that the workers wrote.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/types.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "data/load/loader.h"
#include "python/src/pool.h"
#include "python/src/tensor.h"

namespace warpstep::python {

struct LoaderRequest {
  std::string path, split;
  std::string transforms;  // empty: none
  std::int64_t batch = 128;
  bool floats = false;            // f32, normalised; else bytes
  bool channels_first = false;    // shapes are [N, C, H, W]; memory stays [N, H, W, C]
  std::vector<double> mean, std;  // of x / 255; empty: measured on the images if they are needed
  std::string shuffle = "full";   // none, full or window
  std::uint64_t shuffle_window = 8192;
  std::uint64_t seed = 0;
  bool drop_last = false;
  int workers = 0, prefetch = 3;
  std::uint32_t rank = 0, world = 1;
  std::string errors = "fail";  // fail, skip or mask
  double max_bad = 0.001;
  bool keep_decoded = false;
  std::uint64_t epoch = 0, step = 0;
};

// Called with Python's lock; what takes long releases it.
class Batches {
 public:
  explicit Batches(const LoaderRequest& request);  // throws as data::Loader does
  ~Batches();
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  // (images, labels), both in memory that nobody else writes. While it waits, signal handlers of
  // Python run, and their exceptions end the wait; the batch remains the next one.
  nanobind::tuple next();
  void seek(std::uint64_t epoch, std::uint64_t step);
  nanobind::tuple position() const;
  nanobind::dict stats() const;
  nanobind::list bad_samples() const;
  void close();  // stops the workers; tensors stay valid

  const data::Dataset& dataset() const { return *dataset_; }
  std::vector<std::int64_t> row_shape() const;
  std::uint64_t steps_per_epoch() const;
  const std::vector<double>& mean() const { return request_.mean; }
  const std::vector<double>& std() const { return request_.std; }

 private:
  data::LoaderOptions options();
  data::Loader& open() const;
  template <class Work>
  auto locked(Work work) const;
  void wait();
  Tensor images_of(std::shared_ptr<std::byte> memory, std::int64_t rows) const;
  std::int64_t rows_of(Position position) const;

  LoaderRequest request_;
  std::shared_ptr<const data::Dataset> dataset_;
  Shape row_;
  std::shared_ptr<BlockPool> pool_;
  std::unique_ptr<data::Loader> loader_;
  mutable std::mutex mutex_;  // of the loader, whose next() and seek() are for one thread; taken
                              // without Python's lock
  pid_t process_;
};

void declare_loader(nanobind::module_& module);

}  // namespace warpstep::python
