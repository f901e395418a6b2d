// A backend whose streams run nothing before somebody waits for it: what is enqueued in another
// stream, or read by the host, without waiting for what it needs, finds old values. With a seed
// they also run ahead at random: what is written over before its readers are done is found, too. On
// GPUs either would happen now and then.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/random.h"
#include "engine/run/backend.h"

namespace warpstep::testing_support {

class DeferredStream;

// The streams of a backend. Their mutex is locked while work runs, too: marks are waited for in
// several threads.
struct DeferredStreams {
  std::recursive_mutex mutex;
  std::vector<DeferredStream*> all;
  std::uint64_t seed = 0, draws = 0;

  std::size_t drawn(std::size_t below_this) {
    const std::uint32_t word = draw(seed, Purpose::synthetic, 5, draws++)[0];
    return below(word, static_cast<std::uint32_t>(below_this));
  }
};

class DeferredStream final : public Stream {
 public:
  DeferredStream(std::unique_ptr<Stream> inner, std::shared_ptr<DeferredStreams> streams)
      : inner_(std::move(inner)), streams_(std::move(streams)) {
    const std::scoped_lock lock(streams_->mutex);
    streams_->all.push_back(this);
  }
  ~DeferredStream() override {
    const std::scoped_lock lock(streams_->mutex);
    std::erase(streams_->all, this);
  }
  void enqueue(std::function<void(Stream&)> work) {
    const std::scoped_lock lock(streams_->mutex);
    queue_.push_back(std::move(work));
    if (streams_->seed == 0 || streams_->drawn(2) == 0) return;
    DeferredStream& any = *streams_->all[streams_->drawn(streams_->all.size())];
    any.run_until(std::min(any.queue_.size(), any.done_ + streams_->drawn(8)));
  }
  void wait() override { run_until(mark()); }
  std::uint64_t mark() override {
    const std::scoped_lock lock(streams_->mutex);
    return queue_.size();
  }
  void wait_for(std::uint64_t mark) override { run_until(mark); }
  std::uint64_t signal() override { return mark(); }
  void after(Stream& other, std::uint64_t signal) override {
    enqueue([&other, signal](Stream&) { other.wait_for(signal); });
  }

 private:
  void run_until(std::size_t end) {
    const std::scoped_lock lock(streams_->mutex);
    while (done_ < end) {
      const auto work = std::exchange(queue_[done_], {});
      ++done_;
      work(*inner_);
    }
    inner_->wait();
  }

  std::unique_ptr<Stream> inner_;
  std::shared_ptr<DeferredStreams> streams_;
  std::vector<std::function<void(Stream&)>> queue_;  // all that was enqueued so far
  std::size_t done_ = 0;
};

class DeferredKernel final : public Kernel {
 public:
  explicit DeferredKernel(std::unique_ptr<Kernel> inner) : inner_(std::move(inner)) {}
  std::size_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  double flops() const override { return inner_->flops(); }
  void enqueue(Stream& stream, const Buffers& buffers) const override {
    static_cast<DeferredStream&>(stream).enqueue(
        [kernel = inner_, in = std::vector<void*>(buffers.in.begin(), buffers.in.end()),
         out = std::vector<void*>(buffers.out.begin(), buffers.out.end()),
         workspace = buffers.workspace](Stream& inner) {
          kernel->enqueue(inner, {.in = in, .out = out, .workspace = workspace});
        });
  }

 private:
  std::shared_ptr<Kernel> inner_;
};

class DeferredBackend : public Backend {
 public:
  // A seed above 0: streams run ahead.
  explicit DeferredBackend(std::shared_ptr<Backend> inner, int steps_in_flight = 0,
                           std::uint64_t seed = 0)
      : inner_(std::move(inner)), steps_in_flight_(steps_in_flight) {
    streams_->seed = seed;
  }
  std::string_view name() const override { return inner_->name(); }
  std::string describe() const override { return inner_->describe() + ", deferred"; }
  void choose_layouts(Graph& graph) const override { inner_->choose_layouts(graph); }
  std::unique_ptr<Kernel> bind(const Graph& graph, const Node& node) const override {
    return std::make_unique<DeferredKernel>(inner_->bind(graph, node));
  }
  bool wants(std::string_view fusion) const override { return inner_->wants(fusion); }
  bool computes(const AnyOp& op, const Types& in) const override {
    return inner_->computes(op, in);
  }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) const override {
    return inner_->allocate(bytes);
  }
  std::unique_ptr<Stream> make_stream(Precedence precedence) const override {
    return std::make_unique<DeferredStream>(inner_->make_stream(precedence), streams_);
  }
  bool has_side_lanes() const override { return true; }
  int steps_in_flight() const override { return steps_in_flight_; }
  void upload(Stream& stream, void* to, const void* from, std::size_t bytes) const override {
    static_cast<DeferredStream&>(stream).enqueue(
        [to, from, bytes](Stream&) { std::memcpy(to, from, bytes); });
  }
  void write(const Value& value, void* stored, std::span<const std::byte> plain) const override {
    inner_->write(value, stored, plain);
  }
  void read(const Value& value, const void* stored, std::span<std::byte> plain) const override {
    inner_->read(value, stored, plain);
  }

 private:
  std::shared_ptr<Backend> inner_;
  std::shared_ptr<DeferredStreams> streams_ = std::make_shared<DeferredStreams>();
  int steps_in_flight_;
};

}  // namespace warpstep::testing_support
