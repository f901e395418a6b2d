#include "data/jpeg.h"

#include "engine/core/error.h"

namespace warpstep::data {

struct JpegDecoder::Impl {};
JpegDecoder::JpegDecoder() = default;
JpegDecoder::~JpegDecoder() = default;
JpegDecoder::JpegDecoder(JpegDecoder&&) noexcept = default;
JpegDecoder& JpegDecoder::operator=(JpegDecoder&&) noexcept = default;
Shape jpeg_shape(std::span<const std::uint8_t>, const std::string& name) {
  fail<DataError>("{}: no JPEG yet", name);
}
JpegRoute JpegDecoder::decode(std::span<const std::uint8_t>, const std::string& name, const Window&,
                              std::int64_t, std::span<std::uint8_t>, JpegRoute) {
  fail<DataError>("{}: no JPEG yet", name);
}

}  // namespace warpstep::data
