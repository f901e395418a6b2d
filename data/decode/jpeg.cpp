#include "data/decode/jpeg.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "data/decode/image.h"
#include "data/decode/jpeg_libjpeg.h"
#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/core/types.h"

namespace warpstep::data {
namespace {

constexpr std::int64_t block_side = 8;  // samples
// With several scans, all coefficients are in memory until the last scan: 128 bytes per block.
constexpr std::int64_t block_bytes = 128;
constexpr std::int64_t max_coefficient_bytes = std::int64_t{512} << 20;
// The part of APP0 (JFIF) and APP14 (Adobe) that decoders read, with marker and length.
constexpr std::size_t jfif_bytes = 18;
constexpr std::size_t adobe_bytes = 16;

constexpr const char* supported = "expected 8-bit gray or colour with Huffman coding; convert with";

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t max_across(const JpegHeader& header) {
  std::int64_t most = 1;
  for (int c = 0; c < header.components; ++c)
    most = std::max<std::int64_t>(most, header.sampling[idx(c)].across);
  return most;
}

std::int64_t max_down(const JpegHeader& header) {
  std::int64_t most = 1;
  for (int c = 0; c < header.components; ++c)
    most = std::max<std::int64_t>(most, header.sampling[idx(c)].down);
  return most;
}

const char* refused_frame(std::uint8_t frame) {
  switch (frame) {
    case 0xc3: return "a lossless";
    case 0xc5:
    case 0xc6:
    case 0xc7: return "a hierarchical";
    case 0xc9:
    case 0xca: return "an arithmetic-coded";
    case 0xcb: return "a lossless arithmetic-coded";
    case 0xcd:
    case 0xce:
    case 0xcf: return "a hierarchical arithmetic-coded";
    default: return nullptr;
  }
}

bool is_skipped(std::uint8_t code) {
  return (code >= marker::app0 && code <= marker::app15) || code == marker::com ||
         code == marker::dac || code == marker::dnl;
}

// Reads the segments of the header one by one; checks every access against the file's end.
class HeaderReader {
 public:
  HeaderReader(std::span<const std::uint8_t> file, const std::string& name)
      : file_(file), name_(name) {}

  JpegHeader read() {
    check_signature();
    while (header_.data_begin == 0) {
      const std::uint8_t code = next_marker();
      const std::size_t begin = at_ - 2;
      const std::span<const std::uint8_t> body = next_body();
      if (code == marker::sos) {
        read_scan(begin, body);
      } else if (code == marker::dri) {
        if (body.size() != 2) broken(begin, "a restart interval of {} bytes", body.size());
        header_.restart_interval = body[0] << 8 | body[1];
      } else if (code == marker::sof0 || code == marker::sof1 || code == marker::sof2) {
        read_frame(code, begin, body);
      } else if (const char* kind = refused_frame(code)) {
        fail<DataError>("{}: byte {}: is {} JPEG; {}: mogrify -format jpg", name_, begin, kind,
                        supported);
      } else if (code != marker::dht && code != marker::dqt && !is_skipped(code)) {
        broken(begin, "marker 0xff{:02x} is not allowed before the image", code);
      }
      keep(code, begin, body);
    }
    return header_;
  }

 private:
  template <class... Args>
  [[noreturn]] void broken(std::size_t at, fmt::format_string<Args...> format, Args&&... args) {
    fail<DataError>("{}: byte {}: is a broken JPEG: {}; copy the file again", name_, at,
                    fmt::format(format, std::forward<Args>(args)...));
  }

  [[noreturn]] void truncated() {
    fail<DataError>(
        "{}: is truncated: the JPEG header continues after byte {}; copy the file again", name_,
        file_.size());
  }

  void check_signature() {
    if (file_.empty()) fail<DataError>("{}: is empty, expected a JPEG file; copy it again", name_);
    if (file_[0] != marker::prefix || (file_.size() > 1 && file_[1] != marker::soi))
      fail<DataError>("{}: is not a JPEG file; {}: mogrify -format jpg", name_, supported);
    at_ = 2;
  }

  std::uint8_t next_marker() {
    if (at_ >= file_.size()) truncated();
    if (file_[at_] != marker::prefix) broken(at_, "0x{:02x} instead of a marker", file_[at_]);
    while (at_ < file_.size() && file_[at_] == marker::prefix) ++at_;  // repeated ones are padding
    if (at_ >= file_.size()) truncated();
    return file_[at_++];
  }

  std::span<const std::uint8_t> next_body() {
    if (file_.size() - at_ < 2) truncated();
    const std::size_t bytes = idx(file_[at_] << 8 | file_[at_ + 1]);
    if (bytes < 2) broken(at_, "a segment of {} bytes", bytes);
    if (bytes > file_.size() - at_) truncated();
    at_ += bytes;
    return file_.subspan(at_ - bytes + 2, bytes - 2);
  }

