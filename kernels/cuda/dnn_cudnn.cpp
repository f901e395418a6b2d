// cuDNN's graph API as a Library. A graph's plan comes from the cache, or is chosen: cuDNN's
// heuristics propose engine configurations (propose), the settings exclude some (objection), and
// the first that can be built and runs is used, or with --autotune the fastest of all that do.

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "engine/core/error.h"
#include "kernels/cuda/assumed_devices.h"
#include "kernels/cuda/autotune.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/dnn_cudnn_graph.h"
#include "kernels/cuda/plan_cache.h"

namespace warpstep::cuda::dnn {
namespace {

EngineConfig describe(Descriptor descriptor, bool is_fallback) {
  std::vector<Descriptor> engine =
      descriptor.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  if (engine.size() != 1) fail<DeviceError>("a cuDNN engine configuration without an engine");
  const auto index = engine[0].get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  auto numerical =
      engine[0].get_list<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
  auto behavior = engine[0].get_list<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE);
  return {std::move(descriptor), index, std::move(numerical), std::move(behavior), is_fallback};
}

constexpr std::array winograd_and_fft{
    CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
    CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
    CUDNN_NUMERICAL_NOTE_FFT};

bool is_winograd_or_fft(const EngineConfig& config) {
  return std::ranges::any_of(winograd_and_fft, [&](auto note) { return config.has(note); });
}

}  // namespace

bool EngineConfig::has(cudnnBackendNumericalNote_t note) const {
  return std::ranges::find(numerical, note) != numerical.end();
}

bool EngineConfig::has(cudnnBackendBehaviorNote_t note) const {
  return std::ranges::find(behavior, note) != behavior.end();
}

std::string EngineConfig::text() const {
  std::vector<std::string_view> notes;
  const auto note = [&](bool holds, std::string_view words) {
    if (holds) notes.push_back(words);
  };
  const bool is_compiled_late = has(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
  note(is_compiled_late, "runtime compiled");
  note(!is_compiled_late, "precompiled");
  note(has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE), "tensor cores");
  note(has(CUDNN_NUMERICAL_NOTE_WINOGRAD), "winograd");
  note(has(CUDNN_NUMERICAL_NOTE_FFT), "fft");
  note(has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC), "not deterministic");
  note(is_fallback, "fallback");
  return fmt::format("engine {} ({})", engine, fmt::join(notes, ", "));
}

std::vector<EngineConfig> propose(const Descriptor& graph, const Target& target,
                                  cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (target.handle == nullptr)
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.device);  // else the graph's handle's
  heuristics.finalize("cuDNN's heuristics");
  std::vector<EngineConfig> configs;
  for (Descriptor& result : heuristics.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                       CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
    configs.push_back(describe(std::move(result), mode == CUDNN_HEUR_MODE_FALLBACK));
  }
  return configs;
}

std::string objection(const EngineConfig& config, const Settings& settings, bool full_f32) {
  if (full_f32 && config.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) return "round f32 to tf32";
  // To f16, whose range f32 activations and gradients may exceed.
  if (config.has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) return "convert their inputs down";
  if (config.has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return "sum in 16 bits";
  if (settings.exact_math && is_winograd_or_fft(config)) return "use Winograd or FFT";
  if (settings.deterministic && config.has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) {
    return "are not deterministic";
  }
  return {};
}

namespace {

constexpr double mib = 1 << 20;

std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();  // 91900
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Descriptor device_descriptor(const Settings& settings) {
  Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  if (settings.has_device()) {
    device.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, std::int32_t{settings.ordinal});
  } else {
    device.set_list<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                          assumed_properties(settings.assumed));
  }
  device.finalize("the device's properties");
  return device;
}

bool all_f32(const Graph& graph) {
  return std::ranges::all_of(graph.tensors,
                             [](const Tensor& tensor) { return tensor.dtype == DType::f32; });
}

// Whether the driver's library can be loaded: cuDNN compiles some engines for it when they are
// planned.
bool has_driver() {
  static const bool found = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
  return found;
}

std::size_t bytes(const Tensor& tensor) {
  std::int64_t count = 1;
  for (std::size_t axis = 0; axis < tensor.dims.size(); ++axis) {
    count += (tensor.dims[axis] - 1) * tensor.strides[axis];
  }
  return static_cast<std::size_t>(count) * size_bytes(tensor.dtype);
}

