// `warpstep explain` says so where attention runs without tensor cores: what, why, what it costs
// and what to do, once. The real cuDNN decides, for assumed devices; an old one is preloaded by its
// version alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/command_output.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// What explain says of such a step, on stderr.
std::string said(const std::string& arguments) {
  const Result result = run_command("explain", arguments, true);
  EXPECT_EQ(result.code, 0) << result.text;
  return result.text;
}

const std::string in_16_bits = "gpt2-nano --assume sm_90 --precision bf16";

auto note(const std::string& which, const std::string& why) {
  return AllOf(StartsWith("note: " + which + " of 8 calls of attention run on our own kernels"),
               HasSubstr("14 times as long"), EndsWith("Why: " + why + "\n"));
}

TEST(AttentionNote, IsSilentWhereTensorCoresAreUsed) {
  EXPECT_THAT(said(in_16_bits), IsEmpty());
  EXPECT_THAT(said("cifar10cnn --assume sm_90"), IsEmpty());
  EXPECT_THAT(said("gpt2-nano --device cpu"), IsEmpty());
}

TEST(AttentionNote, SaysWhatWouldUseThem) {
  EXPECT_THAT(said("gpt2-nano --assume sm_90"),
              note("8", "f32; --precision bf16 or fp16 uses them"));
  EXPECT_THAT(said("gpt2-nano --assume sm_75 --precision fp16"),
              note("8", "attention needs sm_80 or later; no setting changes that on this GPU"));
  EXPECT_THAT(said(in_16_bits + " --model-option dropout=0.1"),
              note("8", "dropout; --model-option dropout=0 uses them"));
  EXPECT_THAT(said(in_16_bits + " --model-option heads=32"),
              note("8",
                   "4 features per head are not a multiple of 8 up to 256; another number of "
                   "heads (--model-option heads=N) uses them"));
  EXPECT_THAT(said(in_16_bits + " --workspace-mib 0"),
              note("4",
                   "a sequence needs more workspace than the cap; a higher --workspace-mib "
                   "may use them"));
}

TEST(AttentionNote, NamesAnOldCudnn) {
  ::setenv("LD_PRELOAD", OLD_CUDNN, 1);
  const std::string text = said(in_16_bits);
  ::unsetenv("LD_PRELOAD");
  EXPECT_THAT(text, note("8",
                         "attention needs cuDNN 9.16 or later, this is 9.14.0; pip install "
                         "nvidia-cudnn-cu13 brings a newer one, which is then used"));
}

}  // namespace
}  // namespace warpstep