  void read_frame(std::uint8_t code, std::size_t begin, std::span<const std::uint8_t> body) {
    if (header_.components != 0) broken(begin, "it has two frames");
    if (body.size() < 6 || body.size() != 6 + idx(body[5]) * 3)
      broken(begin, "a frame header of {} bytes", body.size() + 2);
    if (body[0] != 8)
      fail<DataError>("{}: byte {}: is a {}-bit JPEG; {}: mogrify -depth 8", name_, begin, body[0],
                      supported);
    if (body[5] == 4)
      fail<DataError>("{}: byte {}: is a CMYK or YCCK JPEG; {}: mogrify -colorspace sRGB", name_,
                      begin, supported);
    if (body[5] != 1 && body[5] != 3)
      fail<DataError>("{}: byte {}: is a JPEG of {} components; {}: mogrify -colorspace sRGB",
                      name_, begin, body[5], supported);
    header_.frame = code;
    header_.height = body[1] << 8 | body[2];
    header_.width = body[3] << 8 | body[4];
    header_.components = body[5];
    for (std::size_t c = 0; c < body[5]; ++c) {
      const std::uint8_t factors = body[7 + c * 3];
      header_.sampling[c] = {static_cast<std::uint8_t>(factors >> 4),
                             static_cast<std::uint8_t>(factors & 15)};
      if (factors >> 4 < 1 || factors >> 4 > 4 || (factors & 15) < 1 || (factors & 15) > 4)
        broken(begin, "component {} has sampling factors {} x {}; 1 to 4 are allowed", c,
               factors >> 4, factors & 15);
    }
    if (header_.height < 1 || header_.width < 1 || header_.height > max_image_side ||
        header_.width > max_image_side)
      fail<DataError>("{}: byte {}: claims {} x {} pixels; 1 to {} per side are allowed", name_,
                      begin, header_.width, header_.height, max_image_side);
  }

  void read_scan(std::size_t begin, std::span<const std::uint8_t> body) {
    if (header_.components == 0) broken(begin, "a scan before the frame header");
    if (body.empty() || body.size() != 4 + idx(body[0]) * 2 || body[0] < 1 ||
        body[0] > header_.components)
      broken(begin, "a scan header of {} bytes", body.size() + 2);
    header_.scan_components = body[0];
    header_.data_begin = at_;
    check_size(begin);
  }

  // A Huffman code has at least 1 bit. A block has at least two codes in a sequential file (its DC
  // coefficient and the end of block), one in a progressive file (DC).
  void check_size(std::size_t begin) {
    const std::int64_t bits = header_.frame == marker::sof2 ? 1 : 2;
    const std::int64_t blocks = header_.blocks();
    if (blocks * bits > static_cast<std::int64_t>(file_.size() - at_) * 8)
      fail<DataError>(
          "{}: byte {}: claims {} x {} pixels, but {} bytes cannot hold them; copy the file again",
          name_, begin, header_.width, header_.height, file_.size());
    if (header_.has_several_scans() && blocks * block_bytes > max_coefficient_bytes)
      fail<DataError>(
          "{}: byte {}: {} x {} pixels in several scans need {} MiB of coefficients; at most {} "
          "are allowed; make it baseline with: mogrify -interlace none",
          name_, begin, header_.width, header_.height, blocks * block_bytes >> 20,
          max_coefficient_bytes >> 20);
  }

  void keep(std::uint8_t code, std::size_t begin, std::span<const std::uint8_t> body) {
    std::size_t bytes = body.size() + 4;
    const auto starts = [&](std::string_view text) {
      return body.size() >= text.size() && std::memcmp(body.data(), text.data(), text.size()) == 0;
    };
    if (code == marker::app0) {
      if (bytes < jfif_bytes || !starts(std::string_view("JFIF\0", 5))) return;
      bytes = jfif_bytes;
    } else if (code == marker::app14) {
      if (bytes < adobe_bytes || !starts("Adobe")) return;
      bytes = adobe_bytes;
    } else if (is_skipped(code)) {
      return;
    }
    if (header_.segment_count == header_.segments.size()) {
      header_.has_all_segments = false;
      return;
    }
    header_.segments[header_.segment_count++] = {begin, bytes};
  }

