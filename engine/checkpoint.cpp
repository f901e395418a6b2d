#include "engine/checkpoint.h"

#include "engine/checkpoint_progress.h"
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
                    {progress_key, progress_text(progress, store.step_state())}};
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
  StepState state = store.step_state();
  const Progress progress = parse_progress(metadata_entry(file, progress_key), path, state);
  store.set_step_state(state);
  for (const Section section : kept_sections(store))
    load_section(file, store, optimizer, section, section);
  return progress;
}

CheckpointInfo read_checkpoint_info(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  return {metadata_entry(file, "warpstep.model"), metadata_entry(file, "warpstep.config")};
}

}  // namespace warpstep
