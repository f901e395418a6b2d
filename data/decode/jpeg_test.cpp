// All routes give the pixels of a full decode, for every kind of file and every window.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "data/decode/jpeg.h"
#include "data/decode/jpeg_testing.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using testing::decode_whole;
using testing::decode_window;
using testing::every_kind;
using ::testing::HasSubstr;
using testing::JpegKind;
using testing::message_of;
using testing::some_jpeg;
using testing::some_window;
using testing::window_of;

struct FileSize {
  std::int64_t height, width;
};

// Compares all routes over `windows` windows of the file with a full decode of the same file.
void expect_equal_routes(const Bytes& file, const std::string& what, std::uint32_t windows) {
  JpegDecoder decoder;
  const Shape shape = jpeg_shape(file, "a.jpg");
  const Bytes whole = decode_whole(decoder, file, 3);
  for (std::uint32_t w = 0; w < windows; ++w) {
    const Window window = some_window(shape[0], shape[1], w);
    const Bytes expected = window_of(whole, shape[1], 3, window);
    for (const JpegRoute route :
         {JpegRoute::automatic, JpegRoute::full, JpegRoute::partial, JpegRoute::seek}) {
      ASSERT_TRUE(decode_window(decoder, file, window, 3, route) == expected)
          << what << " " << shape.text() << ", route " << static_cast<int>(route) << ", "
          << window.height << " x " << window.width << " from row " << window.y << " column "
          << window.x;
    }
  }
}

TEST(Jpeg, RoutesAreEqualOverKindsSizesAndWindows) {
  for (const JpegKind& kind : every_kind) {
    for (const FileSize& size :
         {FileSize{61, 97}, FileSize{64, 96}, FileSize{130, 75}, FileSize{33, 200}}) {
      SCOPED_TRACE(kind.name);
      expect_equal_routes(some_jpeg(kind, size.height, size.width), kind.name, 60);
    }
  }
}

TEST(Jpeg, RoutesAreEqualOnTinyImages) {
  for (const JpegKind& kind : every_kind) {
    for (std::int64_t height = 1; height <= 18; height += height < 5 ? 1 : 4) {
      for (std::int64_t width = 1; width <= 18; width += width < 6 ? 1 : 4)
        expect_equal_routes(some_jpeg(kind, height, width), kind.name, 12);
    }
  }
}

TEST(Jpeg, PartialIsExactFromEveryRowAndColumn) {
  JpegDecoder decoder;
  for (const JpegKind& kind : every_kind) {
    const Bytes file = some_jpeg(kind, 71, 83);
    const Bytes whole = decode_whole(decoder, file, 3);
    const auto check = [&](const Window& window) {
      JpegRoute taken{};
      const Bytes got = decode_window(decoder, file, window, 3, JpegRoute::partial, &taken);
      EXPECT_EQ(taken, JpegRoute::partial);
      ASSERT_TRUE(got == window_of(whole, 83, 3, window))
          << kind.name << " from row " << window.y << ", column " << window.x;
    };
    for (std::int64_t y = 0; y < 71; ++y) check({y, y % 83, std::min<std::int64_t>(9, 71 - y), 1});
    for (std::int64_t x = 0; x < 83; ++x) check({x % 71, x, 1, std::min<std::int64_t>(6, 83 - x)});
  }
}

TEST(Jpeg, TakesTheRouteThatTheFileAllows) {
  JpegDecoder decoder;
  const auto taken = [&](const Bytes& file, const Window& window, JpegRoute route) {
    JpegRoute used{};
    decode_window(decoder, file, window, 3, route, &used);
    return used;
  };
  const Bytes plain = some_jpeg({}, 96, 160);
  const Bytes marked = make_seekable(plain, "a.jpg");
  const Window part{40, 40, 16, 16};
  const Window whole{0, 0, 96, 160};
  const Window nearly{1, 1, 94, 158};
  EXPECT_EQ(taken(plain, part, JpegRoute::automatic), JpegRoute::partial);
  EXPECT_EQ(taken(plain, part, JpegRoute::seek), JpegRoute::partial);
  EXPECT_EQ(taken(plain, part, JpegRoute::full), JpegRoute::full);
  EXPECT_EQ(taken(plain, whole, JpegRoute::automatic), JpegRoute::full);
  EXPECT_EQ(taken(marked, part, JpegRoute::automatic), JpegRoute::seek);
  EXPECT_EQ(taken(marked, part, JpegRoute::partial), JpegRoute::partial);
  EXPECT_EQ(taken(marked, nearly, JpegRoute::automatic), JpegRoute::partial);
  EXPECT_EQ(taken(marked, nearly, JpegRoute::seek), JpegRoute::seek);
  EXPECT_EQ(taken(marked, whole, JpegRoute::automatic), JpegRoute::full);
}

