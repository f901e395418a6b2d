// The orientation that a camera writes into a JPEG file's EXIF data.
#pragma once

#include <cstdint>
#include <span>

namespace warpstep::data {

// The EXIF orientation, 1 to 8. 1: stored upright, or the file has no valid orientation. Reads no
// further than the first scan; accepts any bytes.
int exif_orientation(std::span<const std::uint8_t> jpeg);

}  // namespace warpstep::data
