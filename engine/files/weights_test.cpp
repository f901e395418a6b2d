#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/files/checkpoint.h"
#include "engine/files/safetensors_values.h"
#include "engine/files/weights.h"
#include "tests/data_testing.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::ThrowsMessage;
using Section = Store::Section;

Graph small(bool training = false) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {2, 4, 4, 3}});
  const Tensor h = conv("conv", x, {.out = 4, .padding = 1});
  cross_entropy(linear("fc", flatten(relu(h)), {.out = 3}), g.input("labels", {DType::i32, {2}}));
  StepOptions options;
  options.training = training;
  return compile_step(std::move(g), options);
}

using Tensors = std::map<std::string, TensorToStore>;

class Weights : public testing::Test {
 protected:
  Weights() { program_.store().initialize(7); }

  const std::vector<std::byte>& keep(std::vector<std::byte> bytes) {
    return kept_.emplace_back(std::move(bytes));
  }
  TensorToStore tensor(const std::string& name, std::vector<std::uint64_t> shape, float first,
                       StoredType type = StoredType::f32) {
    std::uint64_t count = 1;
    for (const std::uint64_t extent : shape) count *= extent;
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i % 64);
    std::vector<std::byte> bytes(count * size_bytes(type));
    if (type == StoredType::f64) {
      const std::vector<double> wide(values.begin(), values.end());
      std::ranges::copy(std::as_bytes(std::span(wide)), bytes.begin());
    } else {
      encode(type, values, bytes);
    }
    return {name, type, std::move(shape), keep(std::move(bytes))};
  }
  // PyTorch's state_dict of the same model.
  std::vector<TensorToStore> state_dict(const std::string& prefix = "") {
    return {tensor(prefix + "fc.bias", {3}, 1), tensor(prefix + "fc.weight", {3, 64}, 2),
            tensor(prefix + "conv.weight", {4, 3, 3, 3}, 3), tensor(prefix + "conv.bias", {4}, 4)};
  }
  LoadReport load(std::vector<TensorToStore> tensors, const LoadOptions& options = {}) {
    write_safetensors(path_, tensors);
    return load_weights(path_, program_.store(), options);
  }
  std::vector<std::vector<float>> all() const {
    std::vector<std::vector<float>> values;
    for (std::size_t p = 0; p < 4; ++p) values.push_back(program_.store().read(p));
    return values;
  }
  // conv.weight, conv.bias, fc.weight, fc.bias
  float first(std::size_t parameter) const { return program_.store().read(parameter)[0]; }

  data::testing::TemporaryFolder folder_;
  std::string path_ = folder_ / "w.safetensors";
  Program program_{small(), open_backend("ref")};
  std::deque<std::vector<std::byte>> kept_;
};

TEST_F(Weights, AreLoadedByNameWhateverTheOrder) {
  LoadReport report = load(state_dict());
  EXPECT_TRUE(report.is_whole());
  EXPECT_EQ(report.loaded, 4U);
  EXPECT_EQ(report.elements, 108 + 4 + 192 + 3);
  for (std::size_t i = 0; i < 108; ++i)
    ASSERT_EQ(program_.store().read(0)[i], 3 + static_cast<float>(i % 64));  // PyTorch's order
  EXPECT_EQ(first(1), 4);
  EXPECT_EQ(first(2), 2);
  EXPECT_EQ(first(3), 1);
  EXPECT_THAT(report.lines(),
              ElementsAre(path_ + ": 4 of the model's 4 tensors loaded (307 values)"));
  report.elements = 11'186'112;
  EXPECT_THAT(report.lines(), ElementsAre(HasSubstr("(11,186,112 values)")));
}

TEST_F(Weights, OfOtherPrecisionsAreConverted) {
  auto tensors = state_dict();
  tensors[0] = tensor("fc.bias", {3}, 10, StoredType::f16);
  tensors[1] = tensor("fc.weight", {3, 64}, 20, StoredType::bf16);
  tensors[3] = tensor("conv.bias", {4}, 30, StoredType::f64);
  const LoadReport report = load(tensors);
  EXPECT_EQ(program_.store().read(3), (std::vector<float>{10, 11, 12}));
  EXPECT_EQ(first(2), 20);
  EXPECT_EQ(program_.store().read(1), (std::vector<float>{30, 31, 32, 33}));
  EXPECT_THAT(report.lines().back(), AllOf(HasSubstr("converted 1 tensors of F16 to F32"),
                                           HasSubstr("of BF16"), HasSubstr("of F64")));
}

TEST_F(Weights, AWrappersPrefixIsStripped) {
  for (const std::string prefix :
       {"module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."}) {
    program_.store().initialize(1);
    const LoadReport report = load(state_dict(prefix));
    EXPECT_EQ(report.prefix, prefix);
    EXPECT_TRUE(report.is_whole());
    EXPECT_EQ(first(1), 4);
    EXPECT_THAT(report.lines().back(), HasSubstr("stripped " + prefix));
  }
  auto some = state_dict("module.");  // not before all of them, so not from a wrapper
  some[0].name = "fc.bias";
  EXPECT_THROW(load(some), DataError);
}

TEST_F(Weights, CountsOfBatchesAndMomentsAreIgnored) {
  auto tensors = state_dict();
  const std::int64_t count = 12;
  tensors.push_back(
      {"bn1.num_batches_tracked", StoredType::i64, {}, std::as_bytes(std::span(&count, 1))});
  tensors.push_back(tensor("optimizer.exp_avg.fc.bias", {3}, 0));
  const LoadReport report = load(tensors);
  EXPECT_TRUE(report.is_whole());
  EXPECT_EQ(report.ignored, 2U);
}

TEST_F(Weights, EverythingThatDoesNotFitIsNamedAtOnce) {
  const auto before = all();
  auto tensors = state_dict();
  tensors[1] = tensor("fc.weight", {1000, 64}, 0);
  tensors[2].name = "conv.wieght";
  tensors.push_back(tensor("layer4.conv.weight", {2, 2}, 0));
  const std::int64_t number = 0;
  tensors[3] = {"conv.bias", StoredType::i64, {}, std::as_bytes(std::span(&number, 1))};
  EXPECT_THAT(
      [&] { load(tensors, {.fix = "use the fix"}); },
      ThrowsMessage<DataError>(
          AllOf(HasSubstr(path_ + ": weights of another model: 1 of its 4 tensors fit"),
                HasSubstr("1 missing in the file: conv.weight"), HasSubstr("2 not in the model: "),
                HasSubstr("conv.wieght (instead of conv.weight?)"), HasSubstr("layer4.conv.weight"),
                HasSubstr("fc.weight is F32 [1000,64] in the file, [3,64] in the model"),
                HasSubstr("conv.bias is I64 [] in the file, [4] in the model"),
                HasSubstr("; use the fix"))));
  EXPECT_EQ(all(), before) << "nothing is loaded when not all is";
}

TEST_F(Weights, LongListsAreCut) {
  auto tensors = state_dict();
  for (int i = 0; i < 25; ++i) tensors.push_back(tensor(fmt::format("extra{}", i), {1}, 0));
  tensors.push_back(tensor(std::string(1'000'000, 'x'), {1}, 0));
  const std::string message = data::testing::message_of([&] { load(tensors); });
  EXPECT_THAT(message, AllOf(HasSubstr("26 not in the model: "), HasSubstr(" and 16 more")));
  EXPECT_LT(message.size(), 1000U);
}

TEST_F(Weights, NamesWithControlCharactersAreShownEscaped) {
  auto tensors = state_dict();
  tensors.push_back(tensor("a\x1b[2Jb\n", {1}, 0));
  const std::string message = data::testing::message_of([&] { load(tensors); });
  EXPECT_THAT(message, AllOf(HasSubstr("\"a\\u001b[2Jb\\n\""), Not(HasSubstr("\n"))));
}

TEST_F(Weights, AForeignPrefixIsNamedWithTheCommandThatStripsIt) {
  EXPECT_THAT([&] { load(state_dict("backbone.")); },
              ThrowsMessage<DataError>(
                  AllOf(HasSubstr("begin with backbone."),
                        HasSubstr("weights convert " + path_ + " OUT --strip-prefix backbone."))));
}

TEST_F(Weights, ThePrefixInACommandIsQuoted) {
  EXPECT_THAT(
      [&] { load(state_dict("a;touch'x.")); },
      ThrowsMessage<DataError>(HasSubstr("OUT --strip-prefix " + shell_word("a;touch'x.") + "`")));
}

TEST_F(Weights, WithAllowMissingWhatFitsIsLoaded) {
  const auto before = all();
  auto tensors = state_dict();
  tensors[1] = tensor("fc.weight", {1000, 64}, 9);
  tensors.erase(tensors.begin());
  tensors.push_back(tensor("aux.weight", {2, 2}, 0));
  const LoadReport report = load(tensors, {.allow_missing = true});
  EXPECT_EQ(report.loaded, 2U);
  EXPECT_EQ(first(0), 3);
  EXPECT_EQ(first(1), 4);
  EXPECT_EQ(program_.store().read(2), before[2]) << "the head keeps its initial values";
  EXPECT_EQ(program_.store().read(3), before[3]);
  EXPECT_THAT(report.lines(),
              AllOf(Contains(HasSubstr("2 of the model's 4 tensors loaded")),
                    Contains(HasSubstr("not in the file, left as initialised: fc.bias")),
                    Contains(HasSubstr("left as initialised: fc.weight is F32 [1000,64]")),
                    Contains(HasSubstr("only in the file: aux.weight"))));
  EXPECT_THAT([&] { load({tensor("other", {1}, 0)}, {.allow_missing = true}); },
              ThrowsMessage<DataError>(HasSubstr("0 of its 4 tensors fit")));
}

