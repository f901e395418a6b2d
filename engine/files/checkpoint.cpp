#include "engine/files/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "engine/core/phase.h"
#include "engine/files/safetensors.h"
#include "engine/files/safetensors_values.h"
#include "engine/files/weights.h"

namespace warpstep {
namespace {

using Json = nlohmann::json;
using Section = Store::Section;

constexpr std::string_view format_version = "1";
constexpr std::int64_t most_steps = std::int64_t{1} << 53;

// PyTorch's name of a moment; the name of a sum of gradients is Warpstep's.
std::string_view moment_name(Optimizer::Kind optimizer, Section section) {
  if (section == Section::accumulator) return "gradient_sum";
  if (optimizer == Optimizer::Kind::rmsprop)
    return section == Section::moment1 ? "square_avg" : "momentum_buffer";
  const bool adaptive = Optimizer{.kind = optimizer}.adaptive();
  if (!adaptive) return "momentum_buffer";
  return section == Section::moment1 ? "exp_avg" : "exp_avg_sq";
}

// The sections to save besides the parameters and their average. A sum of gradients has a meaning
// only between two updates.
std::vector<Section> kept_sections(const Store& store, const StepState& state) {
  constexpr std::array moments{Section::moment1, Section::moment2};
  // Not by their bytes: of sharded moments a rank's share may be empty.
  std::vector<Section> sections(moments.begin(), moments.begin() + store.moment_count());
  if (state.update == 0) sections.push_back(Section::accumulator);
  return sections;
}

// A file that names another optimiser than the store's could not be resumed. That of a store that
// does not train has no moments.
void require_moments(const Store& store, Optimizer::Kind kind) {
  if (store.section_bytes(Section::gradient) == 0) return;
  const int least = Optimizer{.kind = kind}.moments(),
            most = Optimizer{.kind = kind, .momentum = 1}.moments();
  if (const int count = store.moment_count(); count < least || count > most)
    fail<UsageError>(
        "a checkpoint of {} of a store with {} moments per parameter; give the kind "
        "of the optimizer that the step was compiled with",
        name(kind), count);
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

// By its first tensor or that tensor's checksum: a damaged name must not turn averages off.
bool has_average(const SafetensorsFile& file, const Store& store) {
  const std::string first = tensor_name(store.parameters().front(), {}, Section::average);
  return file.find(first) != nullptr ||
         file.metadata().contains(std::string(checksum_prefix) + first);
}

const record::Name& gather_name() {
  static const record::Name name{"gather"};
  return name;
}

// The tensors of a file, which are read when they are written, so that only one of them is in
// memory besides the store (two, while the order of its elements changes). The checksums at its
// beginning are zeros until then.
struct Kept {
  std::vector<TensorToStore> tensors;
  Metadata checksums;
  std::shared_ptr<Scratch> scratch = std::make_shared<Scratch>();  // of all of them

  void add(const std::string& name, const Shape& shape,
           const std::function<void(std::span<float>)>& read) {
    checksums[checksum_key(name)] = ValueChecksum().text();
    tensors.push_back({name, StoredType::f32, extents_of(shape), {}, [read](auto values) {
                         const record::PhasePart time(gather_name());
                         read(values);
                       }});
  }

  static std::string checksum_key(const std::string& name) {
    return std::string(checksum_prefix) + name;
  }

  void note_checksum(const TensorToStore& tensor, std::span<const float> values,
                     Metadata& metadata) const {
    const record::PhasePart time(gather_name());
    ValueChecksum checksum;
    checksum.add(values);
    metadata.at(checksum_key(tensor.name)) = checksum.text();
    if (&tensor == &tensors.back())
      metadata.at(metadata_checksum_key) = metadata_checksum(metadata);
  }
};

// PyTorch's counts of the batches in a running mean, which strict loading requires: first, as the
// widest elements, so that every tensor of the file is aligned.
void add_batch_counts(std::span<const StateTensor> state, const std::int64_t& steps, Kept& kept) {
  for (const StateTensor& tensor : state)
    if (const std::string name = batch_count_name(tensor.name); !name.empty())
      kept.tensors.push_back({name, StoredType::i64, {}, std::as_bytes(std::span(&steps, 1))});
}

void add_section(const Store& store, Optimizer::Kind optimizer, Section section, Kept& kept) {
  for (std::size_t p = 0; p < store.parameters().size(); ++p)
    kept.add(tensor_name(store.parameters()[p], optimizer, section), store.torch_shape(p),
             [&store, p, section, scratch = kept.scratch](auto values) {
               store.read(p, section, values, *scratch);
             });
}

// Loads the file's tensors for section `from` into section `to`.
void load_section(const SafetensorsFile& file, Store& store, Optimizer::Kind optimizer,
                  Section from, Section to) {
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    const StoredTensor& tensor = file.at(tensor_name(store.parameters()[p], optimizer, from));
    const Shape shape = store.torch_shape(p);
    if (tensor.type != StoredType::f32 || tensor.shape != extents_of(shape))
      fail<DataError>("{}: {} is {} of {} bytes, but the model needs F32 {}", file.path().string(),
                      tensor.name, name(tensor.type), tensor.bytes, shape.text());
    store.write(p, read_values(file, tensor), to);
  }
}

std::string exact(double value) {
  return fmt::format("{:a}", value);
}

// The number that exact() wrote, or one in decimals; nothing for any other text. Not strtod(),
// which reads as the host program's locale writes.
std::optional<double> inexact(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const bool hexadecimal = text.starts_with("0x");
  if (hexadecimal) text.remove_prefix(2);
  if (text.starts_with('-')) return std::nullopt;
  double value = 0;
  const auto format = hexadecimal ? std::chars_format::hex : std::chars_format::general;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, format);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return negative ? -value : value;
}

Json to_json(const Score& score) {
  Json json{
      {"loss_sum", exact(score.loss_sum)}, {"correct", score.correct}, {"count", score.count}};
  if (score.weight != static_cast<double>(score.count)) json["weight"] = exact(score.weight);
  return json;
}

// A JSON object whose fields are checked as they are read.
class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object())
      fail<DataError>("{} is {}, where an object belongs", where_,
                      json.is_discarded() ? "no JSON" : brief(json));
  }

  bool has(const char* key) const { return json_.contains(key); }

  std::int64_t whole(const char* key, std::int64_t most) const {
    const Json& value = at(key);
    const bool small = value.is_number_integer() &&
                       (!value.is_number_unsigned() || value.get<std::uint64_t>() <= idx(most));
    if (!small || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() > most)
      wrong(key, fmt::format("a whole number from 0 to {}", most));
    return value.get<std::int64_t>();
  }
  // 0 if the field is missing, as in older checkpoints.
  std::int64_t later_whole(const char* key, std::int64_t most) const {
    return has(key) ? whole(key, most) : 0;
  }
  bool later_flag(const char* key) const {
    if (!has(key)) return false;
    if (!at(key).is_boolean()) wrong(key, "true or false");
    return at(key).get<bool>();
  }
  // A number that exact() wrote.
  double number(const char* key, const char* what, bool (*allowed)(double)) const {
    const auto* text = at(key).get_ptr<const Json::string_t*>();
    const std::optional<double> value = text ? inexact(*text) : std::nullopt;
    if (!value || !allowed(*value)) wrong(key, what);
    return *value;
  }
  // A number of 64 bits: in quotes, as many programs read a larger one than 2^53 in JSON inexactly.
  std::uint64_t quoted_whole(const char* key) const {
    std::uint64_t value = 0;
    const auto* text = at(key).get_ptr<const Json::string_t*>();
    const char* end = text ? text->data() + text->size() : nullptr;
    if (!text || std::from_chars(text->data(), end, value) != std::from_chars_result{end, {}})
      wrong(key, "a whole number from 0 to 2^64 - 1 in quotes");
    return value;
  }
  Fields object(const char* key) const { return {at(key), fmt::format("{}: '{}'", where_, key)}; }

 private:
  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail<DataError>("{} has no '{}'", where_, key);
    return *found;
  }
  [[noreturn]] void wrong(const char* key, std::string_view belongs) const {
    fail<DataError>("{}: '{}' is {}, where {} belongs", where_, key, brief(at(key)), belongs);
  }

  const Json& json_;
  std::string where_;
};

