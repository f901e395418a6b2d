// A model's step with made-up images and labels, for tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "engine/core/random.h"
#include "engine/passes/compile.h"
#include "engine/run/program.h"
#include "models/build.h"

namespace warpstep::testing_support {

inline Graph model_step(std::string_view model, std::int64_t batch, StepOptions options = {}) {
  models::BuildOptions build;
  build.batch = batch;
  return compile_step(models::build(models::find(model), build), options);
}

// A program with its own input slots.
class Stepping {
 public:
  Stepping(Graph graph, std::shared_ptr<Backend> backend, std::shared_ptr<Store> store = nullptr)
      : backend_(backend), program(std::move(graph), std::move(backend), std::move(store)) {
    for (const int id : program.graph().inputs)
      slots_.push_back(backend_->allocate(program.graph().value(id).type.bytes()));
    std::vector<const void*> addresses;
    for (const auto& slot : slots_) addresses.push_back(slot.get());
    program.set_inputs(addresses);
  }

  // Images or tokens, and labels, of step `step`; with `padding`, the last label is that of a
  // padding row.
  void load(std::uint64_t step, bool padding = false) {
    const Graph& graph = program.graph();
    std::vector<std::int32_t> numbers;  // of the last slot: of the tokens where their order comes
    for (const int id : graph.inputs) {
      const Value& value = graph.value(id);
      const auto count = static_cast<std::uint64_t>(value.type.shape.count());
      const auto word = [&](std::uint64_t i) {
        return draw(step, Purpose::synthetic, static_cast<std::uint32_t>(id), i)[0];
      };
      std::vector<std::byte> plain(value.type.bytes());
      if (value.type.dtype == DType::u8) {
        for (std::uint64_t i = 0; i < count; ++i)
          plain[i] = static_cast<std::byte>(below(word(i), 256));
      } else {
        numbers = value.name == "order" ? order_of(numbers) : std::vector<std::int32_t>(count);
        for (std::uint64_t i = 0; i < count && value.name != "order"; ++i)
          numbers[i] = static_cast<std::int32_t>(below(word(i), 10));
        if (padding && value.name == "labels") numbers.back() = -1;
        std::memcpy(plain.data(), numbers.data(), plain.size());
      }
      backend_->write(value, program.address(id), plain);
    }
  }

  std::vector<std::vector<float>> parameters() const {
    program.wait();
    std::vector<std::vector<float>> all;
    for (std::size_t p = 0; p < program.store().parameters().size(); ++p)
      all.push_back(program.store().read(p));
    return all;
  }

 private:
  static std::vector<std::int32_t> order_of(const std::vector<std::int32_t>& tokens) {
    std::vector<std::int32_t> order(tokens.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return tokens[idx(a)] < tokens[idx(b)];
    });
    return order;
  }

  std::shared_ptr<Backend> backend_;
  std::vector<std::shared_ptr<std::byte>> slots_;

 public:
  Program program;
};

// Every parameter, then every buffer.
inline std::vector<float> all_numbers(const Stepping& step) {
  std::vector<float> all;
  const auto append = [&](const std::vector<float>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const std::vector<float>& parameter : step.parameters()) append(parameter);
  const Store& store = step.program.store();
  for (std::size_t b = 0; b < store.buffers().size(); ++b) append(store.read_buffer(b));
  return all;
}

}  // namespace warpstep::testing_support
