#include "kernels/cuda/dnn_cudnn_engines.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "engine/core/error.h"

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

std::vector<EngineConfig> propose(const Descriptor& graph, const Descriptor& device,
                                  cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode)
      .set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device)
      .finalize("cuDNN's heuristics");
  std::vector<EngineConfig> configs;
  for (Descriptor& result : heuristics.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                       CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
    configs.push_back(describe(std::move(result), mode == CUDNN_HEUR_MODE_FALLBACK));
  }
  return configs;
}

std::string objection(const EngineConfig& config, const Settings& settings, bool full_f32) {
  if (full_f32 && config.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) return "round f32 to tf32";
  // To f16, out of whose range activations and gradients in f32 may lie.
  if (config.has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) return "convert their inputs down";
  if (config.has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return "sum in 16 bits";
  if (settings.exact_math && is_winograd_or_fft(config)) return "use Winograd or FFT";
  if (settings.deterministic && config.has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) {
    return "are not deterministic";
  }
  return {};
}

}  // namespace warpstep::cuda::dnn
