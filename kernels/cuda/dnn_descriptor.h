// The owner of one descriptor of cuDNN's graph API: an object with typed attributes that can be set
// until it is finalised, and read after that.
#pragma once

#include <cudnn_graph.h>

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace warpstep::cuda {

// Throws a DeviceError with `call`, the status and cuDNN's own explanation.
void check(cudnnStatus_t status, const char* call);

namespace dnn {

// The attribute type of a C++ type; types without one do not compile.
template <class T>
constexpr cudnnBackendAttributeType_t attribute_type = [] {
  if constexpr (std::same_as<T, std::int64_t>) return CUDNN_TYPE_INT64;
  if constexpr (std::same_as<T, std::int32_t>) return CUDNN_TYPE_INT32;
  if constexpr (std::same_as<T, float>) return CUDNN_TYPE_FLOAT;
  if constexpr (std::same_as<T, bool>) return CUDNN_TYPE_BOOLEAN;
  if constexpr (std::same_as<T, char>) return CUDNN_TYPE_CHAR;
  if constexpr (std::same_as<T, void*>) return CUDNN_TYPE_VOID_PTR;
  if constexpr (std::same_as<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  if constexpr (std::same_as<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
  if constexpr (std::same_as<T, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
  if constexpr (std::same_as<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
  if constexpr (std::same_as<T, cudnnReduceTensorOp_t>) return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  if constexpr (std::same_as<T, cudnnGenStatsMode_t>) return CUDNN_TYPE_GENSTATS_MODE;
  if constexpr (std::same_as<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
  if constexpr (std::same_as<T, cudnnBackendNumericalNote_t>) return CUDNN_TYPE_NUMERICAL_NOTE;
  if constexpr (std::same_as<T, cudnnBackendBehaviorNote_t>) return CUDNN_TYPE_BEHAVIOR_NOTE;
}();

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;

  // Setters can be chained. Plain values are copied; a descriptor that is an attribute is referred
  // to and must outlive this one.
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set_bytes(name, attribute_type<T>, 1, &value);
  }
  template <class T>
  Descriptor& set_list(cudnnBackendAttributeName_t name, std::span<const T> values) {
    return set_bytes(name, attribute_type<T>, std::ssize(values), values.data());
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value);
  Descriptor& set_list(cudnnBackendAttributeName_t name, std::span<const Descriptor> values);

  // Checks the descriptor: from here on it can be used and read, but not set. `what` is for the
  // error message.
  Descriptor& finalize(const char* what);

  template <class T>
  T get(cudnnBackendAttributeName_t name) const {
    T value{};
    get_bytes(name, attribute_type<T>, 1, &value);
    return value;
  }
  template <class T>
  std::vector<T> get_list(cudnnBackendAttributeName_t name) const {
    std::vector<T> values(count(name, attribute_type<T>));
    values.resize(get_bytes(name, attribute_type<T>, std::ssize(values), values.data()));
    return values;
  }
  std::string get_text(cudnnBackendAttributeName_t name) const;
  // Attributes that are descriptors are copied into new ones of this type.
  std::vector<Descriptor> get_descriptors(cudnnBackendAttributeName_t name,
                                          cudnnBackendDescriptorType_t type) const;

  cudnnBackendDescriptor_t handle() const { return handle_; }

 private:
  Descriptor& set_bytes(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        std::int64_t count, const void* values);
  std::size_t count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;
  std::size_t get_bytes(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        std::int64_t room, void* values) const;  // how many were written

  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace dnn
}  // namespace warpstep::cuda
