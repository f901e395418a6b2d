// PNG files of every kind: read or refused, and the fast reader never takes what libpng refuses nor
// gives other pixels. Each input is also tried with its checksums mended, so that damage gets past
// them.
#include "data/png.h"

#include "tests/data_testing.h"
#include "tests/fuzz/harness/target.h"
#include "tests/fuzz/png_agreement.h"
#include "tests/fuzz/png_parts.h"

namespace warpstep::fuzz {
namespace {

void run(Input input) {
  promise(png_disagreement(input).empty(), png_disagreement(input));
  const Bytes mended = with_right_checksums(input);
  const std::string difference = png_disagreement(mended);
  promise(difference.empty(), "with right checksums, " + difference);
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
  more[0].data[12] = 1;  // interlaced: too little data, until damage makes it fit
  files.push_back(png_file(more));
  return files;
}

const Registered target_{"png", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz
