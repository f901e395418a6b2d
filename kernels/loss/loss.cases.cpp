#include <fmt/format.h>

#include <utility>

#include "kernels/cases.h"

namespace warpstep::cases::loss_cases {
namespace {

struct Size {
  const char* label;
  std::int64_t rows, classes;
  Fill logits;
  Fill::Kind labels = Fill::Kind::labels;
  bool smooth = true, heavy = false;
};

Tensor logits(Case& c, const Size& size) {
  c.smooth = size.smooth;
  c.heavy = size.heavy;
  return input(c, "logits", {DType::f32, {size.rows, size.classes}}, size.logits);
}

Tensor labels(Case& c, const Size& size) {
  return input(c, "labels", {DType::i32, {size.rows}},
               {size.labels, static_cast<double>(size.classes)});
}

void add(List& list, const Size& size) {
  const std::string label = size.label;
  list.add("log_softmax " + label, [&](Case& c) { record(c, LogSoftmax{}, {logits(c, size)}); });
  list.add("nll " + label, [&](Case& c) {
    const Tensor x = logits(c, size);
    record(c, Nll{}, {x, labels(c, size)});
  });
  list.add("log_softmax and nll " + label, [&](Case& c) {
    const Tensor x = record(c, LogSoftmax{}, {logits(c, size)});
    record(c, Nll{}, {x, labels(c, size)});
  });
  list.add("top1 " + label, [&](Case& c) {
    const Tensor x = logits(c, size);
    record(c, Top1{}, {x, labels(c, size)});
  });
  for (const bool gradient : {false, true})
    list.add(std::string(gradient ? "softmax_xent with gradient " : "softmax_xent ") + label,
             [&](Case& c) {
               const Tensor x = logits(c, size);
               record(c, SoftmaxXent{gradient}, {x, labels(c, size)});
             });
}

// Labels and plans of mixed rows, after x.
std::vector<Tensor> mixed(Case& c, const Tensor& x, const Size& size) {
  const Fill plans{Fill::Kind::plans, static_cast<double>(size.classes)};
  return {x, labels(c, size), input(c, "rows", row_plans_type(size.rows), plans)};
}

void add_mixed(List& list, const Size& size) {
  const std::string label = size.label;
  list.add("nll mixed " + label, [&](Case& c) {
    const Tensor x = logits(c, size);
    record(c, Nll{.mixed = true}, mixed(c, x, size));
  });
  list.add("log_softmax and nll mixed " + label, [&](Case& c) {
    const Tensor x = record(c, LogSoftmax{}, {logits(c, size)});
    record(c, Nll{.mixed = true}, mixed(c, x, size));
  });
  for (const bool gradient : {false, true})
    list.add(std::string("softmax_xent mixed ") + (gradient ? "with gradient " : "") + label,
             [&](Case& c) {
               const Tensor x = logits(c, size);
               record(c, SoftmaxXent{.gradient = gradient, .mixed = true}, mixed(c, x, size));
             });
}

// Rows of a width, by each kernel that divides a row among lanes.
void add_width(List& list, std::int64_t rows, std::int64_t classes) {
  const std::string label = fmt::format("of {}x{}", rows, classes);
  const Size size{label.c_str(), rows, classes, {Fill::Kind::centered, 4}, Fill::Kind::padded};
  list.add("log_softmax and nll " + label, [&](Case& c) {
    const Tensor x = record(c, LogSoftmax{}, {logits(c, size)});
    record(c, Nll{}, {x, labels(c, size)});
  });
  list.add("top1 " + label, [&](Case& c) {
    const Tensor x = logits(c, size);
    record(c, Top1{}, {x, labels(c, size)});
  });
  for (const bool mix : {false, true})
    list.add(std::string("softmax_xent ") + (mix ? "mixed " : "") + "with gradient " + label,
             [&](Case& c) {
               const Tensor x = logits(c, size);
               record(c, SoftmaxXent{.gradient = true, .mixed = mix},
                      mix ? mixed(c, x, size) : std::vector<Tensor>{x, labels(c, size)});
             });
}

struct Weighing {
  const char* label;
  double smoothing;
  bool weighted;
  Fill weights{Fill::Kind::positive, 3};
};

// Labels, plans of mixed rows and weights after x, as far as there are any.
std::vector<Tensor> weighed(Case& c, const Tensor& x, const Size& size, const Weighing& weighing,
                            bool mix) {
  std::vector<Tensor> in = mix ? mixed(c, x, size) : std::vector<Tensor>{x, labels(c, size)};
  if (!weighing.weighted) return in;
  in.push_back(c.graph.buffer("loss.weight", {size.classes}, {1}, false));
  c.fills[in.back().id] = weighing.weights;
  return in;
}

void add_weighed(List& list, const Size& size, const Weighing& weighing, bool mix) {
  const std::string label = fmt::format("{}{} {}", weighing.label, mix ? " mixed" : "", size.label);
  const Nll nll{
      .mixed = mix, .smoothing = weighing.smoothing, .weighted = weighing.weighted, .raw = false};
  const Fill positive{Fill::Kind::positive, 3};  // means that nearly cancel say nothing
  list.add("nll " + label, [&](Case& c) {
    const Tensor x = logits(c, size);
    c.fills[x.id] = positive;
    record(c, nll, weighed(c, x, size, weighing, mix));
  });
  list.add("log_softmax and nll " + label, [&](Case& c) {
    const Tensor x = record(c, LogSoftmax{}, {logits(c, size)});
    record(c, nll, weighed(c, x, size, weighing, mix));
  });
  list.add("softmax_xent with gradient " + label, [&](Case& c) {
    const Tensor x = logits(c, size);
    const SoftmaxXent op{.gradient = true,
                         .mixed = mix,
                         .smoothing = weighing.smoothing,
                         .weighted = weighing.weighted};
    record(c, op, weighed(c, x, size, weighing, mix));
  });
  // Of a network's outputs, which a step of 16 bits has in 16 bits.
  list.add("raw nll " + label, [&](Case& c) {
    const Tensor x = input(c, "x", {DType::f32, {size.rows, 7}}, positive);
    const Tensor y = linear("fc", x, {.out = size.classes});
    for (const Parameter& parameter : c.graph.parameters) c.fills[parameter.value] = positive;
    Nll raw = nll;
    raw.raw = true;
    record(c, raw, weighed(c, y, size, weighing, mix));
  });
}

// All labels are 0 and weigh nothing: with smoothing there is a loss, though no mean of it, and no
// gradient.
void add_weightless(List& list, std::int64_t classes) {
  const auto inputs = [classes](Case& c, const Tensor& x) {
    c.smooth = false;
    const Tensor labels = input(c, "labels", {DType::i32, {5}}, {Fill::Kind::constant, 0});
    const Tensor weights = c.graph.buffer("loss.weight", {classes}, {1}, false);
    c.fills[weights.id] = {Fill::Kind::rising, 0.5};
    return std::vector<Tensor>{x, labels, weights};
  };
  const auto x = [classes](Case& c) {
    return input(c, "logits", {DType::f32, {5, classes}}, {Fill::Kind::centered, 3});
  };
  const std::string label = fmt::format("of labels that weigh 0, 5x{}", classes);
  list.add("log_softmax and nll " + label, [=](Case& c) {
    record(c, Nll{.smoothing = 0.25, .weighted = true}, inputs(c, record(c, LogSoftmax{}, {x(c)})));
  });
  list.add("softmax_xent with gradient " + label, [=](Case& c) {
    record(c, SoftmaxXent{.gradient = true, .smoothing = 0.25, .weighted = true}, inputs(c, x(c)));
  });
}

void add_loss(List list) {
  list.add("loss.dgrad", [](Case& c) { record(c, LossGrad{}, {}); });
  list.add("loss.dgrad scaled",
           [](Case& c) { record(c, LossGrad{.scaled = true}, {c.graph.step_state()}); });
  using Kind = Fill::Kind;
  for (const Size& size : {
           Size{"of 128x10", 128, 10, {Kind::centered, 3}},
           Size{"of 5x2", 5, 2, {Kind::centered, 2}},
           Size{"of 3x1000", 3, 1000, {Kind::centered, 4}},
           Size{"of 1x3", 1, 3, {Kind::centered, 1}},
           Size{"of 3x17", 3, 17, {Kind::distinct, 1}},
           Size{"of one class", 3, 1, {Kind::centered, 1}, Kind::labels, false},
           Size{"of logits 80 and -80", 7, 10, {Kind::extreme, 80}},
           Size{"of logits up to 1e4", 6, 30, {Kind::distinct, 1e4}},
           Size{"of equal logits", 7, 10, {Kind::constant, 2.5}},
           Size{"of many ties", 33, 10, {Kind::coarse, 1}},
           Size{"with padding rows", 11, 10, {Kind::centered, 3}, Kind::padded},
           Size{"of padding rows alone", 5, 10, {Kind::centered, 3}, Kind::none},
           Size{"of 4096x1000", 4096, 1000, {Kind::centered, 4}, Kind::labels, true, true},
       })
    add(list, size);
  // Groups of 2, 4, 8 and 32 lanes and whole blocks, with a part of a group, one vector a lane and
  // more; one block, and several.
  for (const auto& [rows, classes] : {std::pair{3, 1},
                                      {300, 10},
                                      {33, 17},
                                      {40, 30},
                                      {70, 64},
                                      {9, 100},
                                      {20, 257},
                                      {3, 500},
                                      {2, 2500},
                                      {2, 9001}})
    add_width(list, rows, classes);
  // Few classes: labels that are their pair's, too.
  for (const Size& size : {
           Size{"of 128x10", 128, 10, {Kind::centered, 3}},
           Size{"of 9x2", 9, 2, {Kind::centered, 2}},
           Size{"of 3x1000", 3, 1000, {Kind::centered, 4}},
           Size{"with padding rows", 11, 10, {Kind::centered, 3}, Kind::padded},
       })
    add_mixed(list, size);
  for (const Weighing& weighing : {
           Weighing{"plainly", 0, false},
           Weighing{"smoothed", 0.1, false},
           Weighing{"weighted", 0, true},
           Weighing{"smoothed and weighted", 0.25, true},
           Weighing{"weighted by 0", 0.25, true, {Kind::constant, 0}},
       })
    for (const Size& size : {
             Size{"of 128x10", 128, 10, {Kind::centered, 3}},
             Size{"of 5x2", 5, 2, {Kind::centered, 2}},
             Size{"of 3x1000", 3, 1000, {Kind::centered, 4}},
             Size{"of 7x3000", 7, 3000, {Kind::centered, 4}},
             Size{"with padding rows", 11, 17, {Kind::centered, 3}, Kind::padded},
             Size{"of padding rows alone", 5, 10, {Kind::centered, 3}, Kind::none},
         })
      for (const bool mix : {false, true}) {
        if (weighing.smoothing == 0 && !weighing.weighted && size.rows != 11) continue;
        add_weighed(list, size, weighing, mix);
      }
  for (const std::int64_t classes : {10, 3000}) add_weightless(list, classes);
}

const Folder loss_cases("loss", add_loss);

}  // namespace
}  // namespace warpstep::cases::loss_cases
