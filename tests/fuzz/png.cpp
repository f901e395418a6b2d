// PNG files of every kind: read or refused, and the fast reader never accepts a file that libpng
// refuses nor returns other pixels. Each input is also tried with its checksums repaired, and with
// its chunks' lengths repaired too, so that damage gets past them.
#include "data/decode/png.h"

#include "tests/data_testing.h"
#include "tests/fuzz/harness/target.h"
#include "tests/fuzz/png_agreement.h"
#include "tests/fuzz/png_parts.h"

namespace warpstep::fuzz::png_target {
namespace {

void check(Input file, const char* which) {
  const std::string difference = png_disagreement(file);
  promise(difference.empty(), which + difference);
}

void run(Input input) {
  check(input, "as it is, ");
  check(with_right_checksums(input), "with right checksums, ");
  check(reframed(input), "with right lengths and checksums, ");
}

// Nearly valid files: random damage seldom comes so close.
void append_refused(std::vector<Bytes>& files) {
  const std::vector<PngChunk> good = PngSpec{.width = 100, .height = 60, .idats = 2}.chunks();
  std::vector<PngChunk> between = good, critical = good, narrow = good, interlaced = good;
  between.insert(between.begin() + 2, PngChunk{"tEXt", {}});
  critical.insert(critical.begin() + 1, PngChunk{"TEXt", {}});
  narrow[1].data[0] = 0x08;  // a window of 256 bytes, and distances of a row, 301
  interlaced[0].data[12] = 1;
  for (const auto& chunks : {between, critical, narrow, interlaced})
    files.push_back(with_right_checksums(png_file(chunks)));
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> files{data::testing::some_png({4, 5, 3}), data::testing::some_png({9, 3, 1})};
  for (const int colour : {0, 2, 4, 6}) {
    files.push_back(PngSpec{.colour = colour, .idats = 3, .window_bits = 9}.file());
    files.push_back(PngSpec{.width = 40, .height = 30, .colour = colour}.file());
  }
  files.push_back(PngSpec{.depth = 16}.file());
  files.push_back(PngSpec{.depth = 2, .colour = 3}.file());
  files.push_back(PngSpec{.depth = 1, .colour = 0}.file());
  std::vector<PngChunk> more = PngSpec{.idats = 2}.chunks();
  more.insert(more.begin() + 1, {PngChunk{"tEXt", {'a', 0, 'b'}}, PngChunk{"tRNS", Bytes(6)}});
  files.push_back(png_file(more));
  append_refused(files);
  return files;
}

const Registered target_{"png", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::png_target