// Without the last refinements libjpeg-turbo smooths across blocks: only all of it is exact.
TEST(Jpeg, UnrefinedProgressiveFilesAreDecodedWhole) {
  const Bytes file = some_jpeg({.progressive = true}, 80, 112);
  std::vector<std::size_t> scans;
  for (std::size_t i = 0; i + 1 < file.size(); ++i)
    if (file[i] == 0xff && (file[i + 1] == 0xda || file[i + 1] == 0xc4)) scans.push_back(i);
  int smoothed = 0;
  JpegDecoder decoder;
  for (const std::size_t end : scans) {
    Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(end));
    cut.insert(cut.end(), {0xff, 0xd9});
    Bytes whole;
    try {
      whole = decode_whole(decoder, cut, 3);
    } catch (const DataError&) {
      continue;  // before the first scan's end
    }
    JpegRoute taken{};
    const Window window{16, 32, 16, 16};
    const Bytes got = decode_window(decoder, cut, window, 3, JpegRoute::automatic, &taken);
    EXPECT_EQ(taken, JpegRoute::full);
    EXPECT_EQ(got, window_of(whole, 112, 3, window));
    ++smoothed;
  }
  EXPECT_GT(smoothed, 5);
}

TEST(Jpeg, GivesGrayAsOneOrThreeChannels) {
  JpegDecoder decoder;
  const Bytes gray = some_jpeg({.channels = 1, .across = {1}, .down = {1}}, 20, 30);
  EXPECT_EQ(jpeg_shape(gray, "a.jpg"), (Shape{20, 30, 1}));
  const Bytes one = decode_whole(decoder, gray, 1);
  const Bytes three = decode_whole(decoder, gray, 3);
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(three[i * 3], one[i]);
    ASSERT_EQ(three[i * 3 + 1], one[i]);
    ASSERT_EQ(three[i * 3 + 2], one[i]);
  }
  EXPECT_THAT(message_of([&] { decode_whole(decoder, some_jpeg({}, 20, 30), 1); }),
              AllOf(HasSubstr("a.jpg: is a colour JPEG"), HasSubstr("-colorspace Gray")));
}

TEST(Jpeg, RefusesAWindowOrMemoryThatDoesNotFit) {
  JpegDecoder decoder;
  const Bytes file = some_jpeg({}, 20, 30);
  Bytes pixels(300);
  const auto refusal = [&](const Window& window, std::int64_t channels) {
    return message_of<UsageError>([&] { decoder.decode(file, "a.jpg", window, channels, pixels); });
  };
  EXPECT_THAT(refusal({0, 0, 10, 11}, 3), HasSubstr("300 bytes for a window of 10 x 11 x 3"));
  EXPECT_THAT(refusal({11, 0, 10, 10}, 3), HasSubstr("of 20x30x3"));
  EXPECT_THAT(refusal({0, 0, 10, 15}, 2), HasSubstr("x 2"));
}

TEST(Jpeg, EncodesCloseToTheImageAndAlwaysAlike) {
  JpegDecoder decoder;
  for (const std::int64_t channels : {1, 3}) {
    Bytes pixels;
    for (int y = 0; y < 40; ++y)
      for (int x = 0; x < 50; ++x)
        for (int c = 0; c < channels; ++c)
          pixels.push_back(static_cast<std::uint8_t>(60 + 2 * x + y + 20 * c));
    const Bytes file = encode_jpeg({40, 50, channels}, pixels, 95);
    EXPECT_EQ(file, encode_jpeg({40, 50, channels}, pixels, 95));
    EXPECT_LT(encode_jpeg({40, 50, channels}, pixels, 20).size(), file.size());
    EXPECT_EQ(jpeg_shape(file, "a.jpg"), (Shape{40, 50, channels}));
    const Bytes got = decode_whole(decoder, file, channels);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], pixels[i], 6) << i;
  }
  EXPECT_THAT(message_of<UsageError>([] {
                encode_jpeg({2, 2, 3}, Bytes(11));
              }),
              HasSubstr("11 bytes for an image of 2x2x3"));
  EXPECT_THAT(message_of<UsageError>([] {
                encode_jpeg({2, 2, 3}, Bytes(12), 0);
              }),
              HasSubstr("quality 0"));
}

}  // namespace

