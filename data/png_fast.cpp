#include "data/png_fast.h"

namespace warpstep::data {

struct PngFastReader::Impl {};
PngFastReader::PngFastReader() = default;
PngFastReader::~PngFastReader() = default;
PngFastReader::PngFastReader(PngFastReader&&) noexcept = default;
PngFastReader& PngFastReader::operator=(PngFastReader&&) noexcept = default;
bool PngFastReader::decode(std::span<const std::uint8_t>, const Shape&, std::span<std::uint8_t>) {
  return false;
}

}  // namespace warpstep::data
