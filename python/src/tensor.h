// Tensors for Python: memory with a shape that any library takes over through DLPack, without a
// copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace warpstep::python {

// A view of memory on the host. Every copy of it, and every DLPack capsule made from it, keeps the
// memory alive; the last one to end may do so in any thread, without Python's lock.
struct Tensor {
  std::shared_ptr<std::byte> memory;  // of the first element
  nanobind::dlpack::dtype type;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements; some order of the axes is contiguous

  std::int64_t count() const;  // elements
  std::size_t bytes() const { return static_cast<std::size_t>(count()) * type.bits / 8; }
  std::string type_name() const;  // "uint8"
};

inline constexpr nanobind::dlpack::dtype u8{
    static_cast<std::uint8_t>(nanobind::dlpack::dtype_code::UInt), 8, 1};
inline constexpr nanobind::dlpack::dtype i64{
    static_cast<std::uint8_t>(nanobind::dlpack::dtype_code::Int), 64, 1};
inline constexpr nanobind::dlpack::dtype f32{
    static_cast<std::uint8_t>(nanobind::dlpack::dtype_code::Float), 32, 1};

// Of memory in row-major order.
Tensor row_major(std::shared_ptr<std::byte> memory, nanobind::dlpack::dtype type,
                 std::vector<std::int64_t> shape);

void declare_tensor(nanobind::module_& module);

}  // namespace warpstep::python
