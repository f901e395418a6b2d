// The emulated runtime: devices, their properties, and the statuses of calls.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "tests/cuda_on_cpu/fake_state.h"
#include "tests/cuda_on_cpu/simt.h"

namespace warpstep::fake_cuda {
namespace {

constexpr int version = 13000;
// Few and odd, so that grids sized by it make each thread loop and leave partial ends.
constexpr int multiprocessors = 3;
constexpr int clock_khz = 1'000'000, memory_clock_khz = 1'000'000, bus_bits = 512;

thread_local cudaError_t last_error = cudaSuccess;

cudaDeviceProp properties(const State& s) {
  cudaDeviceProp p{};
  std::strncpy(p.name, "Emulated CUDA device", sizeof p.name - 1);
  p.totalGlobalMem = s.device_bytes;
  p.sharedMemPerBlock = 48 << 10;
  p.sharedMemPerBlockOptin = 99 << 10;  // of sm_86, 89 and 120: the least from sm_80 on
  p.sharedMemPerMultiprocessor = 228 << 10;
  p.reservedSharedMemPerBlock = 1 << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  std::ranges::copy(std::array{1024, 1024, 64}, p.maxThreadsDim);
  std::ranges::copy(std::array{0x7fffffff, 65535, 65535}, p.maxGridSize);
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  p.multiProcessorCount = multiprocessors;
  p.major = 9;
  p.memoryBusWidth = bus_bits;
  p.l2CacheSize = 1 << 20;
  p.concurrentKernels = p.asyncEngineCount = p.unifiedAddressing = p.canMapHostMemory = 1;
  p.ECCEnabled = 1;
  return p;
}

cudaError_t attribute(const State& s, int* value, cudaDeviceAttr which) {
  const cudaDeviceProp p = properties(s);
  const std::map<cudaDeviceAttr, int> known{
      {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
      {cudaDevAttrMaxSharedMemoryPerBlock, static_cast<int>(p.sharedMemPerBlock)},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(p.sharedMemPerBlockOptin)},
      {cudaDevAttrWarpSize, p.warpSize},
      {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
      {cudaDevAttrComputeCapabilityMajor, p.major},
      {cudaDevAttrComputeCapabilityMinor, p.minor},
      {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
      {cudaDevAttrMaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor},
      {cudaDevAttrL2CacheSize, p.l2CacheSize},
      {cudaDevAttrGlobalMemoryBusWidth, p.memoryBusWidth},
      {cudaDevAttrClockRate, clock_khz},
      {cudaDevAttrMemoryClockRate, memory_clock_khz},
      {cudaDevAttrEccEnabled, p.ECCEnabled},
      {cudaDevAttrAsyncEngineCount, p.asyncEngineCount},
      {cudaDevAttrConcurrentKernels, p.concurrentKernels},
      {cudaDevAttrUnifiedAddressing, p.unifiedAddressing},
      {cudaDevAttrMemoryPoolsSupported, 0},
  };
  const auto found = known.find(which);
  if (value == nullptr || found == known.end()) return cudaErrorInvalidValue;
  *value = found->second;
  return cudaSuccess;
}

cudaError_t known_device(const State& s, int device) {
  return device >= 0 && device < s.devices ? cudaSuccess : cudaErrorInvalidDevice;
}

struct ErrorText {
  cudaError_t status;
  const char *name, *text;
};
constexpr ErrorText unknown{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};

ErrorText describe(cudaError_t status) {
#define WARPSTEP_STATUS(status, text) \
  ErrorText {                         \
    status, #status, text             \
  }
  static constexpr std::array table{
      WARPSTEP_STATUS(cudaSuccess, "no error"),
      WARPSTEP_STATUS(cudaErrorInvalidValue, "invalid argument"),
      WARPSTEP_STATUS(cudaErrorMemoryAllocation, "out of memory"),
      WARPSTEP_STATUS(cudaErrorInitializationError, "initialization error"),
      WARPSTEP_STATUS(cudaErrorInvalidConfiguration, "invalid configuration argument"),
      WARPSTEP_STATUS(cudaErrorInsufficientDriver, "the driver is older than the runtime"),
      WARPSTEP_STATUS(cudaErrorNoDevice, "no CUDA-capable device is detected"),
      WARPSTEP_STATUS(cudaErrorInvalidDevice, "invalid device ordinal"),
      WARPSTEP_STATUS(cudaErrorNoKernelImageForDevice, "no kernel image for the device"),
      WARPSTEP_STATUS(cudaErrorStubLibrary, "the driver is a stub library"),
      WARPSTEP_STATUS(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
      WARPSTEP_STATUS(cudaErrorInvalidResourceHandle, "invalid resource handle"),
      WARPSTEP_STATUS(cudaErrorIllegalState, "the operation cannot be done in this state"),
      WARPSTEP_STATUS(cudaErrorSystemNotReady, "system not yet initialized"),
      WARPSTEP_STATUS(cudaErrorNotReady, "device not ready"),
      WARPSTEP_STATUS(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
      WARPSTEP_STATUS(cudaErrorLaunchOutOfResources, "too many resources for a launch"),
      WARPSTEP_STATUS(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
      WARPSTEP_STATUS(cudaErrorLaunchFailure, "unspecified launch failure"),
      WARPSTEP_STATUS(cudaErrorNotSupported, "operation not supported"),
      WARPSTEP_STATUS(cudaErrorDevicesUnavailable, "the device is busy or unavailable"),
      WARPSTEP_STATUS(cudaErrorStreamCaptureUnsupported, "not permitted during a capture"),
      WARPSTEP_STATUS(cudaErrorStreamCaptureInvalidated, "an earlier error ended the capture"),
      WARPSTEP_STATUS(cudaErrorStreamCaptureMerge, "two captures would be merged"),
      WARPSTEP_STATUS(cudaErrorStreamCaptureUnmatched, "the capture began on another stream"),
      WARPSTEP_STATUS(cudaErrorStreamCaptureUnjoined, "a fork was not joined to the stream"),
      WARPSTEP_STATUS(cudaErrorStreamCaptureIsolation, "depends on work before the capture"),
      WARPSTEP_STATUS(cudaErrorStreamCaptureImplicit, "waits for the default stream"),
      WARPSTEP_STATUS(cudaErrorCapturedEvent, "the event was last recorded in a capture"),
      WARPSTEP_STATUS(cudaErrorStreamCaptureWrongThread, "the capture began on another thread"),
      WARPSTEP_STATUS(cudaErrorGraphExecUpdateFailure, "the graph could not be updated"),
  };
#undef WARPSTEP_STATUS
  const auto found = std::ranges::find(table, status, &ErrorText::status);
  return found == table.end() ? unknown : *found;
}

}  // namespace

int& current_device() {
  static thread_local int device = 0;
  return device;
}

cudaError_t remember(cudaError_t status) {
  if (status != cudaSuccess && status != cudaErrorNotReady) last_error = status;
  return status;
}

}  // namespace warpstep::fake_cuda

namespace fake = warpstep::fake_cuda;
using fake::call;
using fake::State;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [=](State& s) {
    *count = s.devices;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  return call("cudaDeviceGetPCIBusId", [=](State& s) {
    if (id == nullptr || size < 13) return cudaErrorInvalidValue;
    const cudaError_t known = fake::known_device(s, device);
    if (known == cudaSuccess)
      std::snprintf(id, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
    return known;
  });
}
cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [=](State& s) {
    const cudaError_t status = fake::known_device(s, device);
    if (status == cudaSuccess) fake::current_device() = device;
    return status;
  });
}
cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [=](State&) {
    *device = fake::current_device();
    return cudaSuccess;
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return call("cudaGetDeviceProperties", [=](State& s) {
    if (fake::known_device(s, device) == cudaSuccess) *prop = fake::properties(s);
    return fake::known_device(s, device);
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return call("cudaDeviceGetAttribute", [=](State& s) {
    const cudaError_t status = fake::known_device(s, device);
    return status != cudaSuccess ? status : fake::attribute(s, value, which);
  });
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute which, int value) {
  return call("cudaFuncSetAttribute", [=](State& s) {
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    const auto most = static_cast<int>(fake::properties(s).sharedMemPerBlockOptin);
    if (value < 0 || value > most) return cudaErrorInvalidValue;
    warpstep::simt::allow_shared_bytes(kernel, static_cast<std::size_t>(value));
    return cudaSuccess;
  });
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  return call("cudaFuncGetAttributes", [=](State& s) {
    *attributes = {};
    attributes->ptxVersion = attributes->binaryVersion = s.compiled;
    return cudaSuccess;
  });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  return call("cudaRuntimeGetVersion", [=](State&) {
    *version = fake::version;
    return cudaSuccess;
  });
}
cudaError_t cudaDriverGetVersion(int* version) {
  return call("cudaDriverGetVersion", [=](State&) {
    *version = fake::version;
    return cudaSuccess;
  });
}

cudaError_t cudaGetLastError() {
  return std::exchange(fake::last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return fake::last_error;
}
const char* cudaGetErrorName(cudaError_t status) {
  return fake::describe(status).name;
}
const char* cudaGetErrorString(cudaError_t status) {
  return fake::describe(status).text;
}

}  // extern "C"
