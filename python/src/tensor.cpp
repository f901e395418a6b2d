#include "python/src/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <new>
#include <optional>
#include <utility>

namespace warpstep::python {

namespace nb = nanobind;

namespace {

constexpr std::int32_t host_device = 1;  // kDLCPU

// The two structures of the DLPack protocol that a capsule carries,
// https://dmlc.github.io/dlpack/latest/c_api.html: without and with a version.
struct Managed {
  nb::dlpack::dltensor tensor;
  void* context = nullptr;
  void (*deleter)(Managed*) = nullptr;
  static constexpr const char* name = "dltensor";
};
struct ManagedVersioned {
  std::uint32_t major = 1, minor = 0;
  void* context = nullptr;
  void (*deleter)(ManagedVersioned*) = nullptr;
  std::uint64_t flags = 0;  // writable; bit 1: a copy
  nb::dlpack::dltensor tensor;
  static constexpr const char* name = "dltensor_versioned";
};
constexpr std::uint64_t is_copy = 2;

// What a consumer holds: the structure, and the tensor whose memory and shape it points to.
template <class M>
struct Lent {
  M managed;
  Tensor tensor;
};

// A consumer renames the capsule and calls the deleter itself; otherwise the capsule does.
template <class M>
void end_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, M::name) == 0) return;
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, M::name));
  managed->deleter(managed);
}

template <class M>
nb::object capsule_of(const Tensor& tensor, std::uint64_t flags) {
  auto lent = std::make_unique<Lent<M>>(Lent<M>{{}, tensor});
  Tensor& held = lent->tensor;
  M& managed = lent->managed;
  managed.tensor.data = held.memory.get();
  managed.tensor.device = {host_device, 0};
  managed.tensor.ndim = static_cast<std::int32_t>(held.shape.size());
  managed.tensor.dtype = held.type;
  managed.tensor.shape = held.shape.data();
  managed.tensor.strides = held.strides.data();
  managed.tensor.byte_offset = 0;
  managed.context = lent.get();
  managed.deleter = [](M* self) { delete static_cast<Lent<M>*>(self->context); };
  if constexpr (requires { managed.flags; }) managed.flags = flags;
  PyObject* capsule = PyCapsule_New(&managed, M::name, &end_capsule<M>);
  if (capsule == nullptr) throw nb::python_error();
  lent.release();
  return nb::steal(capsule);
}

// The elements lie in one contiguous piece in some order of the axes, and a copy keeps that order.
Tensor copy_of(const Tensor& tensor) {
  constexpr std::align_val_t alignment{64};
  Tensor copy = tensor;
  copy.memory = std::shared_ptr<std::byte>(
      static_cast<std::byte*>(::operator new(tensor.bytes(), alignment)),
      [](std::byte* memory) { ::operator delete (memory, std::align_val_t{64}); });
  std::memcpy(copy.memory.get(), tensor.memory.get(), tensor.bytes());
  return copy;
}

nb::object to_dlpack(const Tensor& tensor, nb::object stream, nb::object max_version,
                     nb::object device, nb::object copy) {
  if (!stream.is_none())
    throw nb::buffer_error("the tensor is in the host's memory: stream must be None");
  if (!device.is_none() && nb::cast<std::pair<int, int>>(device) != std::pair(host_device, 0))
    throw nb::buffer_error("the tensor is in the host's memory: dl_device must be (1, 0)");
  const bool copies = !copy.is_none() && nb::cast<bool>(copy);
  const Tensor& given = copies ? copy_of(tensor) : tensor;
  if (max_version.is_none() || nb::cast<int>(max_version[nb::int_(0)]) < 1)
    return capsule_of<Managed>(given, 0);
  return capsule_of<ManagedVersioned>(given, copies ? is_copy : 0);
}

// Not by numpy.from_dlpack(), whose arrays are read-only before NumPy 2.1.
nb::object to_numpy(nb::object self) {
  const auto& tensor = nb::cast<const Tensor&>(self);
  const std::vector<std::size_t> shape(tensor.shape.begin(), tensor.shape.end());
  return nb::cast(nb::ndarray<nb::numpy>(tensor.memory.get(), shape.size(), shape.data(), self,
                                         tensor.strides.data(), tensor.type));
}

nb::object to_array(nb::object self, nb::object dtype, nb::object copy) {
  const nb::object array = to_numpy(self);
  const bool copies = !copy.is_none() && nb::cast<bool>(copy);
  const bool converts =
      !dtype.is_none() &&
      !nb::module_::import_("numpy").attr("dtype")(dtype).equal(array.attr("dtype"));
  if (converts && !copy.is_none() && !copies)
    throw nb::value_error("another dtype needs a copy, and copy=False was asked for");
  if (converts) return array.attr("astype")(dtype);
  return copies ? nb::object(array.attr("copy")()) : array;
}

}  // namespace

std::int64_t Tensor::count() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::string Tensor::type_name() const {
  const char* kind = type.code == u8.code ? "uint" : type.code == i64.code ? "int" : "float";
  return fmt::format("{}{}", kind, type.bits);
}

Tensor row_major(std::shared_ptr<std::byte> memory, nb::dlpack::dtype type,
                 std::vector<std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return {std::move(memory), type, std::move(shape), std::move(strides)};
}

void declare_tensor(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor")
      .def_prop_ro("shape", [](const Tensor& tensor) { return nb::tuple(nb::cast(tensor.shape)); })
      .def_prop_ro("strides",
                   [](const Tensor& tensor) { return nb::tuple(nb::cast(tensor.strides)); })
      .def_prop_ro("dtype", &Tensor::type_name)
      .def_prop_ro("nbytes", &Tensor::bytes)
      .def("__len__", [](const Tensor& tensor) { return tensor.shape.at(0); })
      .def("__dlpack__", &to_dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none())
      .def("__dlpack_device__", [](const Tensor&) { return nb::make_tuple(host_device, 0); })
      .def("numpy", &to_numpy)
      .def("__array__", &to_array, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def("__repr__", [](const Tensor& tensor) {
        return fmt::format("Tensor({}, [{}])", tensor.type_name(), fmt::join(tensor.shape, ", "));
      });
}

}  // namespace warpstep::python
