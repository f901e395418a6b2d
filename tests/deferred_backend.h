// A backend whose streams run nothing before somebody waits for it: what is enqueued in another
// stream, or read by the host, without waiting for what it needs, finds old values. On GPUs it
// would find them now and then.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/run/backend.h"

namespace warpstep::testing_support {

class DeferredStream final : public Stream {
 public:
  explicit DeferredStream(std::unique_ptr<Stream> inner) : inner_(std::move(inner)) {}
  void enqueue(std::function<void(Stream&)> work) {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(work));
  }
  void wait() override { run_until(mark()); }
  std::uint64_t mark() override {
    const std::scoped_lock lock(mutex_);
    return queue_.size();
  }
  void wait_for(std::uint64_t mark) override { run_until(mark); }
  std::uint64_t signal() override { return mark(); }
  void after(Stream& other, std::uint64_t signal) override {
    enqueue([&other, signal](Stream&) { other.wait_for(signal); });
  }

 private:
  void run_until(std::size_t end) {
    const std::scoped_lock lock(
        mutex_);  // also while the work runs: marks are waited for elsewhere
    while (done_ < end) {
      const auto work = std::exchange(queue_[done_], {});
      ++done_;
      work(*inner_);
    }
    inner_->wait();
  }

  std::unique_ptr<Stream> inner_;
  std::recursive_mutex mutex_;  // a feeder's thread waits for the steps' stream
  std::vector<std::function<void(Stream&)>> queue_;  // all that was enqueued so far
  std::size_t done_ = 0;
};

class DeferredKernel final : public Kernel {
 public:
  explicit DeferredKernel(std::unique_ptr<Kernel> inner) : inner_(std::move(inner)) {}
  std::size_t workspace_bytes() const override { return inner_->workspace_bytes(); }
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
  explicit DeferredBackend(std::shared_ptr<Backend> inner, int steps_in_flight = 0)
      : inner_(std::move(inner)), steps_in_flight_(steps_in_flight) {}
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
    return std::make_unique<DeferredStream>(inner_->make_stream(precedence));
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
  int steps_in_flight_;
};

}  // namespace warpstep::testing_support
