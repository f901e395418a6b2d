#include "tests/plans/stand_in_cudnn.h"

#include <cudnn_graph.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

namespace warpstep::testing_support {
namespace {

// A descriptor: what plans and their parts need.
struct Object {
  cudnnBackendDescriptorType_t type;
  std::int64_t engine = 0;
  bool is_for_handle = false;
};

constexpr std::int64_t engines = 2;

Object& object(void* descriptor) {
  return *static_cast<Object*>(descriptor);
}

// A list as cuDNN gives it: how many there are, and as many as the caller has room for.
template <class T>
cudnnStatus_t give(const T* values, std::int64_t count, std::int64_t room, std::int64_t* given,
                   void* to) {
  *given = room == 0 ? count : std::min(room, count);
  if (room > 0) std::memcpy(to, values, static_cast<std::size_t>(*given) * sizeof(T));
  return CUDNN_STATUS_SUCCESS;
}

// Descriptors are copied into those of the caller.
cudnnStatus_t give_engines(std::int64_t first, std::int64_t count, std::int64_t room,
                           std::int64_t* given, void* to) {
  *given = room == 0 ? count : std::min(room, count);
  for (std::int64_t i = 0; room > 0 && i < *given; ++i)
    object(static_cast<cudnnBackendDescriptor_t*>(to)[i]).engine = first + i;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

StandInCudnn& stand_in_cudnn() {
  static StandInCudnn instance;
  return instance;
}

}  // namespace warpstep::testing_support

using warpstep::testing_support::object;
using warpstep::testing_support::Object;
using warpstep::testing_support::stand_in_cudnn;

extern "C" {

std::size_t cudnnGetVersion() {
  return 91900;
}
const char* cudnnGetErrorString(cudnnStatus_t) {
  return "planted";
}
void cudnnGetLastErrorString(char* message, std::size_t) {
  *message = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (!stand_in_cudnn().makes_handles) return CUDNN_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cudnnHandle_t>(new char);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete reinterpret_cast<char*>(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) {
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Object{.type = type};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete &object(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  if (object(descriptor).type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) ++stand_in_cudnn().asked;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, std::int64_t count,
                                       const void* values) {
  Object& set = object(descriptor);
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) set.is_for_handle = true;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
    set.engine = object(*static_cast<const cudnnBackendDescriptor_t*>(values)).engine;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) {
    const char* const text = static_cast<const char*>(values);
    if (std::from_chars(text, text + count, set.engine).ec != std::errc{})
      return CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, std::int64_t room,
                                       std::int64_t* given, void* to) {
  using namespace warpstep::testing_support;
  const Object& from = object(descriptor);
  const std::int64_t none = 0;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return give_engines(1, engines, room, given, to);
    case CUDNN_ATTR_ENGINECFG_ENGINE: return give_engines(from.engine, 1, room, given, to);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: return give(&from.engine, 1, room, given, to);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: return give(&none, 1, room, given, to);
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION: {  // without the way, as cuDNN's
      const std::string text = std::to_string(from.engine);
      return give(text.data(), static_cast<std::int64_t>(text.size()), room, given, to);
    }
    default: *given = 0; return CUDNN_STATUS_SUCCESS;
  }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t) {
  auto& library = stand_in_cudnn();
  const bool for_handle = object(plan).is_for_handle;
  if (!(for_handle ? library.runs_for_handles : library.runs_for_properties))
    return CUDNN_STATUS_EXECUTION_FAILED;
  library.last_was_for_handle = for_handle;
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