  std::span<const std::uint8_t> file_;
  const std::string& name_;
  std::size_t at_ = 0;
  JpegHeader header_;
};

}  // namespace

std::int64_t JpegHeader::mcu_height() const {
  return components == 1 ? block_side : block_side * max_down(*this);
}
std::int64_t JpegHeader::mcu_width() const {
  return components == 1 ? block_side : block_side * max_across(*this);
}
std::int64_t JpegHeader::mcu_rows() const {
  return divide_up(height, mcu_height());
}
std::int64_t JpegHeader::mcus_per_row() const {
  return divide_up(width, mcu_width());
}

std::int64_t JpegHeader::blocks() const {
  std::int64_t count = 0;
  for (int c = 0; c < components; ++c) {
    const JpegComponent& factors = sampling[idx(c)];
    count += divide_up(width * factors.across, block_side * max_across(*this)) *
             divide_up(height * factors.down, block_side * max_down(*this));
  }
  return count;
}

std::int64_t JpegHeader::margin() const {
  const std::int64_t across = max_across(*this);
  const std::int64_t down = max_down(*this);
  for (int c = 0; c < components; ++c)
    if (sampling[idx(c)].across != across || sampling[idx(c)].down != down)
      return 2 * std::max(across, down);
  return 0;
}

JpegHeader read_jpeg_header(std::span<const std::uint8_t> file, const std::string& name) {
  return HeaderReader(file, name).read();
}

bool find_intervals(std::span<const std::uint8_t> file, const JpegHeader& header,
                    std::vector<std::size_t>& begins) {
  const std::int64_t per_row = header.mcus_per_row();
  if (header.frame != marker::sof0 || header.scan_components != header.components ||
      header.restart_interval == 0 || per_row % header.restart_interval != 0 ||
      !header.has_all_segments)
    return false;
  const std::size_t count = idx(per_row / header.restart_interval * header.mcu_rows());
  begins.assign(1, header.data_begin);
  const std::uint8_t* const end = file.data() + file.size();
  const std::uint8_t* at = file.data() + header.data_begin;
  while (at < end) {
    at = static_cast<const std::uint8_t*>(std::memchr(at, marker::prefix, idx(end - at)));
    if (at == nullptr || end - at < 2) return false;
    const std::uint8_t code = at[1];
    at += 2;
    if (code == 0) continue;  // a data byte of 0xff
    const std::size_t found = begins.size();
    begins.push_back(idx(at - file.data()));
    if (code == marker::eoi) return found == count;
    if (found == count || code != marker::rst0 + (found - 1) % 8) return false;
  }
  return false;
}

void JpegExcerpt::append(std::span<const std::uint8_t> file, std::size_t begin, std::size_t bytes) {
  copies_.push_back({bytes_.size(), begin});
  const std::uint8_t* from = file.data() + begin;
  bytes_.insert(bytes_.end(), from, from + bytes);
}

void JpegExcerpt::append_header(std::span<const std::uint8_t> file, const JpegHeader& header) {
  bytes_.assign({marker::prefix, marker::soi});
  const auto high = [](std::int64_t value) { return static_cast<std::uint8_t>(value >> 8); };
  const auto low = [](std::int64_t value) { return static_cast<std::uint8_t>(value); };
  for (std::size_t s = 0; s < header.segment_count; ++s) {
    const JpegSegment& segment = header.segments[s];
    const std::size_t at = bytes_.size();
    append(file, segment.begin, segment.bytes);
    const auto length = static_cast<std::int64_t>(segment.bytes - 2);  // APP0 may be shortened
    bytes_[at + 2] = high(length);
    bytes_[at + 3] = low(length);
    if (bytes_[at + 1] == header.frame) {
      bytes_[at + 5] = high(rectangle_.height);
      bytes_[at + 6] = low(rectangle_.height);
      bytes_[at + 7] = high(rectangle_.width);
      bytes_[at + 8] = low(rectangle_.width);
    }
  }
}

void JpegExcerpt::append_intervals(std::span<const std::uint8_t> file, const Area& area,
                                   std::int64_t per_row) {
  int number = 0;
  for (std::int64_t y = area.top; y < area.bottom; ++y) {
    for (std::int64_t x = area.left; x < area.right; ++x) {
      const std::size_t i = idx(y * per_row + x);
      append(file, intervals_[i], intervals_[i + 1] - intervals_[i]);
      bytes_.back() = static_cast<std::uint8_t>(marker::rst0 + number);
      number = (number + 1) % 8;
    }
  }
  bytes_.back() = marker::eoi;
}

bool JpegExcerpt::cut(std::span<const std::uint8_t> file, const JpegHeader& header,
                      const Window& window, bool only_if_worthwhile) {
  if (!find_intervals(file, header, intervals_)) return false;
  const std::int64_t margin = header.margin();
  const std::int64_t tall = header.mcu_height();
  const std::int64_t wide = header.mcu_width() * header.restart_interval;
  const std::int64_t per_row = header.mcus_per_row() / header.restart_interval;
  const auto past = [&](std::int64_t pixel, std::int64_t size, std::int64_t step) {
    return (std::min(pixel + margin, size) + step - 1) / step;
  };
  const Area area{std::max<std::int64_t>(0, window.y - margin) / tall,
                  past(window.y + window.height, header.height, tall),
                  std::max<std::int64_t>(0, window.x - margin) / wide,
                  past(window.x + window.width, header.width, wide)};
  const std::int64_t needed = (area.bottom - area.top) * (area.right - area.left);
  if (only_if_worthwhile && needed * 8 > per_row * header.mcu_rows() * worthwhile_eighths)
    return false;
  rectangle_.y = area.top * tall;
  rectangle_.x = area.left * wide;
  rectangle_.height = std::min(header.height, area.bottom * tall) - rectangle_.y;
  rectangle_.width = std::min(header.width, area.right * wide) - rectangle_.x;
  copies_.clear();
  append_header(file, header);
  append_intervals(file, area, per_row);
  return true;
}

std::size_t JpegExcerpt::position_in_file(std::size_t at) const {
  const auto next = std::upper_bound(copies_.begin(), copies_.end(), at,
                                     [](std::size_t a, const Copy& copy) { return a < copy.at; });
  if (next == copies_.begin()) return at;
  const Copy& copy = *(next - 1);
  return copy.from + (at - copy.at);
}

struct JpegDecoder::Impl {
  JpegEscape escape;
  JpegReader reader{&escape};
  JpegExcerpt excerpt;
  std::vector<std::uint8_t> row;