// What happened to the configurations that cuDNN offered for one graph, for error messages.
class Verdicts {
 public:
  void offer(std::size_t n) { offered_ += n; }
  void drop(const std::string& why) { ++dropped_[why]; }
  void fail_to_run(const std::string& why) {
    some_did_not_run_ = true;
    drop(why);
  }
  bool some_did_not_run() const { return some_did_not_run_; }
  void refuse(std::string_view why) { refusals_ += fmt::format("; {:.200}", why); }
  std::string text() const {
    if (offered_ == 0) return "cuDNN offers no engine" + refusals_;
    std::vector<std::string> parts;
    for (const auto& [why, n] : dropped_) parts.push_back(fmt::format("{} {}", n, why));
    return fmt::format("cuDNN offers {} engine configurations{}{}{}", offered_,
                       parts.empty() ? "" : ", of which ", fmt::join(parts, ", "), refusals_);
  }

 private:
  std::size_t offered_ = 0;
  bool some_did_not_run_ = false;
  std::map<std::string, int> dropped_;
  std::string refusals_;  // errors of cuDNN's heuristics
};

Settings without_folder(Settings settings) {
  settings.cache.clear();
  return settings;
}

class CudnnLibrary final : public Library {
 public:
  explicit CudnnLibrary(const Settings& settings)
      : settings_(settings),
        device_(device_descriptor(settings)),
        cache_(settings, cudnn_version()),
        planned_(without_folder(settings), cudnn_version()) {}

  Planned plan(const Graph& graph) override;
  bool supports(const Graph& graph) override;
  void only_plan(bool on) override { only_plans_ = on; }
  std::string version() const override { return cudnn_version(); }

 private:
  using Plans = std::vector<std::unique_ptr<CudnnPlan>>;

  bool tries() const { return settings_.has_device() && !only_plans_; }
  bool measures() const { return settings_.autotune && tries(); }
  Stopwatch& stopwatch();
  Target target(bool by_handle);

  // Of the cache, where a run that tries plans for a handle first finds none of the others.
  std::string subject(const Graph& graph) const {
    return graph.key() + (settings_.plan_by_handle ? " by handle" : "");
  }
  std::unique_ptr<CudnnPlan> restore(const Graph& graph);
  void keep(const Graph& graph, const CudnnPlan& plan, bool is_final);
  // Throws DeviceLost if the device is lost, on which cuDNN refuses everything.
  void require_sound() const {
    if (settings_.has_device()) require_sound_device();
  }
  Planned refused(std::string why) const {
    require_sound();
    return {nullptr, std::move(why)};
  }
  // The plans that the settings allow, that cuDNN can build and, unless they are measured, that
  // run; best first, up to `enough`. Throws DeviceError if cuDNN refuses the graph.
  Plans usable(const Graph& graph, const Target& target, std::size_t enough, Verdicts& verdicts);
  std::vector<EngineConfig> offered(const Descriptor& operations, const Target& target,
                                    cudnnBackendHeurMode_t mode, Verdicts& verdicts) const;
  std::unique_ptr<CudnnPlan> build(const Graph& graph, const Target& target, EngineConfig config,
                                   Verdicts& verdicts);
  bool runs(const Graph& graph, const CudnnPlan& plan, const std::string& saved,
            Verdicts& verdicts);
  // The fastest of the plans, marked as measured; without memory to measure them the first, as it
  // is. Null if none runs.
  std::unique_ptr<CudnnPlan> measured(const Graph& graph, Plans plans, Verdicts& verdicts,
                                      bool& was_measured);

  Settings settings_;
  Descriptor device_;
  PlanCache cache_, planned_;  // the second has those that never ran, while only_plans_
  bool only_plans_ = false;
  std::array<std::map<std::string, bool>, 2> supported_;  // by key; the second while only_plans_
  std::set<std::string> ran_;           // the plans, as saved, that have run in this process
  std::optional<Stopwatch> stopwatch_;  // for all measurements: its stream has a handle
};

Stopwatch& CudnnLibrary::stopwatch() {
  if (!stopwatch_) stopwatch_.emplace();
  return *stopwatch_;
}

