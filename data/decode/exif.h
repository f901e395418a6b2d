// The orientation that a camera writes into a JPEG file's EXIF data.
#pragma once

#include <cstdint>
#include <span>

namespace warpstep::data {

// 1 to 8, as EXIF counts: 1, also for files without a valid one, if the pixels are stored upright.
// Reads no further than the first scan; accepts any bytes.
int exif_orientation(std::span<const std::uint8_t> jpeg);

}  // namespace warpstep::data