  Impl() {
    if (!warpstep_jpeg_create_reader(&reader))
      fail<Error>("cannot initialise libjpeg-turbo: {}", escape.reason);
  }
};

JpegDecoder::JpegDecoder() : impl_(std::make_unique<Impl>()) {}
JpegDecoder::~JpegDecoder() = default;
JpegDecoder::JpegDecoder(JpegDecoder&&) noexcept = default;
JpegDecoder& JpegDecoder::operator=(JpegDecoder&&) noexcept = default;

Shape jpeg_shape(std::span<const std::uint8_t> file, const std::string& name) {
  const JpegHeader header = read_jpeg_header(file, name);
  return Shape{header.height, header.width, header.components};
}

JpegTraits jpeg_traits(std::span<const std::uint8_t> file, const std::string& name) {
  const JpegHeader header = read_jpeg_header(file, name);
  std::vector<std::size_t> intervals;
  return {header.frame == marker::sof0, find_intervals(file, header, intervals)};
}

JpegRoute JpegDecoder::decode(std::span<const std::uint8_t> file, const std::string& name,
                              const Window& window, std::int64_t channels,
                              std::span<std::uint8_t> pixels, JpegRoute route) {
  const JpegHeader header = read_jpeg_header(file, name);
  const Shape shape{header.height, header.width, header.components};
  if (!is_inside(window, shape) || (channels != 1 && channels != 3) ||
      pixels.size() != idx(window.height * window.width * channels))
    fail<UsageError>("JpegDecoder: {} bytes for a window of {} x {} x {} of {}", pixels.size(),
                     window.height, window.width, channels, shape.text());
  if (channels == 1 && header.components == 3)
    fail<DataError>(
        "{}: is a colour JPEG, but the images of its set or run are gray (1 channel); convert it "
        "with: mogrify -colorspace Gray {}",
        name, shell_word(name));
  Impl& impl = *impl_;
  impl.row.resize(idx(header.width * channels));
  const bool whole = window == Window{0, 0, header.height, header.width};
  if (route == JpegRoute::automatic && whole) route = JpegRoute::full;
  const bool seek =
      (route == JpegRoute::seek || route == JpegRoute::automatic) &&
      impl.excerpt.cut(file, header, window, /*only_if_worthwhile=*/route == JpegRoute::automatic);
  JpegWindow wanted{file,          window,          header.height,
                    header.width,  header.margin(), channels,
                    pixels.data(), impl.row.data(), route != JpegRoute::full};
  if (seek) {
    const Window& rectangle = impl.excerpt.rectangle();
    wanted.file = impl.excerpt.bytes();
    wanted.height = rectangle.height;
    wanted.width = rectangle.width;
    wanted.window.y -= rectangle.y;
    wanted.window.x -= rectangle.x;
  }
  bool partial = false;
  if (!warpstep_jpeg_read(&impl.reader, &wanted, &partial)) {
    const std::size_t at = impl.reader.position();
    throw_broken_jpeg(name, seek ? impl.excerpt.position_in_file(at) : at, impl.escape);
  }
  if (seek) return JpegRoute::seek;
  return partial ? JpegRoute::partial : JpegRoute::full;
}

}  // namespace warpstep::data