Target CudnnLibrary::target(bool by_handle) {
  return {device_, by_handle ? handle_of(stopwatch().stream()) : nullptr, settings_.has_device()};
}

Planned CudnnLibrary::plan(const Graph& graph) {
  if (attention_of(graph) != nullptr) {
    if (std::string why = attention_objection(graph, settings_); !why.empty())
      return {nullptr, std::move(why)};
    if (!settings_.has_device() && !has_driver())
      return {attention_planned_later(graph, settings_), {}};
  }
  if (std::unique_ptr<CudnnPlan> restored = restore(graph)) return {std::move(restored), {}};

  Verdicts verdicts;
  bool is_final = true;
  std::unique_ptr<CudnnPlan> chosen;
  for (const bool by_handle : {settings_.plan_by_handle, !settings_.plan_by_handle}) {
    Plans plans;
    try {
      plans = usable(graph, target(by_handle), measures() ? SIZE_MAX : 1, verdicts);
    } catch (const DeviceLost&) {
      throw;
    } catch (const OutOfDeviceMemory&) {  // for the handle: that says nothing about the graph
      throw;
    } catch (const DeviceError& error) {
      return refused(error.what());
    }
    if (!plans.empty())
      chosen = measures() ? measured(graph, std::move(plans), verdicts, is_final)
                          : std::move(plans.front());
    // Where plans were built and none runs, perhaps one of the other way does.
    if (chosen != nullptr || !verdicts.some_did_not_run()) break;
  }
  if (chosen == nullptr) return refused(verdicts.text());
  keep(graph, *chosen, is_final);
  return {std::move(chosen), {}};
}

void CudnnLibrary::keep(const Graph& graph, const CudnnPlan& plan, bool is_final) {
  if (only_plans_)
    planned_.keep(subject(graph), plan.saved());
  else if (is_final)
    cache_.keep(subject(graph), plan.saved());
  else
    cache_.keep_unmeasured(subject(graph), plan.saved());
}

bool CudnnLibrary::supports(const Graph& graph) {
  const std::string key = graph.key();
  std::map<std::string, bool>& supported = supported_[only_plans_ ? 1 : 0];
  if (const auto known = supported.find(key); known != supported.end()) return known->second;
  return supported[key] = plan(graph).plan != nullptr;
}

std::unique_ptr<CudnnPlan> CudnnLibrary::restore(const Graph& graph) {
  std::optional<std::string> saved = cache_.find(subject(graph));
  if (!saved && only_plans_) saved = planned_.find(subject(graph));
  if (!saved || saved->find('\n') == std::string::npos) return nullptr;
  Verdicts verdicts;
  try {
    auto plan = std::make_unique<CudnnPlan>(graph, target(CudnnPlan::is_by_handle(*saved)), *saved);
    if (!runs(graph, *plan, *saved, verdicts)) return nullptr;
    return plan;
  } catch (const DeviceLost&) {
    throw;
  } catch (const DeviceError&) {
    return nullptr;  // saved by a different build of the same cuDNN version: plan again
  }
}

CudnnLibrary::Plans CudnnLibrary::usable(const Graph& graph, const Target& target,
                                         std::size_t enough, Verdicts& verdicts) {
  const bool full_f32 = !settings_.tf32 && all_f32(graph);
  const OperationGraph operations(graph, target.handle);
  Plans plans;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (!plans.empty()) break;  // the general engines are never faster
    std::vector<EngineConfig> configs = offered(operations.descriptor(), target, mode, verdicts);
    for (EngineConfig& config : configs) {
      if (plans.size() >= enough) break;
      if (adds_in_any_order(graph))
        config.numerical.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
      if (const std::string why = objection(config, settings_, full_f32); !why.empty()) {
        verdicts.drop(why);
      } else if (auto plan = build(graph, target, std::move(config), verdicts)) {
        plans.push_back(std::move(plan));
      }
    }
  }
  return plans;
}

std::vector<EngineConfig> CudnnLibrary::offered(const Descriptor& operations, const Target& target,
                                                cudnnBackendHeurMode_t mode,
                                                Verdicts& verdicts) const {
  try {
    std::vector<EngineConfig> configs = propose(operations, target, mode);
    verdicts.offer(configs.size());
    return configs;
  } catch (const DeviceError& nothing) {
    verdicts.refuse(nothing.what());
    return {};
  }
}

