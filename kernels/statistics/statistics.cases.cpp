#include "engine/passes/statistics.h"
#include "engine/passes/update.h"
#include "kernels/cases.h"

namespace warpstep::cases::statistics_cases {
namespace {

// The sums over each of some outputs, a block each.
Case& measure_outputs(List& list, const std::string& label, const std::vector<Type>& types,
                      Fill fill) {
  return list.add(label, [&](Case& c) {
    Graph& graph = c.graph;
    const auto rows = static_cast<std::int64_t>(types.size());
    std::vector<Tensor> outputs;
    for (const Type& type : types)
      outputs.push_back(input(c, fmt::format("x{}", outputs.size()), type, fill));
    graph.step_state();
    graph.block_sums =
        graph.add_value({DType::u8, {report_ring * rows * std::int64_t{sizeof(BlockSums)}}},
                        Role::sums, "block_sums");
    for (const Tensor& x : outputs) {
      const auto row = static_cast<std::int64_t>(graph.blocks.size());
      graph.blocks.push_back({.name = graph.value(x.id).name, .output = x.id});
      graph.record(Phase::forward, ActivationStatistics{row, rows},
                   {{&graph, graph.state}, {&graph, graph.block_sums}, x}, "", Where::current());
    }
  });
}

// The sums over the parameters of a step: a block of several, of one element, and with a rest that
// fills no vector. The rate is so high that an update is about as large as its parameter.
Case& measure_updates(List& list, const std::string& label, const Optimizer& optimizer,
                      const std::vector<Shape>& shapes, const UpdateOptions& options = {}) {
  return list.add(label, [&](Case& c) {
    for (std::size_t s = 0; s < shapes.size(); ++s)
      parameter(c, fmt::format("block{}.{}", s / 2, s % 2 == 0 ? "weight" : "bias"), shapes[s]);
    Schedule schedule;
    schedule.peak = 0.5;
    const std::vector<Block> blocks = find_blocks(c.graph);
    c.graph = add_statistics(add_optimizer(std::move(c.graph), optimizer, schedule, options),
                             blocks, optimizer);
    fill_moments(c, optimizer);
  });
}

void add_statistics_cases(List list) {
  measure_outputs(list, "outputs", {{DType::f32, {3, 5, 5, 24}}, {DType::f32, {1, 7}}},
                  {Fill::Kind::centered, 2});
  measure_outputs(list, "outputs of many chunks", {{DType::f32, {40, 33, 33, 8}}},
                  {Fill::Kind::around, 3});
  measure_outputs(list, "outputs with zeros", {{DType::f32, {9, 1000}}}, {Fill::Kind::coarse, 2});

  using Kind = Optimizer::Kind;
  const std::vector<Shape> shapes{{24, 3, 3, 5}, {24}, {1}, {7}, {4100}, {17, 30}};
  for (const Kind kind : {Kind::sgd, Kind::adam, Kind::adamw, Kind::rmsprop, Kind::lars}) {
    Optimizer optimizer;
    optimizer.kind = kind;
    const std::string label = fmt::format("updates of {}", name(kind));
    measure_updates(list, label, optimizer, shapes);
    optimizer.weight_decay = 0.05;
    if (kind != Kind::adam && kind != Kind::adamw) optimizer.momentum = 0.9;
    measure_updates(list, label + " with its options", optimizer, shapes, {.clip_norm = 0.5});
  }
  Optimizer nesterov;
  nesterov.kind = Kind::sgd;
  nesterov.momentum = 0.9;
  nesterov.nesterov = true;
  measure_updates(list, "updates of nesterov", nesterov, shapes);
  nesterov.moment_dtype = DType::bf16;
  measure_updates(list, "updates of nesterov, moments in bf16", nesterov, shapes);
  measure_updates(list, "updates of adam, moments in bf16", {.moment_dtype = DType::bf16}, shapes);
  measure_updates(list, "no updates, in the first of two steps", {}, shapes, {.accumulate = 2});

  measure_outputs(list, "outputs of resnet50 layer1", {{DType::f32, {32, 56, 56, 256}}}, {}).heavy =
      true;
  measure_updates(list, "updates of cifar10cnn", {}, {{2048, 2048}, {2048}}).heavy = true;
}

const Folder statistics_cases("statistics", add_statistics_cases);

}  // namespace
}  // namespace warpstep::cases::statistics_cases
