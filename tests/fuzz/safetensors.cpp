// Safetensors files: every tensor lies in the file and fits its shape, and together they cover the
// data.
#include "engine/files/safetensors.h"

#include <algorithm>

#include "data/io/file.h"
#include "tests/fuzz/harness/target.h"

namespace warpstep::fuzz::safetensors_target {
namespace {

Bytes contents(const SafetensorsFile& file, const StoredTensor& tensor) {
  Bytes bytes(tensor.bytes);
  file.read(tensor, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

void run(Input input) {
  const SafetensorsFile file(file_of("input.safetensors", input));
  std::uint64_t end = 0;
  for (const StoredTensor& tensor : file.tensors()) {
    std::uint64_t elements = 1;
    for (const std::uint64_t side : tensor.shape) elements *= side;
    promise(tensor.bytes == elements * size_bytes(tensor.type), "tensors fit their shapes");
    promise(end == 0 || tensor.offset == end, "tensors leave no hole");
    end = tensor.offset + tensor.bytes;
    promise(end <= input.size(), "tensors lie in the file");
    promise(&file.at(tensor.name) == &tensor, "tensors are found by their name");
    const Bytes bytes = contents(file, tensor);
    promise(std::equal(bytes.begin(), bytes.end(),
                       input.begin() + static_cast<std::ptrdiff_t>(tensor.offset)),
            "tensors have the file's bytes");
  }
  promise(end == 0 || end == input.size(), "tensors cover the data");
}

std::vector<Bytes> seeds() {
  const Bytes bytes(24, 7);
  const auto all = std::as_bytes(std::span(bytes));
  const std::vector<TensorToStore> tensors{{"a", StoredType::f32, {2, 3}, all},
                                           {"b/c", StoredType::i64, {}, all.first(8)},
                                           {"empty", StoredType::u8, {0, 5}, {}},
                                           {"\xc3\xa9", StoredType::bf16, {12}, all}};
  std::vector<Bytes> files;
  for (std::size_t count = 0; count <= tensors.size(); ++count) {
    const std::string path = file_of("seed.safetensors", {});
    write_safetensors(path, std::span(tensors).first(count), {{"step", "12"}, {"\"q\"", "\n"}});
    Bytes& file = files.emplace_back();
    data::read_into(file, path);
  }
  return files;
}

const Registered target_{"safetensors", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::safetensors_target