std::unique_ptr<CudnnPlan> CudnnLibrary::build(const Graph& graph, const Target& target,
                                               EngineConfig config, Verdicts& verdicts) {
  const std::string engine = config.text();
  std::unique_ptr<CudnnPlan> plan;
  try {
    plan = std::make_unique<CudnnPlan>(graph, target, std::move(config));
  } catch (const DeviceError& error) {
    verdicts.drop(fmt::format("cannot be built ({}: {:.200})", engine, error.what()));
    return nullptr;
  }
  if (plan->workspace_bytes() > settings_.workspace_cap) {
    verdicts.drop(fmt::format("need more than {:.1f} MiB of workspace",
                              static_cast<double>(settings_.workspace_cap) / mib));
    return nullptr;
  }
  if (measures() || !tries()) return plan;
  return runs(graph, *plan, plan->saved(), verdicts) ? std::move(plan) : nullptr;
}

// Memory for a run outside of a step.
struct TrialMemory {
  std::vector<std::shared_ptr<std::byte>> owned;
  std::vector<Binding> bindings;
  std::byte* workspace = nullptr;
};

template <class Allocate>
TrialMemory trial_memory(const Graph& graph, std::size_t workspace_bytes, Allocate allocate) {
  TrialMemory memory;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.is_virtual) continue;
    memory.owned.push_back(allocate(tensor));
    memory.bindings.push_back({tensor.uid, memory.owned.back().get()});
  }
  memory.owned.push_back(allocate_device(std::max<std::size_t>(16, workspace_bytes)));
  memory.workspace = memory.owned.back().get();
  return memory;
}

// Whether a plan runs that cuDNN has built; true where that cannot be tried. On zeros: only a
// measurement needs other numbers.
bool CudnnLibrary::runs(const Graph& graph, const CudnnPlan& plan, const std::string& saved,
                        Verdicts& verdicts) {
  if (!tries() || ran_.contains(saved)) return true;
  std::string why;
  try {
    const TrialMemory memory =
        trial_memory(graph, plan.workspace_bytes(),
                     [](const Tensor& tensor) { return allocate_device(bytes(tensor)); });
    why = stopwatch().why_not(
        [&](CudaStream& stream) { plan.execute(stream, memory.bindings, memory.workspace); });
  } catch (const OutOfDeviceMemory&) {
    return true;  // a step that fits shares memory among its calls, which is not planned yet
  }
  if (why.empty()) {
    ran_.insert(saved);
    return true;
  }
  verdicts.fail_to_run(fmt::format("do not run ({}: {:.200})", plan.implementation(), why));
  return false;
}

std::unique_ptr<CudnnPlan> CudnnLibrary::measured(const Graph& graph, Plans plans,
                                                  Verdicts& verdicts, bool& was_measured) {
  std::size_t workspace_bytes = 0;
  for (const auto& plan : plans) {
    workspace_bytes = std::max(workspace_bytes, plan->workspace_bytes());
  }
  std::string why;
  std::optional<Chosen> best;
  try {
    const TrialMemory memory = trial_memory(graph, workspace_bytes, [](const Tensor& tensor) {
      return random_values(tensor.dtype, bytes(tensor));
    });
    std::vector<Enqueue> candidates;
    for (const auto& plan : plans) {
      candidates.emplace_back([&memory, plan = plan.get()](CudaStream& stream) {
        plan->execute(stream, memory.bindings, memory.workspace);
      });
    }
    best = fastest_or_first(stopwatch(), candidates, true, why);
  } catch (const OutOfDeviceMemory&) {  // see runs()
    was_measured = false;
    return std::move(plans.front());
  }
  if (!best) {
    verdicts.fail_to_run(fmt::format("do not run ({:.400})", why));
    return nullptr;
  }
  was_measured = best->measured;
  if (was_measured) plans[best->candidate]->mark_measured();
  ran_.insert(plans[best->candidate]->saved());
  return std::move(plans[best->candidate]);
}

}  // namespace

std::unique_ptr<Library> open_library(const Settings& settings) {
  return std::make_unique<CudnnLibrary>(settings);
}

}  // namespace warpstep::cuda::dnn
