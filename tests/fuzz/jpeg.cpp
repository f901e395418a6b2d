// JPEG files: read or refused, with the same pixels on every path, whatever the decoder has read
// before; and a file made seekable has the same image.
#include "data/decode/jpeg.h"

#include "data/decode/exif.h"
#include "data/decode/jpeg_testing.h"
#include "tests/data_exif.h"
#include "tests/fuzz/harness/target.h"

namespace warpstep::fuzz::jpeg_target {
namespace {

constexpr std::int64_t most_pixels = 1 << 20;  // larger images take time and have no other paths

void run(Input input) {
  static data::JpegDecoder decoder;
  const int orientation = data::exif_orientation(input);
  promise(orientation >= 1 && orientation <= 8, "an orientation is one of EXIF's");
  if (data::jpeg_shape(input, "a.jpg").count() > most_pixels) return;
  std::uint32_t salt = 0;  // of the windows: depends only on the input
  for (const std::uint8_t byte : input) salt = salt * 31 + byte;
  const data::testing::Verdict verdict = data::testing::verdict_on(decoder, input, salt % 100'000);
  promise(verdict.disagreement.empty(), verdict.disagreement);
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> files;
  for (data::testing::Seed& seed : data::testing::seeds()) files.push_back(std::move(seed.file));
  const data::testing::JpegKind rgb{.across = {1, 1, 1}, .down = {1, 1, 1}, .rgb = true};
  files.push_back(data::testing::some_jpeg(rgb, 9, 17));
  files.push_back(data::testing::some_jpeg({.progressive = true, .single_scans = 20}, 20, 20));
  for (const bool little_endian : {false, true})
    files.push_back(data::testing::with_segment(data::testing::some_jpeg({}, 9, 17),
                                                data::testing::exif_segment(6, little_endian)));
  return files;
}

const Registered target_{"jpeg", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::jpeg_target
