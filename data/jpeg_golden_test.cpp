// Two files that Pillow 13.0 (libjpeg-turbo 3.2) wrote, and the pixels that it reads from them:
//   im = Image.open(f).convert("RGB"); fnv1a(numpy.asarray(im).tobytes())
#include <gtest/gtest.h>

#include <string_view>

#include "data/jpeg.h"

namespace warpstep::data {
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
}  // namespace warpstep::data
