// Files of weights: values read are the file's elements, and converted files can be read again.
#include <algorithm>
#include <cmath>

#include "data/io/file.h"
#include "engine/core/error.h"
#include "engine/files/safetensors_values.h"
#include "tests/fuzz/harness/target.h"

namespace warpstep::fuzz::weights_target {
namespace {

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(
      a, b, [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

// Each input is converted only once, as every written file is flushed to the disk.
void run(Input input) {
  const std::string path = file_of("input.safetensors", input);
  const std::string out = file_of("output.safetensors", {});
  const SafetensorsFile file(path);
  const bool halves = input.size() % 2 == 1;
  ConvertOptions options{.drop_optimizer = halves};
  if (halves) options.type = StoredType::f16;
  convert_safetensors(path, out, options);
  const SafetensorsFile again(out);
  for (const StoredTensor& tensor : file.tensors()) {
    const TensorStatistics found = statistics(file, tensor);
    const std::uint64_t elements = tensor.bytes / size_bytes(tensor.type);
    promise(found.nan + found.infinite + found.finite == elements, "every element is counted");
    const StoredTensor* copy = again.find(tensor.name);
    promise((copy == nullptr) == (halves && tensor.name.starts_with(optimizer_prefix)),
            "a copy has all tensors but an optimiser's");
    if (!copy) continue;
    promise(copy->shape == tensor.shape, "a copy has the same shapes");
    if (halves)
      promise(!is_float(copy->type) || copy->type == StoredType::f16, "floats become halves");
    else
      promise(same(read_values(file, tensor), read_values(again, *copy)),
              "a copy has the same values");
  }
}

std::vector<Bytes> seeds() {
  const std::vector<float> numbers{1, -2, 0.5F, 65536, NAN, INFINITY};
  const auto all = std::as_bytes(std::span(numbers));
  ValueChecksum checksum;
  checksum.add(numbers);
  const std::string path = file_of("seed.safetensors", {});
  const std::vector<TensorToStore> tensors{
      {"fc.weight", StoredType::f32, {2, 3}, all},
      {"fc.bias", StoredType::f64, {3}, all},
      {"bn.num_batches_tracked", StoredType::i64, {}, all.first(8)},
      {"optimizer.exp_avg.fc.weight", StoredType::f16, {12}, all},
      {"flag", StoredType::boolean, {5}, all.first(5)},
      {"bn.running_mean", StoredType::bf16, {0, 2}, {}}};
  write_safetensors(path, tensors,
                    {{"format", "pt"}, {"warpstep.checksum.fc.weight", checksum.text()}});
  std::vector<Bytes> files(1);
  data::read_into(files[0], path);
  return files;
}

const Registered target_{"weights", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::weights_target
