// PNG's five row filters, undone (ISO/IEC 15948, section 9).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace warpstep::data {

// What may be read behind the filtered rows: loads are of 4 bytes where a pixel has 3.
inline constexpr std::size_t png_filter_slack_bytes = 4;

// `filtered` holds `height` rows of 1 filter byte and row_bytes; `pixels` gets rows of row_bytes
// without a gap. A pixel has pixel_bytes, 1 to 4. `zeros` is a buffer that is kept from call to
// call. False for a filter that the format does not have.
bool undo_png_filters(const std::uint8_t* filtered, std::size_t height, std::size_t row_bytes,
                      std::size_t pixel_bytes, std::vector<std::uint8_t>& zeros,
                      std::uint8_t* pixels);

}  // namespace warpstep::data
