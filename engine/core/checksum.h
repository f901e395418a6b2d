// CRC32C (Castagnoli's polynomial), the checksum of packed samples, of checkpoints' metadata and of
// TensorBoard's files.
#pragma once

#include <cstdint>
#include <span>

namespace warpstep {

// The same as in iSCSI and ext4: "123456789" gives 0xe3069283.
std::uint32_t crc32c(std::span<const std::uint8_t> bytes);

}  // namespace warpstep