// Two files that Pillow 13.0 (libjpeg-turbo 3.2) wrote, and the pixels that it reads from them:
//   im = Image.open(f).convert("RGB"); fnv1a(numpy.asarray(im).tobytes())

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::string_view baseline_420 =
    "ffd8ffe000104a46494600010100000100010000ffdb0043003525282f2821352f2b2f3c39353f508557504949"
    "50a3757b6185c1aacbc8beaabab7d5f0ffffd5e2ffe6b7baffffffffffffffffffceffffffffffffffffffffff"
    "db004301393c3c5046509d57579dffdcbadcffffffffffffffffffffffffffffffffffffffffffffffffffffff"
    "ffffffffffffffffffffffffffffffffffffffffffffffffc00011080025003503012200021101031101ffc400"
    "190000030101010000000000000000000000000304020105ffc4001f1000030101000202030000000000000000"
    "000102031104311321121422ffc4001801010003010000000000000000000000000200010304ffc4001f110002"
    "0105010003000000000000000000010200031112213113223241ffda000c03010002110311003f007fcf2913eb"
    "e47dfd03c69232b0eb2d7cdfb255c46a11bb355e4d707478ab8674c6503e8751648a9257a553192af8373ce532"
    "8fe1219757d5a1a4c06ed3cfa57d02aba8e8158b426b1bf2735dd2f421791f676b16d8ccfc52ca25aeb27c0b4e"
    "fecbe08bdea994d78e9216b29e852a01a6115565e08a876c2ddf0ba221231a7e08b2013758bd02af241cb6054a"
    "a409eae356985c9fc99ad1f46c6d5c0002f6694945e2f5da842d29b003a59463110339bf92b9ec555d37ec00ca"
    "968cd6a8169b85d5ec000e984727ffd9";
constexpr std::string_view progressive_422 =
    "ffd8ffe000104a46494600010100000100010000ffdb0043003525282f2821352f2b2f3c39353f508557504949"
    "50a3757b6185c1aacbc8beaabab7d5f0ffffd5e2ffe6b7baffffffffffffffffffceffffffffffffffffffffff"
    "db004301393c3c5046509d57579dffdcbadcffffffffffffffffffffffffffffffffffffffffffffffffffffff"
    "ffffffffffffffffffffffffffffffffffffffffffffffffc20011080025003503012100021101031101ffc400"
    "17000101010100000000000000000000000002000103ffc4001701010101010000000000000000000000000201"
    "0300ffda000c030100021003100000017cfa66c613990ab29e993ae9c448601a3e7a2a08da64d4a8e5dd31f080"
    "c751e7a240a56bdfffc4001a100003010101010000000000000000000000011110120220ffda00080101000105"
    "02a3f453a2ec21c8d096b674745f882f2724c794a3652eff00ffc4001b11000300030101000000000000000000"
    "000001021011213112ffda0008010301013f016853c246cba1d709c6ba521798fae9543f0d128d74a11fffc400"
    "1b11000203010101000000000000000000000001021112102131ffda0008010201013f01cd8892e464484cc99a"
    "23e8d53345da2e8fa5310e3e10e7ffc40014100100000000000000000000000000000050ffda0008010100063f"
    "020fffc400191001010101010100000000000000000000010011102120ffda0008010100013f21cf02aad31b3b"
    "6f928c17929f08b63676f67959880b1693072dab52b17fffda000c03010002000300000010fee0fc11a4ede28f"
    "9470ffc40017110101010100000000000000000000000001001121ffda0008010301013f10e790148306dd2426"
    "b367767704201748965c9241646b221021cbffc4001a1101010101010101000000000000000000010011211031"
    "41ffda0008010201013f107ed1c7185361cbf3b5ba4af1f0bea00ef901c93025e5dae7907570c85fffc4001910"
    "01010101010100000000000000000000010011213110ffda0008010100013f10c8bb727b14a21986e408db1640"
    "80dc96d8cf23ab7939373cd8e45f80046d1cb1884db27c82370f653ec74f6fffd9";

