// Reads lines 'REGISTERS BLOCK SHARED_BYTES' of kernels and prints for each which percentage of the
// threads that a multiprocessor of an H100 or H200 (sm_90) holds are resident. Needs no device.
#include <cuda_occupancy.h>

#include <cstddef>
#include <cstdio>
#include <iostream>

namespace {

cudaOccDeviceProp sm_90() {
  cudaOccDeviceProp device;
  device.computeMajor = 9;
  device.computeMinor = 0;
  device.maxThreadsPerBlock = 1024;
  device.maxThreadsPerMultiprocessor = 2048;
  device.regsPerBlock = device.regsPerMultiprocessor = 65536;
  device.warpSize = 32;
  device.sharedMemPerBlock = 48 << 10;
  device.sharedMemPerBlockOptin = 227 << 10;
  device.sharedMemPerMultiprocessor = 228 << 10;
  device.reservedSharedMemPerBlock = 1 << 10;
  device.numSms = 132;
  return device;
}

}  // namespace

int main() {
  const cudaOccDeviceProp device = sm_90();
  const cudaOccDeviceState state;
  cudaOccFuncAttributes kernel;
  kernel.maxThreadsPerBlock = device.maxThreadsPerBlock;
  int block = 0;
  while (std::cin >> kernel.numRegs >> block >> kernel.sharedSizeBytes) {
    cudaOccResult result;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, block, 0) !=
        CUDA_OCC_SUCCESS) {
      std::fprintf(stderr, "no occupancy of %d registers, %d threads\n", kernel.numRegs, block);
      return 1;
    }
    std::printf("%d\n", result.activeBlocksPerMultiprocessor * block * 100 /
                            device.maxThreadsPerMultiprocessor);
  }
  return 0;
}
