#include "kernels/cuda/own_kernels.h"

#include <algorithm>

#include "kernels/cuda/check.h"
#include "kernels/cuda/launch_kernel.h"

namespace warpstep::cuda {
namespace {

constexpr std::string_view chosen_own = "own", chosen_library = "library";

// All that the kernels depend on.
std::string key_of(const warpstep::Operands& operands) {
  std::string key = fmt::format("{} {}:", name(operands.node.op), text(operands.node.op));
  const auto add = [&](const Value& value) {
    key +=
        fmt::format(" {} ({}, {} bytes)", value.type.text(), value.layout.tag, value.layout.bytes);
  };
  for (const int id : operands.node.in) add(operands.graph.value(id));
  key += " to";
  for (const int id : operands.node.out) add(operands.graph.value(id));
  return key;
}

// Memory for a run outside of a step.
class TrialBuffers {
 public:
  TrialBuffers(const warpstep::Operands& operands, std::size_t workspace_bytes) {
    const auto allocate = [&](const std::vector<int>& ids, std::vector<void*>& to) {
      for (const int id : ids) {
        const Value& value = operands.graph.value(id);
        owned_.push_back(is_float(value.type.dtype)
                             ? random_values(value.type.dtype, value.layout.bytes)
                             : allocate_device(value.layout.bytes));
        to.push_back(owned_.back().get());
      }
    };
    allocate(operands.node.in, in_);
    allocate(operands.node.out, out_);
    owned_.push_back(allocate_device(workspace_bytes));
  }
  Buffers buffers() const { return {in_, out_, owned_.back().get()}; }

 private:
  std::vector<std::shared_ptr<std::byte>> owned_;
  std::vector<void*> in_, out_;
};

}  // namespace

OwnKernels::OwnKernels(const Settings& settings, std::string_view versions)
    : measures_(settings.autotune && settings.has_device()),
      cache_(settings, fmt::format("own kernels of {}", versions)) {}

std::unique_ptr<Kernel> OwnKernels::or_faster(
    std::unique_ptr<Kernel> own, const warpstep::Operands& operands,
    const std::function<std::unique_ptr<Kernel>()>& library) {
  // Without --autotune, what an earlier run measured.
  const std::string key = key_of(operands);
  const std::optional<std::string> kept = cache_.find(key);
  if (kept ? *kept == chosen_own : !measures_ || only_plans_) return own;
  std::unique_ptr<Kernel> other;
  try {
    other = library();
  } catch (const DeviceLost&) {
    throw;
  } catch (const DeviceError&) {  // no engine
    require_sound_device();
    return own;
  }
  if (kept) return other;
  std::optional<TrialBuffers> trial;
  try {
    trial.emplace(operands, std::max(own->workspace_bytes(), other->workspace_bytes()));
  } catch (const OutOfDeviceMemory&) {
    return own;
  }
  const auto candidate = [&](const Kernel& kernel) {
    return [&](CudaStream& stream) { kernel.enqueue(stream, trial->buffers()); };
  };
  if (!stopwatch_) stopwatch_.emplace();
  const auto best = fastest(*stopwatch_, {candidate(*own), candidate(*other)});
  if (!best) return own;
  cache_.keep(key, *best == 0 ? chosen_own : chosen_library);
  return *best == 0 ? std::move(own) : std::move(other);
}

}  // namespace warpstep::cuda