// The losses of a resumable epoch are finite, those of an evaluation may not be.
Score score_from(const Fields& fields, bool finite) {
  Score score;
  score.loss_sum =
      finite ? fields.number("loss_sum", "a finite number in quotes",
                             [](double value) { return std::isfinite(value); })
             : fields.number("loss_sum", "a number in quotes", [](double) { return true; });
  score.count = fields.whole("count", most_steps);
  score.correct = fields.whole("correct", score.count);
  score.weight =
      static_cast<double>(score.count);  // without class weights, and in older checkpoints
  if (fields.has("weight"))
    score.weight = fields.number("weight", "a finite number of at least 0 in quotes",
                                 [](double value) { return std::isfinite(value) && value >= 0; });
  return score;
}

std::uint64_t as_count(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

// The relus of cuDNN and cublasLt can hide NaN from the loss: such a run must not end as one that
// has learnt.
void require_finite(const StateTensor& tensor, std::span<const float> values) {
  if (tensor.buffer || std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
    return;
  fail<NumericError>(
      "{} has values that are not finite: the run has diverged, though its loss did not show it; "
      "use "
      "a lower --lr, --warmup-steps or --clip-norm; nothing of this step was saved",
      tensor.name);
}

// All tensors of a checkpoint.
Kept kept_of(const Store& store, Optimizer::Kind optimizer, const std::int64_t& steps) {
  Kept kept;
  const std::vector<StateTensor> state = state_of(store);
  add_batch_counts(state, steps, kept);
  for (const StateTensor& tensor : state)
    kept.add(tensor.name, tensor.shape, [&store, tensor, scratch = kept.scratch](auto values) {
      read(store, tensor, values, *scratch);
      require_finite(tensor, values);
    });
  for (const Section section : kept_sections(store, store.step_state()))
    add_section(store, optimizer, section, kept);
  if (store.section_bytes(Section::average) > 0)
    add_section(store, optimizer, Section::average, kept);
  return kept;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Store& store,
                     Optimizer::Kind optimizer, const Progress& progress,
                     const CheckpointInfo& info) {
  require_moments(store, optimizer);
  const auto steps = static_cast<std::int64_t>(progress.step);
  const Kept kept = kept_of(store, optimizer, steps);
  Metadata metadata{{"format", "pt"},
                    {"warpstep.version", std::string(format_version)},
                    {"warpstep.model", info.model},
                    {"warpstep.config", info.config_json},
                    {"warpstep.optimizer", std::string(name(optimizer))},
                    {progress_key, progress_text(progress, store.step_state())},
                    {metadata_checksum_key, metadata_checksum({})}};
  metadata.insert(kept.checksums.begin(), kept.checksums.end());
  write_safetensors(path, kept.tensors, std::move(metadata),
                    std::bind_front(&Kept::note_checksum, &kept));
}

Progress load_checkpoint(const std::filesystem::path& path, Store& store,
                         Optimizer::Kind optimizer) {
  const SafetensorsFile file(path);
  if (const std::string found = metadata_entry(file, "warpstep.version"); found != format_version)
    fail<DataError>("{}: checkpoint format {}, but this program reads {}", path.string(), found,
                    format_version);
  if (const std::string found = metadata_entry(file, "warpstep.optimizer");
      found != name(optimizer))
    fail<DataError>("{}: made with --optimizer {}; resume with the same, not {}", path.string(),
                    found, name(optimizer));
  StepState state = store.step_state();
  const Progress progress = parse_progress(metadata_entry(file, progress_key), path, state);
  if (state.update == 0 && store.section_bytes(Section::accumulator) == 0)
    fail<DataError>(
        "{}: saved between two updates, with the gradients of the steps since the last one; "
        "resume with the --accumulate of that run, or from a checkpoint after an update",
        path.string());
  load_weights(path, store);
  if (store.section_bytes(Section::average) > 0 && has_average(file, store))
    load_section(file, store, optimizer, Section::average, Section::average);
  store.set_step_state(state);
  for (const Section section : kept_sections(store, state))
    load_section(file, store, optimizer, section, section);
  return progress;
}

void load_parameters(const std::filesystem::path& path, Store& store, bool average) {
  load_weights(path, store);
  const SafetensorsFile file(path);
  if (average && has_average(file, store))
    load_section(file, store, Optimizer::Kind::sgd, Section::average, Section::parameter);
}

CheckpointInfo read_checkpoint_info(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  return {metadata_entry(file, "warpstep.model"), metadata_entry(file, "warpstep.config")};
}

Progress read_progress(const std::filesystem::path& path) {
  StepState unused;
  return parse_progress(metadata_entry(SafetensorsFile(path), progress_key), path, unused);
}

std::string progress_text(const Progress& progress, const StepState& state) {
  Json json{{"step", progress.step},
            {"next_epoch", progress.next.epoch},
            {"next_step", progress.next.step},
            {"epoch_score", to_json(progress.epoch_score)},
            {"optimizer_step", state.step},
            {"skipped_steps", state.skipped},
            {"good_steps", state.good_steps},
            {"micro_step", state.micro_step},
            {"only_accumulated", state.update == 0},
            {"overflow", state.overflow != 0},
            {"loss_scale", exact(static_cast<double>(state.loss_scale))},
            {"seed", std::to_string(state.seed)}};
  if (progress.evaluation)
    json["evaluation"] = {{"epoch", progress.evaluation->epoch},
                          {"step", progress.evaluation->step},
                          {"score", to_json(progress.evaluation->score)}};
  if (progress.watch)
    json["watch"] = {{"loss", progress.watch->loss},
                     {"best", exact(progress.watch->best)},
                     {"best_step", progress.watch->best_step},
                     {"worse", progress.watch->worse}};
  return printed(json);
}

Progress parse_progress(const std::string& text, const std::filesystem::path& path,
                        StepState& state) {
  const auto json = parse_json<Json>(text);
  const Fields fields(json, fmt::format("{}: metadata '{}'", path.string(), progress_key));
  Progress progress;
  const std::int64_t steps = fields.whole("step", most_steps);
  progress.step = as_count(steps);
  // Each epoch had at least one step.
  progress.next.epoch = as_count(fields.whole("next_epoch", steps));
  progress.next.step =
      as_count(fields.whole("next_step", steps - static_cast<std::int64_t>(progress.next.epoch)));
  progress.epoch_score = score_from(fields.object("epoch_score"), true);
  if (fields.has("evaluation")) {
    const Fields made = fields.object("evaluation");
    progress.evaluation =
        EvaluationRecord{as_count(made.whole("epoch", steps)), as_count(made.whole("step", steps)),
                         score_from(made.object("score"), false), 0};
  }
  if (fields.has("watch")) {
    const Fields seen = fields.object("watch");
    progress.watch =
        Watch{seen.later_flag("loss"),
              seen.number("best", "a finite number in quotes",
                          [](double value) { return std::isfinite(value); }),
              as_count(seen.whole("best_step", steps)), as_count(seen.whole("worse", steps))};
  }
  constexpr std::int64_t most_int = std::numeric_limits<std::int32_t>::max();
  // Of the store, not of the run: a program may train one store in several runs.
  state.step = fields.whole("optimizer_step", most_steps);
  state.skipped = fields.later_whole("skipped_steps", state.step);
  state.good_steps = static_cast<std::int32_t>(fields.later_whole("good_steps", most_int));
  state.micro_step = static_cast<std::int32_t>(fields.later_whole("micro_step", most_int));
  state.update = fields.later_flag("only_accumulated") ? 0 : 1;
  state.overflow = fields.later_flag("overflow") ? 1 : 0;
  state.loss_scale = static_cast<float>(
      fields.number("loss_scale", "a finite number above 0 in quotes", [](double value) {
        const auto scale = static_cast<float>(value);
        return std::isfinite(scale) && scale > 0;
      }));
  if (fields.has("seed")) state.seed = fields.quoted_whole("seed");
  return progress;
}

}  // namespace warpstep
