// The targets of a row's loss, for the host's kernels: its label and, in a mixed row, a second
// one, with label smoothing and class weights.
#pragma once

#include <cstdint>

#include "engine/core/pixels.h"

namespace warpstep {

// The loss is weight * loss(label) + rest * loss(pair). `label` is below 0 in a row of padding,
// `pair` is -1 in a row that is not mixed.
struct Targets {
  std::int32_t label = -1, pair = -1;
  float weight = 1, rest = 0;
};

// The targets of row n; `rows` is null where no row is mixed.
inline Targets targets_of(const std::int32_t* labels, const RowPlan* rows, std::int64_t n) {
  Targets t{.label = labels[n]};
  if (rows == nullptr || t.label < 0 || !(rows[n].weight < 1) || rows[n].pair_label < 0) return t;
  t.pair = rows[n].pair_label;
  t.weight = rows[n].weight;
  t.rest = 1 - t.weight;
  return t;
}

// The loss of a row is the sum over classes of wanted() times -log p: wanted() is the target.
template <class Real>
class Criterion {
 public:
  // `weights` [classes]; null: all are 1. `rows` as above.
  Criterion(double smoothing, const Real* weights, std::int64_t classes, const RowPlan* rows)
      : smoothing_(static_cast<Real>(smoothing)),
        weights_(weights),
        classes_(classes),
        rows_(rows) {}

  bool is_smooth() const { return smoothing_ != 0; }  // every class is wanted a little
  Targets targets(const std::int32_t* labels, std::int64_t n) const {
    return targets_of(labels, rows_, n);
  }
  Real wanted(const Targets& t, std::int64_t k) const {
    return weight(k) * ((1 - smoothing_) * share(t, k) + spread());
  }
  // The part of wanted() that only the labels have; spread() times its weight is every class's.
  Real wanted_as_label(const Targets& t, std::int64_t k) const {
    return weight(k) * ((1 - smoothing_) * share(t, k));
  }
  Real spread() const { return smoothing_ / static_cast<Real>(classes_); }
  const Real* weights() const { return weights_; }  // null: all are 1
  double sum_of_weights() const {
    if (!weights_) return static_cast<double>(classes_);
    double sum = 0;
    for (std::int64_t k = 0; k < classes_; ++k) sum += static_cast<double>(weights_[k]);
    return sum;
  }
  // The sum of wanted() times row[k] - from.
  Real of(const Targets& t, const Real* row, Real from = 0) const {
    double all = 0;
    for (std::int64_t k = 0; is_smooth() && k < classes_; ++k)
      all += static_cast<double>(weight(k) * (row[k] - from));
    return of(t, row, from, all);
  }
  // The same where `all`, the sum over all classes of their weights times row[k] - from, is known;
  // without smoothing it counts for nothing.
  Real of(const Targets& t, const Real* row, Real from, double all) const {
    Real sum = first(t) * weight(t.label) * (row[t.label] - from);
    if (t.pair >= 0) sum += rest(t) * weight(t.pair) * (row[t.pair] - from);
    if (!is_smooth()) return sum;
    return (1 - smoothing_) * sum + spread() * static_cast<Real>(all);
  }
  // The sum of wanted() over all classes, from sum_of_weights(); without smoothing that counts for
  // nothing.
  Real total(const Targets& t, double weights) const {
    if (!is_smooth()) return of_labels(t);
    return (1 - smoothing_) * of_labels(t) + spread() * static_cast<Real>(weights);
  }
  // The factor from the sum of the rows' losses to their mean: 1 / the sum of their labels'
  // weights, or 0 where that sum is 0. Then there is no gradient and the loss is the sum, which is
  // not 0 with smoothing: sums over several batches need it.
  double mean(const std::int32_t* labels, std::int64_t count) const {
    double sum = 0;
    for (std::int64_t n = 0; n < count; ++n)
      if (labels[n] >= 0) sum += weights_ ? static_cast<double>(of_labels(targets(labels, n))) : 1;
    return sum > 0 ? 1 / sum : 0;
  }

 private:
  static Real first(const Targets& t) { return static_cast<Real>(t.weight); }
  static Real rest(const Targets& t) { return t.pair < 0 ? 0 : 1 - first(t); }
  Real weight(std::int64_t k) const { return weights_ ? weights_[k] : 1; }
  static Real share(const Targets& t, std::int64_t k) {
    return (k == t.label ? first(t) : 0) + (k == t.pair ? rest(t) : 0);
  }
  Real of_labels(const Targets& t) const {
    return first(t) * weight(t.label) + (t.pair < 0 ? 0 : rest(t) * weight(t.pair));
  }

  Real smoothing_;
  const Real* weights_;
  std::int64_t classes_;
  const RowPlan* rows_;
};

// The criterion of a loss whose labels are operand `labels` of `in`; row plans and weights follow.
template <class Real, class Op, class Operands>
Criterion<Real> criterion_of(const Op& op, const Operands& in, std::size_t labels,
                             std::int64_t classes) {
  const std::size_t weights = labels + (op.mixed ? 2 : 1);
  return {op.smoothing, op.weighted ? static_cast<const Real*>(in[weights]) : nullptr, classes,
          op.mixed ? static_cast<const RowPlan*>(in[labels + 1]) : nullptr};
}

}  // namespace warpstep
