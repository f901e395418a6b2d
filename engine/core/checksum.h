// CRC32C (Castagnoli), the checksum that packed samples carry.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace warpstep::data {

// Of the whole span, as iSCSI and ext4 compute it: "123456789" gives 0xe3069283.
std::uint32_t crc32c(std::span<const std::uint8_t> bytes);

// What a Dataset is besides, whose format may carry checksums.
class Checksums {
 public:
  virtual ~Checksums() = default;
  // Of the bytes that fetch() gives for the sample, as they were when it was packed.
  virtual std::optional<std::uint32_t> stored_crc32c(std::uint64_t index) const = 0;
};

}  // namespace warpstep::data
