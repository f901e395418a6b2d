#include "kernels/cuda/check.h"

#include <cuda_runtime_api.h>

#include "engine/core/error.h"

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
    case cudaErrorHardwareStackError:
    case cudaErrorContained:
    case cudaErrorDeviceUninitialized:
      return "the device is lost; see dmesg and nvidia-smi. The last checkpoint is intact: "
             "continue with --resume, on another device with --device cuda:N";
    default: return nullptr;
  }
}

}  // namespace

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clear the error, so that the next call does not report it again
  const char* fix = advice(status);
  fail<DeviceError>("cuda: {} failed: {} ({}){}{}", call, cudaGetErrorString(status),
                    cudaGetErrorName(status), fix ? "; " : "", fix ? fix : "");
}

}  // namespace warpstep::cuda
