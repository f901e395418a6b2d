#include "tools/warpstep/update_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "engine/core/error.h"

namespace warpstep::tools {
namespace {

// A number from 0 on, up to `most`.
TextCheck number_up_to(double most, bool reached) {
  return [check = number_from_zero(), most, reached](const std::string& text) {
    std::string wrong = check(text);
    const double value = wrong.empty() ? std::stod(text) : 0;
    if (value > most || (!reached && value == most))
      wrong =
          fmt::format("'{}' is not a number from 0 {} {}", text, reached ? "to" : "to below", most);
    return wrong;
  };
}

}  // namespace

void declare_update_options(CLI::App& app, RunOptions& o) {
  app.add_option("--loss", o.loss,
                 "cross_entropy, or nll: the model's outputs count as log-probabilities")
      ->capture_default_str()
      ->check(CLI::IsMember({"cross_entropy", "nll"}));
  app.add_option("--label-smoothing", o.label_smoothing,
                 "share of each label that is spread over all classes")
      ->capture_default_str()
      ->check(number_up_to(1, true));
  app.add_option("--class-weights", o.class_weights,
                 "of each class in the loss, in the order of the data set's classes: 1,2.5,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(number_from_zero());
  app.add_option("--clip-norm", o.clip_norm,
                 "largest norm of all gradients together; longer ones are scaled; 0: any")
      ->capture_default_str()
      ->check(number_from_zero());
  app.add_option("--accumulate", o.accumulate, "batches whose gradients make one update")
      ->capture_default_str()
      ->check(whole_number(1, 1'000'000'000));
  app.add_option("--ema", o.ema,
                 "keep an average of the weights that decays so, and evaluate it; 0: none")
      ->capture_default_str()
      ->check(number_up_to(1, false));
  app.add_option("--trust", o.trust, "of lars: the trust coefficient")
      ->capture_default_str()
      ->check(number_from_zero());
}

LossOptions loss_options(const RunOptions& o, std::int64_t classes) {
  if (!o.class_weights.empty() && o.class_weights.size() != idx(classes))
    fail<UsageError>(
        "--class-weights has {} value{}, but the data have {} classes; give one a class, in the "
        "order that `warpstep data info` lists them",
        o.class_weights.size(), o.class_weights.size() == 1 ? "" : "s", classes);
  return {.label_smoothing = o.label_smoothing,
          .class_weights = {o.class_weights.begin(), o.class_weights.end()},
          .raw = o.loss == "nll"};
}

UpdateOptions update_options(const RunOptions& o) {
  return {.clip_norm = o.clip_norm, .accumulate = o.accumulate, .average_decay = o.ema};
}

Optimizer optimizer_of(const RunOptions& o) {
  Optimizer optimizer{.momentum = o.momentum,
                      .nesterov = o.nesterov,
                      .weight_decay = o.weight_decay,
                      .beta1 = o.betas.at(0),
                      .beta2 = o.betas.at(1),
                      .epsilon = o.epsilon,
                      .trust = o.trust};
  optimizer.kind = o.optimizer == "sgd"    ? Optimizer::Kind::sgd
                   : o.optimizer == "adam" ? Optimizer::Kind::adam
                   : o.optimizer == "lars" ? Optimizer::Kind::lars
                                           : Optimizer::Kind::adamw;
  if (optimizer.adaptive() && (o.momentum != 0 || o.nesterov))
    fail<UsageError>("--momentum and --nesterov go with --optimizer sgd or lars; {} has --betas",
                     o.optimizer);
  if (!optimizer.adaptive() && o.nesterov && o.momentum == 0)
    fail<UsageError>("--nesterov needs a --momentum above 0");
  if (optimizer.adaptive() && (o.betas[0] >= 1 || o.betas[1] >= 1))
    fail<UsageError>("--betas must be below 1");
  if (optimizer.kind == Optimizer::Kind::lars && o.trust == 0)
    fail<UsageError>("--trust 0: nothing but biases would be trained; PyTorch's usual is 0.001");
  return optimizer;
}

}  // namespace warpstep::tools
