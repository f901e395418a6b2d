// A model's step with made-up images and labels, for tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/random.h"
#include "engine/passes/compile.h"
#include "engine/run/program.h"
#include "models/build.h"

namespace warpstep::testing_support {

// The zoo's models of images as they are; those of text with a block or two of short sequences over
// a small vocabulary, as a GPT-2's size says nothing new.
inline models::BuildOptions test_build(std::string_view model, std::int64_t batch) {
  models::BuildOptions build;
  build.batch = batch;
  const models::Model& found = models::find(model);
  if (!found.is_text()) return build;
  std::vector<std::string> small{"layers=2"};
  if (model == "gpt2") small = {"layers=1", "heads=2", "width=24"};
  build.settings = models::resolve_settings(found, small);
  build.sequence = 8;
  build.vocabulary = 65;
  return build;
}

inline Graph model_step(std::string_view model, std::int64_t batch,
                        const StepOptions& options = {}) {
  return compile_step(models::build(models::find(model), test_build(model, batch)), options);
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
    std::vector<std::int32_t> tokens;
    for (const int id : graph.inputs) {
      const Type& type = graph.value(id).type;
      const auto count = static_cast<std::uint64_t>(type.shape.count());
      const bool is_labels = graph.value(id).name == "labels";
      std::vector<std::byte> plain(type.bytes());
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint32_t word =
            draw(step, Purpose::synthetic, static_cast<std::uint32_t>(id), i)[0];
        if (type.dtype == DType::u8) {
          plain[i] = static_cast<std::byte>(below(word, 256));
        } else {
          const bool last = padding && is_labels && i + 1 == count;
          const std::int32_t label = last ? -1 : static_cast<std::int32_t>(below(word, 10));
          std::memcpy(&plain[i * sizeof(label)], &label, sizeof(label));
          if (graph.value(id).name == "tokens") tokens.push_back(label);
        }
      }
      if (graph.value(id).name == "order") {
        std::vector<std::int32_t> order(tokens.size());
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, {}, [&](std::int32_t place) { return tokens[idx(place)]; });
        std::memcpy(plain.data(), order.data(), plain.size());
      }
      backend_->write(graph.value(id), program.address(id), plain);
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
