#include "engine/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/safetensors.h"

namespace warpstep {
namespace {

using Section = Store::Section;

constexpr std::string_view format_version = "1";

// PyTorch's name of a moment.
std::string_view moment_name(Optimizer::Kind optimizer, Section section) {
  if (section == Section::accumulator) return "gradient_sum";
  if (!Optimizer{.kind = optimizer}.adaptive()) return "momentum_buffer";
  return section == Section::moment1 ? "exp_avg" : "exp_avg_sq";
}

std::vector<Section> moment_sections(const Store& store) {
  std::vector<Section> sections;
  if (store.moment_count() > 0) sections.push_back(Section::moment1);
  if (store.moment_count() > 1) sections.push_back(Section::moment2);
  if (store.step_state().update == 0) sections.push_back(Section::accumulator);
  return sections;
}

std::string tensor_name(const Parameter& parameter, Optimizer::Kind optimizer, Section section) {
  if (section == Section::parameter) return parameter.name;
  if (section == Section::average) return "ema." + parameter.name;
  return fmt::format("optimizer.{}.{}", moment_name(optimizer, section), parameter.name);
}

std::string exact(double value) {
  return fmt::format("{:a}", value);
}

double parse_exact(const nlohmann::json& text) {
  return std::strtod(text.get<std::string>().c_str(), nullptr);
}

nlohmann::json to_json(const Score& score) {
  return {{"loss_sum", exact(score.loss_sum)}, {"correct", score.correct}, {"count", score.count}};
}

Score score_from(const nlohmann::json& json) {
  return {parse_exact(json.at("loss_sum")), json.at("correct").get<std::int64_t>(),
          json.at("count").get<std::int64_t>()};
}

nlohmann::json to_json(const Progress& progress, const StepState& state) {
  nlohmann::json json{{"step", progress.step},
                      {"next_epoch", progress.next.epoch},
                      {"next_step", progress.next.step},
                      {"epoch_score", to_json(progress.epoch_score)},
                      {"optimizer_step", state.step},
                      {"skipped_steps", state.skipped},
                      {"good_steps", state.good_steps},
                      {"micro_step", state.micro_step},
                      {"only_accumulated", state.update == 0},
                      {"overflow", state.overflow != 0},
                      {"loss_scale", exact(static_cast<double>(state.loss_scale))}};
  if (progress.evaluation)
    json["evaluation"] = {{"epoch", progress.evaluation->epoch},
                          {"step", progress.evaluation->step},
                          {"score", to_json(progress.evaluation->score)}};
  return json;
}

Progress progress_from(const nlohmann::json& json) {
  Progress progress;
  progress.step = json.at("step").get<std::uint64_t>();
  progress.next = {json.at("next_epoch").get<std::uint64_t>(),
                   json.at("next_step").get<std::uint64_t>()};
  progress.epoch_score = score_from(json.at("epoch_score"));
  if (json.contains("evaluation")) {
    const nlohmann::json& e = json.at("evaluation");
    progress.evaluation =
        EvaluationRecord{e.at("epoch").get<std::uint64_t>(), e.at("step").get<std::uint64_t>(),
                         score_from(e.at("score")), 0};
  }
  return progress;
}

std::string metadata_entry(const SafetensorsFile& file, const std::string& key) {
  const auto entry = file.metadata().find(key);
  if (entry == file.metadata().end())
    fail<DataError>("{}: no metadata '{}': not a checkpoint of Warpstep", file.path().string(),
                    key);
  return entry->second;
}

// FNV-1a over 32-bit words: any one changed word changes it. Some 1 ns a value, less than the disk.
std::uint64_t checksum(std::span<const float> values) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const float value : values)
    hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3;
  return hash;
}

std::string checksum_key(const std::string& tensor) {
  return "warpstep.checksum." + tensor;
}

std::string checksum_text(std::span<const float> values) {
  return fmt::format("{:016x}", checksum(values));
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, "x"));
}

// Everything that does not fit, in one message: a user fixes a wrong model once, not tensor by
// tensor.
void require_tensors(const SafetensorsFile& file, const Store& store) {
  std::vector<std::string> problems;
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    const std::string& parameter = store.parameters()[p].name;
    const StoredTensor* tensor = file.find(parameter);
    const Shape shape = store.torch_shape(p);
    if (!tensor)
      problems.push_back(fmt::format("{} is missing", parameter));
    else if (tensor->type != StoredType::f32 ||
             !std::equal(shape.extents().begin(), shape.extents().end(), tensor->shape.begin(),
                         tensor->shape.end(),
                         [](auto a, auto b) { return static_cast<std::uint64_t>(a) == b; }))
      problems.push_back(fmt::format("{} is {} {}, the model wants F32 {}", parameter,
                                     name(tensor->type), shape_text(tensor->shape), shape.text()));
  }
  for (const StoredTensor& tensor : file.tensors()) {
    const bool known = tensor.name.starts_with("optimizer.") || tensor.name.starts_with("ema.") ||
                       std::any_of(store.parameters().begin(), store.parameters().end(),
                                   [&](const Parameter& p) { return p.name == tensor.name; });
    if (!known) problems.push_back(fmt::format("{} is not in the model", tensor.name));
  }
  if (!problems.empty())
    fail<DataError>("{}: weights of another model: {}", file.path().string(),
                    fmt::join(problems, "; "));
}

