#include "python/src/weights.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "engine/core/error.h"
#include "engine/files/checkpoint.h"
#include "engine/files/safetensors_values.h"

namespace warpstep::python {

namespace nb = nanobind;

namespace {

using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstFloats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

StoredType type_of(const std::string& text) {
  if (const std::optional<StoredType> type = stored_type(text)) return *type;
  fail<UsageError>("'{}' is not a type of stored tensors; use F32, F16, BF16, F64, U8, ..., BOOL",
                   text);
}

std::vector<std::tuple<std::string, std::string, std::vector<std::uint64_t>>> list(
    const SafetensorsFile& file) {
  std::vector<std::tuple<std::string, std::string, std::vector<std::uint64_t>>> rows;
  for (const StoredTensor& tensor : file.tensors())
    rows.emplace_back(tensor.name, std::string(name(tensor.type)), tensor.shape);
  return rows;
}

// The tensor's bytes; of one with a checksum they are checked.
void read(const SafetensorsFile& file, const std::string& tensor_name, const Bytes& out) {
  const StoredTensor& tensor = file.at(tensor_name);
  if (out.size() != tensor.bytes)
    fail<UsageError>("{}: {} has {} bytes, the array {}", file.path().string(), tensor.name,
                     tensor.bytes, out.size());
  const nb::gil_scoped_release unlocked;
  file.read(tensor, std::as_writable_bytes(std::span(out.data(), out.size())));
  if (tensor.type == StoredType::f32 &&
      file.metadata().contains(std::string(checksum_prefix) + tensor.name))
    for_each_piece(file, tensor, [](std::span<const float>) {});
}

using Stored = std::tuple<std::string, std::string, std::vector<std::uint64_t>, ConstBytes>;

// Paths are bytes, as names of files are: they may be no UTF-8.
std::string path_of(const nb::bytes& path) {
  return {path.c_str(), path.size()};
}

void write(const nb::bytes& file, const std::vector<Stored>& tensors, const Metadata& metadata) {
  const std::string path = path_of(file);
  std::vector<TensorToStore> list;
  for (const auto& [tensor_name, type, shape, bytes] : tensors)
    list.push_back(
        {tensor_name, type_of(type), shape, std::as_bytes(std::span(bytes.data(), bytes.size()))});
  const nb::gil_scoped_release unlocked;
  write_safetensors(path, list, metadata);
}

// Rounds to the nearest F16 or BF16, ties to even.
void round_to(const std::string& type, const ConstFloats& values, const Bytes& out) {
  if (out.size() != values.size() * size_bytes(type_of(type)))
    fail<UsageError>("{} numbers do not fit {} bytes of {}", values.size(), out.size(), type);
  const nb::gil_scoped_release unlocked;
  encode(type_of(type), std::span(values.data(), values.size()),
         std::as_writable_bytes(std::span(out.data(), out.size())));
}

}  // namespace

void declare_weights(nb::module_& module) {
  nb::class_<SafetensorsFile>(module, "SafetensorsFile")
      .def("__init__", [](SafetensorsFile* self,
                          const nb::bytes& path) { new (self) SafetensorsFile(path_of(path)); })
      .def_prop_ro("tensors", &list)
      .def_prop_ro("metadata", &SafetensorsFile::metadata)
      .def("read", &read);
  module.def("write_safetensors", &write);
  module.def("round_to", &round_to);
  module.def("checkpoint_info", [](const nb::bytes& path) {
    const CheckpointInfo info = read_checkpoint_info(path_of(path));
    return std::pair(info.model, info.config_json);
  });
}

}  // namespace warpstep::python
