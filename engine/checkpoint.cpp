#include "engine/checkpoint.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/safetensors_values.h"
#include "engine/weights.h"

namespace warpstep {
namespace {

using Section = Store::Section;

constexpr std::string_view format_version = "1";

// PyTorch's name of a moment; that of a sum of gradients is ours.
std::string_view moment_name(Optimizer::Kind optimizer, Section section) {
  if (section == Section::accumulator) return "gradient_sum";
  const bool adaptive = Optimizer{.kind = optimizer}.adaptive();
  if (!adaptive) return "momentum_buffer";
  return section == Section::moment1 ? "exp_avg" : "exp_avg_sq";
}

// What is kept of what is trained, besides the parameters and their average. A sum of gradients
// means something between two updates alone.
std::vector<Section> kept_sections(const Store& store) {
  std::vector<Section> sections;
  for (const Section section : {Section::moment1, Section::moment2})
    if (store.section_bytes(section) > 0) sections.push_back(section);
  if (store.step_state().update == 0) sections.push_back(Section::accumulator);
  return sections;
}

std::string tensor_name(const Parameter& parameter, Optimizer::Kind optimizer, Section section) {
  if (section == Section::average) return fmt::format("{}{}", average_prefix, parameter.name);
  return fmt::format("{}{}.{}", optimizer_prefix, moment_name(optimizer, section), parameter.name);
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

std::vector<std::uint64_t> extents_of(const Shape& shape) {
  return {shape.extents().begin(), shape.extents().end()};
}

bool has_average(const SafetensorsFile& file, const Store& store) {
  return file.find(tensor_name(store.parameters().front(), {}, Section::average)) != nullptr;
}

// What the file has for section `from`, into section `to`.
void load_section(const SafetensorsFile& file, Store& store, Optimizer::Kind optimizer,
                  Section from, Section to) {
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    const StoredTensor& tensor = file.at(tensor_name(store.parameters()[p], optimizer, from));
    const Shape shape = store.torch_shape(p);
    if (tensor.type != StoredType::f32 || tensor.shape != extents_of(shape))
      fail<DataError>("{}: {} is {} of {} bytes, the model wants F32 {}", file.path().string(),
                      tensor.name, name(tensor.type), tensor.bytes, shape.text());
    store.write(p, read_values(file, tensor), to);
  }
}

// What goes into a file, with the numbers that it borrows.
struct Kept {
  std::vector<TensorToStore> tensors;
  std::vector<std::vector<float>> values;
  Metadata checksums;

  void add(const std::string& name, const Shape& shape, std::vector<float> numbers) {
    ValueChecksum checksum;
    checksum.add(numbers);
    checksums[std::string(checksum_prefix) + name] = checksum.text();
    const std::vector<float>& kept = values.emplace_back(std::move(numbers));
    tensors.push_back({name, StoredType::f32, extents_of(shape), std::as_bytes(std::span(kept))});
  }
};

// PyTorch's counts of the batches that went into a running mean, which strict loading wants: first,
// as the widest, so that every tensor of the file is aligned.
void add_batch_counts(std::span<const StateTensor> state, const std::int64_t& steps, Kept& kept) {
  for (const StateTensor& tensor : state)
    if (const std::string name = batch_count_name(tensor.name); !name.empty())
      kept.tensors.push_back({name, StoredType::i64, {}, std::as_bytes(std::span(&steps, 1))});
}

void add_section(const Store& store, Optimizer::Kind optimizer, Section section, Kept& kept) {
  for (std::size_t p = 0; p < store.parameters().size(); ++p)
    kept.add(tensor_name(store.parameters()[p], optimizer, section), store.torch_shape(p),
             store.read(p, section));
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Store& store,
                     Optimizer::Kind optimizer, const Progress& progress,
                     const CheckpointInfo& info) {
  const auto steps = static_cast<std::int64_t>(progress.step);
  const std::vector<StateTensor> state = state_of(store);
  Kept kept;
  add_batch_counts(state, steps, kept);
  for (const StateTensor& tensor : state) kept.add(tensor.name, tensor.shape, read(store, tensor));
  for (const Section section : kept_sections(store)) add_section(store, optimizer, section, kept);
  if (store.section_bytes(Section::average) > 0)
    add_section(store, optimizer, Section::average, kept);
  Metadata metadata{{"format", "pt"},
                    {"warpstep.version", std::string(format_version)},
                    {"warpstep.model", info.model},
                    {"warpstep.config", info.config_json},
                    {"warpstep.optimizer", std::string(name(optimizer))},
                    {"warpstep.progress", to_json(progress, store.step_state()).dump()}};
  metadata.merge(kept.checksums);
  write_safetensors(path, kept.tensors, metadata);
}

void load_parameters(const std::filesystem::path& path, Store& store, bool average) {
  load_weights(path, store);
  const SafetensorsFile file(path);
  if (average && has_average(file, store))
    load_section(file, store, Optimizer::Kind::sgd, Section::average, Section::parameter);
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
  load_weights(path, store);
  if (store.section_bytes(Section::average) > 0 && has_average(file, store))
    load_section(file, store, optimizer, Section::average, Section::average);
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
    for (const Section section : kept_sections(store))
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
