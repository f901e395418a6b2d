// The cases of Warpstep's own ops. A project with its own ops defines its own all().
#include "kernels/cases.h"

namespace warpstep::cases {

std::vector<Case> all() {
  std::vector<Case> cases;
  add_conv(List(cases, "conv"));
  add_dropout(List(cases, "dropout"));
  add_linear(List(cases, "linear"));
  add_loss(List(cases, "loss"));
  add_norm(List(cases, "norm"));
  add_norm_conv(List(cases, "norm_conv"));
  add_pixels(List(cases, "pixels"));
  add_pointwise(List(cases, "pointwise"));
  add_pool(List(cases, "pool"));
  add_avg_pool(List(cases, "pool"));
  add_update(List(cases, "update"));
  return cases;
}

}  // namespace warpstep::cases
