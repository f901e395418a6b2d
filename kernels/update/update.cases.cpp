#include <limits>

#include "engine/passes/fuse.h"
#include "engine/passes/update.h"
#include "kernels/cases.h"

namespace warpstep::cases::update_cases {
namespace {

void add(List& list, const std::string& label, const Optimizer& optimizer, const Schedule& schedule,
         const UpdateOptions& options = {}, bool midway = false) {
  for (const bool fused : {false, true})
    list.add(label + (fused ? " all at once" : ""), [&](Case& c) {
      c.midway = midway;
      parameter(c, "conv.weight", {24, 3, 3, 5});
      parameter(c, "conv.bias", {24});
      parameter(c, "one", {1});
      parameter(c, "few", {7});
      parameter(c, "many", {4100});
      parameter(c, "fc.weight", {17, 30});
      c.graph = add_optimizer(std::move(c.graph), optimizer, schedule, options);
      if (fused) c.graph = fuse(std::move(c.graph), FuseStage::updates, {});
      if (options.average_decay > 0)
        c.graph = add_average(std::move(c.graph), options.average_decay);
      fill_moments(c, optimizer);
    });
}

// All the elements that a step of cifar10cnn updates but the convolutions', which are 2 % of them.
void add_product(List& list) {
  list.add("adam cifar10cnn", [](Case& c) {
    parameter(c, "fc1.weight", {2048, 2048});
    parameter(c, "fc1.bias", {2048});
    parameter(c, "fc2.weight", {10, 2048});
    parameter(c, "fc2.bias", {10});
    c.graph = fuse(add_optimizer(std::move(c.graph), {}, {}), FuseStage::updates, {});
    fill_moments(c, {});
    c.heavy = true;
  });
}

// The gradients of a step, one of which may be `number`; the state records it.
void add_check(List& list, const std::string& label, double number, double clip_norm = 0) {
  list.add("check_gradients " + label, [&](Case& c) {
    parameter(c, "fc.weight", {17, 30});
    parameter(c, "fc.bias", {17});
    c.graph.state = c.graph.add_value({DType::u8, {std::int64_t{sizeof(StepState)}}}, Role::state,
                                      "step_state");
    c.fills[c.graph.parameters[1].gradient] = {Fill::Kind::constant, number};
    c.graph.nodes.push_back(check_gradients(c.graph, clip_norm));
  });
}

// Of few elements: of a thousand that LARS stores in 16 bits, one may be so near to the middle of
// two numbers that f32 and double part there.
Case& add_small_lars(List& list, const std::string& label, double trust, double clip_norm) {
  return list.add("lars " + label, [&](Case& c) {
    parameter(c, "fc.weight", {5, 6});
    parameter(c, "fc.bias", {5});
    Optimizer lars;
    lars.kind = Optimizer::Kind::lars;
    lars.momentum = 0.9;
    lars.weight_decay = 0.05;
    lars.trust = trust;
    c.graph = add_optimizer(std::move(c.graph), lars, {}, {.clip_norm = clip_norm});
    fill_moments(c, lars);
  });
}

// A gradient that LARS scales to more than fp16 holds, or than f32 and bf16 do, is not used.
void add_overflowing_lars(List& list, const std::string& of, double trust) {
  Case& c = add_small_lars(list, "beyond " + of, trust, 0);
  c.fills[c.graph.parameters[0].value] = {Fill::Kind::constant, 100};
}

// What may stand beside the updates.
void add_beside(List& list, const Schedule& schedule) {
  Optimizer sgd, lars;
  sgd.kind = Optimizer::Kind::sgd;
  lars.kind = Optimizer::Kind::lars;
  lars.trust = 1;
  add(list, "clipped adam", {}, schedule, {.clip_norm = 0.5});
  add(list, "sgd below its clip", sgd, schedule, {.clip_norm = 1e4});
  add(list, "sgd averaged", sgd, schedule, {.average_decay = 0.75});
  add(list, "lars", lars, schedule);
  lars.momentum = 0.9;
  lars.weight_decay = 0.05;
  add(list, "lars with momentum and weight decay", lars, schedule);
  add_small_lars(list, "clipped", 1, 0.5);
  add_small_lars(list, "clipped to nothing", 1, 1e-45);
  add_overflowing_lars(list, "fp16", 1e5);
  add_overflowing_lars(list, "all", 1e38);
  const UpdateOptions all{.clip_norm = 0.5, .accumulate = 2, .average_decay = 0.75};
  for (const bool midway : {false, true}) {
    const std::string of = midway ? " in the last of two steps" : " in the first of two steps";
    add(list, "adam" + of, {}, schedule, {.accumulate = 2}, midway);
    add(list, "adam with all" + of, {}, schedule, all, midway);
    add(list, "lars with all" + of, lars, schedule, all, midway);
  }
}

// Of one rank, whose gradients stay. Those of several: engine/dist/communicator_test.cpp,
// tests/ranks_test.py and tests/ranks_cuda_test.py.
void add_all_reduce(List& list) {
  list.add("all_reduce of one rank", [](Case& c) {
    parameter(c, "fc.weight", {17, 30});
    parameter(c, "fc.bias", {17});
    std::vector<Tensor> in;
    for (const std::size_t p : c.graph.section_order())
      in.push_back({&c.graph, c.graph.parameters[p].gradient});
    c.graph.step_state();  // which the call leaves as it is
    c.graph.record(Phase::update, AllReduce{1}, in, "", Where::current());
  });
  list.add("all_gather of one rank", [](Case& c) {
    parameter(c, "fc.weight", {17, 30});
    parameter(c, "fc.bias", {17});
    std::vector<Tensor> in;
    for (const std::size_t p : c.graph.section_order())
      in.push_back({&c.graph, c.graph.parameters[p].value});
    c.graph.step_state();
    c.graph.record(Phase::update, AllGather{1}, in, "", Where::current());
  });
}

void add_report_case(List& list) {
  list.add("report", [](Case& c) {
    Graph& graph = c.graph;
    graph.state =
        graph.add_value({DType::u8, {std::int64_t{sizeof(StepState)}}}, Role::state, "step_state");
    graph.loss = input(c, "loss", {DType::f32, {}}).id;
    graph.correct = input(c, "correct", {DType::i32, {}}, {Fill::Kind::labels, 100}).id;
    graph = add_report(std::move(graph));
  });
}

void add_update(List list) {
  add_check(list, "of finite ones", 1);
  add_check(list, "with an infinity", std::numeric_limits<double>::infinity());
  add_check(list, "that are not numbers", std::numeric_limits<double>::quiet_NaN());
  add_check(list, "clipped", 1, 2);
  add_check(list, "below the clip", 1, 1e3);
  add_check(list, "with an infinity and a clip", std::numeric_limits<double>::infinity(), 1);
  add_all_reduce(list);
  add_report_case(list);
  Schedule constant;
  constant.peak = 1e-2;
  Schedule cosine = constant;
  cosine.kind = Schedule::Kind::cosine;
  cosine.total_steps = 10;
  cosine.warmup_steps = 2;
  Optimizer sgd, adam;
  sgd.kind = Optimizer::Kind::sgd;
  add(list, "sgd", sgd, constant);
  sgd.weight_decay = 0.05;
  add(list, "sgd with weight decay", sgd, cosine);
  sgd.momentum = 0.9;
  add(list, "sgd with momentum", sgd, constant);
  sgd.nesterov = true;
  add(list, "sgd with nesterov", sgd, constant);
  add(list, "adam", adam, cosine);
  adam.weight_decay = 0.05;
  add(list, "adam with weight decay", adam, constant);
  adam.kind = Optimizer::Kind::adamw;
  adam.beta1 = 0.8;
  adam.beta2 = 0.95;
  adam.epsilon = 1e-4;
  add(list, "adamw", adam, constant);
  adam.decays_vectors = false;
  add(list, "adamw with decay of matrices", adam, constant);
  Optimizer rmsprop;
  rmsprop.kind = Optimizer::Kind::rmsprop;
  add(list, "rmsprop", rmsprop, cosine);
  rmsprop.momentum = 0.9;
  rmsprop.weight_decay = 0.05;
  rmsprop.alpha = 0.9;
  rmsprop.epsilon = 1e-4;
  add(list, "rmsprop with momentum and weight decay", rmsprop, constant);
  for (Optimizer* of : {&sgd, &adam, &rmsprop}) of->moment_dtype = DType::bf16;
  add(list, "sgd with nesterov and moments in bf16", sgd, constant);
  add(list, "adamw with moments in bf16", adam, constant);
  add(list, "rmsprop with moments in bf16", rmsprop, constant);
  add_beside(list, constant);
  add_product(list);
}

const Folder update_cases("update", add_update);

}  // namespace
}  // namespace warpstep::cases::update_cases
