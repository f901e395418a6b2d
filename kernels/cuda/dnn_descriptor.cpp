#include "kernels/cuda/dnn_descriptor.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/core/error.h"
#include "kernels/cuda/runtime.h"

namespace warpstep::cuda {

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 2048> cause{};
  cudnnGetLastErrorString(cause.data(), cause.size());
  std::string text = cause.data();  // some lines
  std::ranges::replace(text, '\n', ' ');
  while (text.ends_with(' ')) text.pop_back();
  const std::string what = fmt::format("{}: {} ({}){}{}", call, cudnnGetErrorString(status),
                                       static_cast<int>(status), text.empty() ? "" : ": ", text);
  if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    fail<OutOfDeviceMemory>("{}", what);
  fail<DeviceError>("{}", what);
}

namespace dnn {

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check(cudnnBackendCreateDescriptor(type, &handle_), "cudnnBackendCreateDescriptor");
}

Descriptor::~Descriptor() {
  if (handle_ != nullptr) cudnnBackendDestroyDescriptor(handle_);
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  return set_bytes(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.handle_);
}

Descriptor& Descriptor::set_list(cudnnBackendAttributeName_t name,
                                 std::span<const Descriptor> values) {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const Descriptor& value : values) handles.push_back(value.handle_);
  return set_bytes(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(handles), handles.data());
}

Descriptor& Descriptor::finalize(const char* what) {
  check(cudnnBackendFinalize(handle_), what);
  return *this;
}

std::string Descriptor::get_text(cudnnBackendAttributeName_t name) const {
  const std::vector<char> text = get_list<char>(name);
  return {text.begin(), text.end()};
}

std::vector<Descriptor> Descriptor::get_descriptors(cudnnBackendAttributeName_t name,
                                                    cudnnBackendDescriptorType_t type) const {
  std::vector<Descriptor> values;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::size_t n = count(name, CUDNN_TYPE_BACKEND_DESCRIPTOR); n > 0; --n) {
    handles.push_back(values.emplace_back(type).handle_);
  }
  const std::size_t written =
      get_bytes(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(handles), handles.data());
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(written), values.end());
  return values;
}

Descriptor& Descriptor::set_bytes(cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, std::int64_t count,
                                  const void* values) {
  check(cudnnBackendSetAttribute(handle_, name, type, count, values), "cudnnBackendSetAttribute");
  return *this;
}

std::size_t Descriptor::count(cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type) const {
  std::int64_t n = 0;
  check(cudnnBackendGetAttribute(handle_, name, type, 0, &n, nullptr), "cudnnBackendGetAttribute");
  return static_cast<std::size_t>(n);
}

std::size_t Descriptor::get_bytes(cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, std::int64_t room,
                                  void* values) const {
  std::int64_t written = 0;
  check(cudnnBackendGetAttribute(handle_, name, type, room, &written, values),
        "cudnnBackendGetAttribute");
  return static_cast<std::size_t>(written);
}

}  // namespace dnn
}  // namespace warpstep::cuda
