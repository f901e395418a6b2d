#include "kernels/cuda/check.h"

#include <cuda_runtime_api.h>

#include "engine/core/error.h"
#include "kernels/cuda/runtime.h"

namespace warpstep::cuda {
namespace {

const char* advice(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "the device is out of memory; use a smaller --batch, or another device with --device "
             "cuda:N";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidDeviceFunction:
      return "this build has no code for this GPU; configure with "
             "-DCMAKE_CUDA_ARCHITECTURES=native, or use the preset release-cuda";
    case cudaErrorInsufficientDriver:
      return "the NVIDIA driver is older than this CUDA toolkit needs; update the driver";
    case cudaErrorDevicesUnavailable:
      return "another process has the device, or its compute mode admits none; see nvidia-smi";
    case cudaErrorSystemNotReady:
      return "the machine's NVIDIA services are not ready; where GPUs are connected by NVSwitch, "
             "nvidia-fabricmanager must run: systemctl status nvidia-fabricmanager";
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
    case cudaErrorCapturedEvent:
      return "steps are captured as graphs, in which nothing may allocate or wait, including a "
             "custom op's enqueue(); run with --no-graph";
    default: return nullptr;
  }
}

// What to do about an error that persists until the process ends; null for any other status.
const char* advice_if_lost(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
      return "a kernel before this call failed, and the device's memory is lost to this process; "
             "run again with --no-graph under compute-sanitizer to find it. The last checkpoint is "
             "intact: continue with --resume";
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorContained:
    case cudaErrorDeviceUninitialized:
      return "the device is lost; see dmesg and nvidia-smi. The last checkpoint is intact: "
             "continue with --resume, on another device with --device cuda:N";
    default: return nullptr;
  }
}

template <class E>
[[noreturn]] void fail_with(cudaError_t status, const char* call, const char* fix) {
  fail<E>("cuda: {} failed: {} ({}){}{}", call, cudaGetErrorString(status),
          cudaGetErrorName(status), fix ? "; " : "", fix ? fix : "");
}

}  // namespace

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clear the error, so that the next call does not report it again
  if (const char* fix = advice_if_lost(status)) fail_with<DeviceLost>(status, call, fix);
  if (status == cudaErrorMemoryAllocation)
    fail_with<OutOfDeviceMemory>(status, call, advice(status));
  fail_with<DeviceError>(status, call, advice(status));
}

void require_sound_device() {
  const cudaError_t status = cudaDeviceSynchronize();
  if (status != cudaSuccess)
    fail_with<DeviceLost>(status, "cudaDeviceSynchronize", advice_if_lost(status));
}

}  // namespace warpstep::cuda