TEST_F(Weights, ThatAreNotFiniteAreReported) {
  auto tensors = state_dict();
  tensors[0] = tensor("fc.bias", {3}, std::nanf(""));
  EXPECT_THAT(load(tensors).lines().back(), HasSubstr("NaN in fc.bias"));
  EXPECT_THAT(load(state_dict()).not_finite, IsEmpty());
}

TEST_F(Weights, BatchCountsBelongToRunningMeans) {
  EXPECT_EQ(batch_count_name("layer1.0.bn1.running_mean"), "layer1.0.bn1.num_batches_tracked");
  EXPECT_EQ(batch_count_name("running_mean"), "num_batches_tracked");
  for (const char* other : {"bn1.running_var", "bn1.weight", "my_running_mean", ""})
    EXPECT_EQ(batch_count_name(other), "") << other;
}

// Buffers besides the parameters: those of a batch norm, and a constant that no file has.
Graph with_buffers(bool training) {
  Graph graph = small(training);
  graph.buffer("bn.running_mean", {4}, {0.5F});
  graph.buffer("loss.weight", {3}, {1, 2, 3}, false);
  return graph;
}

TEST_F(Weights, OfACheckpointHaveBuffersAndACountForEveryRunningMean) {
  Program training(with_buffers(true), open_backend("ref"));
  training.store().initialize(3);
  Progress progress;
  progress.step = 41;
  save_checkpoint(path_, training.store(), Optimizer::Kind::adam, progress, {"small", "{}"});
  const SafetensorsFile file(path_);
  const StoredTensor& count = file.at("bn.num_batches_tracked");
  EXPECT_EQ(count.type, StoredType::i64);
  EXPECT_THAT(count.shape, IsEmpty());
  EXPECT_EQ(read_values(file, count), std::vector<float>{41});
  EXPECT_EQ(read_values(file, file.at("bn.running_mean")), std::vector<float>(4, 0.5F));
  EXPECT_EQ(file.find("loss.weight"), nullptr);
  for (const StoredTensor& tensor : file.tensors())
    EXPECT_EQ(tensor.offset % size_bytes(tensor.type), 0U) << tensor.name;
  training.store().write_buffer(0, std::vector<float>(4, 9));
  EXPECT_EQ(load_checkpoint(path_, training.store(), Optimizer::Kind::adam).step, 41U);
  EXPECT_EQ(training.store().read_buffer(0), std::vector<float>(4, 0.5F));
}

TEST_F(Weights, BuffersAreLoadedAndMissedLikeParameters) {
  Program program(with_buffers(false), open_backend("ref"));
  auto tensors = state_dict();
  tensors.push_back(tensor("bn.running_mean", {4}, 6));
  write_safetensors(path_, tensors);
  EXPECT_EQ(load_weights(path_, program.store()).loaded, 5U);
  EXPECT_EQ(program.store().read_buffer(0), (std::vector<float>{6, 7, 8, 9}));
  tensors.pop_back();
  write_safetensors(path_, tensors);
  EXPECT_THAT([&] { load_weights(path_, program.store()); },
              ThrowsMessage<DataError>(HasSubstr("1 missing in the file: bn.running_mean")));
}

TEST_F(Weights, MomentsOfAnotherShapeAreRefused) {
  Program training(small(true), open_backend("ref"));
  save_checkpoint(path_, training.store(), Optimizer::Kind::adam, {}, {"small", "{}"});
  const SafetensorsFile file(path_);
  std::vector<TensorToStore> tensors;
  for (const StoredTensor& tensor : file.tensors()) {
    std::vector<std::byte> bytes(tensor.bytes);
    file.read(tensor, bytes);
    tensors.push_back({tensor.name, tensor.type, tensor.shape, keep(std::move(bytes))});
    if (tensor.name == "optimizer.exp_avg.fc.bias") tensors.back().shape = {3, 1};
  }
  const std::string other = folder_ / "other.safetensors";
  write_safetensors(other, tensors, file.metadata());
  EXPECT_THAT([&] { load_checkpoint(other, training.store(), Optimizer::Kind::adam); },
              ThrowsMessage<DataError>(HasSubstr("optimizer.exp_avg.fc.bias is F32")));
}

// A damaged or malicious file is refused with its name, or loaded.
TEST_F(Weights, NoMutationOfAFileCrashes) {
  write_safetensors(path_, state_dict("module."));
  const std::string good = read_file(path_);
  std::mt19937 random(1);
  int loaded = 0, refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string content = good;
    for (int edits = 0; edits < 3; ++edits)
      content[random() % 400] = static_cast<char>(32 + random() % 95);
    data::testing::put(path_, content);
    try {
      load_weights(path_, program_.store(), {.allow_missing = i % 2 == 0});
      ++loaded;
    } catch (const DataError& error) {
      ASSERT_THAT(error.what(), testing::StartsWith(path_));
      ++refused;
    }
  }
  EXPECT_GT(loaded, 0);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace warpstep
