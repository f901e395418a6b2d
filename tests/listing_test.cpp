// The programs of the models, as `warpstep explain` prints them, against stored listings: a change
// of a step's calls, cost or memory is visible in review.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/explain/explain.h"
#include "engine/passes/compile.h"
#include "models/build.h"

namespace warpstep {
namespace {

struct Listing {
  const char* file;
  const char* model;
  bool training = true;
  bool fused = true;
  models::BuildOptions build{};
};

void PrintTo(const Listing& listing, std::ostream* out) {
  *out << listing.file;
}

StepOptions options(const Listing& wanted) {
  StepOptions options;
  options.training = wanted.training;
  if (!wanted.fused)
    for (const FusionRow& row : fusion_table()) options.no_fuse.emplace(row.name);
  return options;
}

// The ref backend stores every value plainly and names no instruction set: its listing is the same
// on every machine.
std::string listing(const Listing& wanted) {
  const models::Model& model = models::find(wanted.model);
  const Program program(compile_step(models::build(model, wanted.build), options(wanted)),
                        open_backend("ref"));
  return explain(program);
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

models::BuildOptions small_text() {
  models::BuildOptions build;
  build.batch = 4;
  const std::vector<std::string> small{"layers=1", "heads=2", "width=32"};
  build.settings = models::resolve_settings(models::find("gpt2"), small);
  build.sequence = 16;
  build.vocabulary = 65;
  return build;
}

class Golden : public testing::TestWithParam<Listing> {};

TEST_P(Golden, ListingIsTheOneThatIsKept) {
  const auto path =
      std::filesystem::path(WARPSTEP_SOURCE_DIR) / "tests" / "golden" / GetParam().file;
  const std::string found = listing(GetParam());
  if (std::getenv("WARPSTEP_UPDATE_GOLDEN")) std::ofstream(path) << found;
  EXPECT_EQ(contents(path), found)
      << "If the change is meant, refresh the listing with\n"
      << "  WARPSTEP_UPDATE_GOLDEN=1 ctest --preset release -R listing_test\nand commit " << path;
}

// Windows of 32x32 in a resident set of 40x40, masked and mixed.
models::BuildOptions mixed_windows() {
  models::BuildOptions build;
  build.images = models::Images::set;
  build.stored = {40, 40, 3};
  build.samples = 50000;
  build.pixels = PixelPlan{.mask_threshold = 16384, .dilate = true, .mix = true};
  return build;
}

models::BuildOptions small_images() {
  models::BuildOptions build;
  build.batch = 16;
  build.image = {32, 32, 3};
  return build;
}

INSTANTIATE_TEST_SUITE_P(
    Models, Golden,
    testing::Values(Listing{"cifar10cnn.ref.txt", "cifar10cnn"},
                    Listing{"cifar10cnn.eval.ref.txt", "cifar10cnn", false},
                    Listing{"cifar10cnn.unfused.ref.txt", "cifar10cnn", true, false},
                    Listing{"cifar10cnn.set.ref.txt", "cifar10cnn", true, true, mixed_windows()},
                    Listing{"mlp.ref.txt", "mlp"},
                    Listing{"toynet.ref.txt", "toynet", true, true, {.batch = 16}},
                    Listing{"mnist_cnn.ref.txt", "mnist_cnn"},
                    Listing{"airbench.ref.txt", "airbench"}, Listing{"resnet9.ref.txt", "resnet9"},
                    Listing{"resnet18.ref.txt", "resnet18", true, true, {.batch = 2}},
                    Listing{"resnet18.eval.ref.txt", "resnet18", false, true, {.batch = 2}},
                    Listing{"resnet34.ref.txt", "resnet34", true, true, {.batch = 2}},
                    Listing{"resnet50.ref.txt", "resnet50", true, true, {.batch = 2}},
                    Listing{"resnet50.32.ref.txt", "resnet50", true, true, small_images()},
                    Listing{"gpt2.ref.txt", "gpt2", true, true, small_text()}),
    [](const auto& param) {
      std::string name = param.param.file;
      std::erase_if(name, [](char c) { return c == '.'; });
      return name;
    });

}  // namespace
}  // namespace warpstep