Bytes bytes_of(std::string_view hex) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(
        static_cast<std::uint8_t>(std::stoul(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

std::uint64_t fnv1a(const Bytes& bytes) {
  std::uint64_t hash = 14695981039346656037U;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 1099511628211U;
  return hash;
}

std::uint64_t hash_of_pixels(const Bytes& file) {
  EXPECT_EQ(jpeg_shape(file, "a.jpg"), (Shape{37, 53, 3}));
  Bytes pixels(37 * 53 * 3);
  JpegDecoder decoder;
  decoder.decode(file, "a.jpg", {0, 0, 37, 53}, 3, pixels);
  return fnv1a(pixels);
}

TEST(JpegGolden, PixelsAreThoseOfPillow) {
  EXPECT_EQ(hash_of_pixels(bytes_of(baseline_420)), 0xab868c05b155de6fU);
  EXPECT_EQ(hash_of_pixels(bytes_of(progressive_422)), 0x78391f64db90f5c9U);
  EXPECT_EQ(hash_of_pixels(make_seekable(bytes_of(baseline_420), "a.jpg")), 0xab868c05b155de6fU);
}

}  // namespace

// Thousands of damaged JPEG files: each is refused with a DataError, or all routes give what a
// decoder of the whole file gives.

namespace {

using testing::Bytes;
using testing::Seed;
using testing::seeds;
using testing::Verdict;
using testing::verdict_on;

// Where segments and intervals begin, by every marker that is there.
std::vector<std::size_t> markers_of(const Bytes& file) {
  std::vector<std::size_t> markers;
  for (std::size_t i = 0; i + 1 < file.size(); ++i)
    if (file[i] == 0xff && file[i + 1] != 0 && file[i + 1] != 0xff) markers.push_back(i);
  return markers;
}

Bytes edited(Bytes file, std::array<std::uint32_t, 4> r, std::uint32_t kind) {
  if (file.size() < 8) return file;
  const auto size = static_cast<std::uint32_t>(file.size());
  const auto at = file.begin() + below(r[1], size - 4);
  const auto value = static_cast<std::uint8_t>(r[2]);
  const std::vector<std::size_t> markers = markers_of(file);
  const auto some_marker = [&](std::uint32_t word) {
    if (markers.empty()) return file.begin();
    return file.begin() + static_cast<std::ptrdiff_t>(
                              markers[below(word, static_cast<std::uint32_t>(markers.size()))]);
  };
  switch (kind) {
    case 0: *at ^= static_cast<std::uint8_t>(1U << value % 8); break;
    case 1: *at = value; break;
    case 2: *at = 0xff; break;
    case 3: file.insert(at, value); break;
    case 4: file.erase(at, at + 1 + value % 4); break;
    case 5: file.resize(below(r[1], size)); break;
    case 6: some_marker(r[1])[1] = static_cast<std::uint8_t>(0xc0 + value % 0x40); break;
    case 7: some_marker(r[1])[1] = static_cast<std::uint8_t>(0xd0 + value % 10); break;
    case 8: std::swap(some_marker(r[1])[1], some_marker(r[2])[1]); break;
    case 9: {  // two neighbouring segments or intervals change places
      if (markers.size() < 3) break;
      const std::size_t m = below(r[1], static_cast<std::uint32_t>(markers.size() - 2));
      std::rotate(file.begin() + static_cast<std::ptrdiff_t>(markers[m]),
                  file.begin() + static_cast<std::ptrdiff_t>(markers[m + 1]),
                  file.begin() + static_cast<std::ptrdiff_t>(markers[m + 2]));
      break;
    }
    case 10: {  // a segment or interval is there twice
      const auto begin = some_marker(r[1]);
      const Bytes copy(begin, std::min(begin + 60, file.end()));
      file.insert(begin, copy.begin(), copy.end());
      break;
    }
    case 11: {  // the header: sizes, factors, intervals
      const auto marker = some_marker(r[1] >> 3);
      const std::ptrdiff_t offset = 4 + (r[3] >> 8) % 12;
      if (file.end() - marker > offset) marker[offset] ^= static_cast<std::uint8_t>(1 + value % 64);
      break;
    }
    default: break;
  }
  return file;
}

Bytes damaged(const Bytes& file, std::uint32_t round) {
  const auto first = draw(11, Purpose::synthetic, round, 0);
  Bytes result = file;
  for (std::uint32_t edit = 0; edit < 1 + first[0] % 3; ++edit) {
    const auto r = draw(11, Purpose::synthetic, round, 1 + edit);
    result = edited(result, r, below(r[0], 12));
  }
  return result;
}

TEST(JpegMutation, DamagedFilesAreRefusedOrGiveTheSamePixelsOnEveryRoute) {
  JpegDecoder decoder;
  const std::vector<Seed> files = seeds();
  int refused = 0;
  int equal = 0;
  int sought = 0;
  int made_seekable = 0;
  for (std::uint32_t round = 0; round < 7000; ++round) {
    const Seed& seed = files[round % files.size()];
    const Verdict verdict = verdict_on(decoder, damaged(seed.file, round), round);
    ASSERT_EQ(verdict.disagreement, "") << seed.name << ", round " << round;
    refused += verdict.refused ? 1 : 0;
    equal += verdict.equal;
    sought += verdict.sought;
    made_seekable += verdict.made_seekable ? 1 : 0;
  }
  EXPECT_GT(refused, 3000);
  EXPECT_GT(equal, 3000);
  EXPECT_GT(sought, 300);
  EXPECT_GT(made_seekable, 500);
}

}  // namespace
}  // namespace warpstep::data