bool has_average(const SafetensorsFile& file, const Store& store) {
  return file.find(tensor_name(store.parameters().front(), {}, Section::average)) != nullptr;
}

// What is kept for section `from`, into section `to`.
void load_section(const SafetensorsFile& file, Store& store, Optimizer::Kind optimizer,
                  Section from, Section to) {
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    const StoredTensor& tensor = file.at(tensor_name(store.parameters()[p], optimizer, from));
    std::vector<float> values(tensor.bytes / sizeof(float));
    file.read(tensor, std::as_writable_bytes(std::span(values)));
    // Weights that another program wrote have no checksum.
    const auto expected = file.metadata().find(checksum_key(tensor.name));
    if (expected != file.metadata().end() && expected->second != checksum_text(values))
      fail<DataError>(
          "{}: byte {}: {} is not as it was saved (wrong checksum); the disk or a copy "
          "damaged it: use another checkpoint",
          file.path().string(), tensor.offset, tensor.name);
    store.write(p, values, to);
  }
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Store& store,
                     Optimizer::Kind optimizer, const Progress& progress,
                     const CheckpointInfo& info) {
  std::vector<Section> sections = moment_sections(store);
  sections.insert(sections.begin(), Section::parameter);
  if (store.section_bytes(Section::average) > 0) sections.push_back(Section::average);
  std::vector<std::vector<float>> values;
  std::vector<TensorToStore> tensors;
  for (const Section section : sections)
    for (std::size_t p = 0; p < store.parameters().size(); ++p) {
      values.push_back(store.read(p, section));
      const Shape shape = store.torch_shape(p);
      tensors.push_back({tensor_name(store.parameters()[p], optimizer, section),
                         StoredType::f32,
                         {shape.extents().begin(), shape.extents().end()},
                         {}});
    }
  Metadata metadata{{"format", "pt"},
                    {"warpstep.version", std::string(format_version)},
                    {"warpstep.model", info.model},
                    {"warpstep.config", info.config_json},
                    {"warpstep.optimizer", std::string(name(optimizer))},
                    {"warpstep.progress", to_json(progress, store.step_state()).dump()}};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].bytes = std::as_bytes(std::span(values[i]));
    metadata[checksum_key(tensors[i].name)] = checksum_text(values[i]);
  }
  write_safetensors(path, tensors, metadata);
}

void load_parameters(const std::filesystem::path& path, Store& store, bool average) {
  const SafetensorsFile file(path);
  require_tensors(file, store);
  const bool there = average && has_average(file, store);
  load_section(file, store, Optimizer::Kind::sgd, there ? Section::average : Section::parameter,
               Section::parameter);
}

Progress load_checkpoint(const std::filesystem::path& path, Store& store,
                         Optimizer::Kind optimizer) {
  const SafetensorsFile file(path);
  if (const std::string found = metadata_entry(file, "warpstep.version"); found != format_version)
    fail<DataError>("{}: checkpoint format {}, this program reads {}", path.string(), found,
                    format_version);
  if (const std::string found = metadata_entry(file, "warpstep.optimizer");
      found != name(optimizer))
    fail<DataError>("{}: made with --optimizer {}; resume with the same, not {}", path.string(),
                    found, name(optimizer));
  require_tensors(file, store);
  load_section(file, store, optimizer, Section::parameter, Section::parameter);
  if (store.section_bytes(Section::average) > 0)  // an average that begins now begins here
    load_section(file, store, optimizer,
                 has_average(file, store) ? Section::average : Section::parameter,
                 Section::average);
  try {
    const auto json = nlohmann::json::parse(metadata_entry(file, "warpstep.progress"));
    StepState state = store.step_state();
    state.step = json.at("optimizer_step").get<std::int64_t>();
    state.skipped = json.value("skipped_steps", std::int64_t{0});
    state.good_steps = json.value("good_steps", 0);
    state.overflow = json.value("overflow", false) ? 1 : 0;
    state.micro_step = json.value("micro_step", 0);
    state.update = json.value("only_accumulated", false) ? 0 : 1;
    state.loss_scale = static_cast<float>(parse_exact(json.at("loss_scale")));
    store.set_step_state(state);
    for (const Section section : moment_sections(store))
      load_section(file, store, optimizer, section, section);
    return progress_from(json);
  } catch (const nlohmann::json::exception& error) {
    fail<DataError>("{}: metadata 'warpstep.progress' is broken: {}", path.string(), error.what());
  }
}

CheckpointInfo read_checkpoint_info(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  return {metadata_entry(file, "warpstep.model"), metadata_entry(file, "warpstep.config")};
}

}  // namespace warpstep
