// IDX files. The first byte chooses the broken file: bit 0 the labels, else the images; bit 1
// gzipped or not. The rest is that file; its companion is valid and has 2 samples.
#include "data/formats/formats.h"

#include <algorithm>
#include <filesystem>

#include "tests/fuzz/harness/target.h"
#include "tests/gzipped.h"

namespace warpstep::fuzz::idx_target {
namespace {

const Bytes good_images{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8};
const Bytes good_labels{0, 0, 8, 1, 0, 0, 0, 2, 1, 0};

void run(Input input) {
  if (input.empty()) return;
  const bool labels = (input[0] & 1) != 0;
  const bool gzipped = (input[0] & 2) != 0;
  const std::string images_name = "train-images-idx3-ubyte",
                    labels_name = "train-labels-idx1-ubyte";
  const std::string good =
      labels ? file_of(images_name, good_images) : file_of(labels_name, good_labels);
  const std::string folder = good.substr(0, good.rfind('/'));
  const std::string& broken_name = labels ? labels_name : images_name;
  if (gzipped) std::filesystem::remove(folder + "/" + broken_name);  // the plain file is preferred
  file_of(broken_name + (gzipped ? ".gz" : ""), input.subspan(1));
  const auto set = data::open_idx(folder, data::Split::train);
  const Shape shape = set->image_shape();
  promise(shape[2] == 1 && shape[0] >= 1 && shape[1] >= 1, "images have a size");
  data::Scratch scratch;
  Bytes pixels(idx(shape.count()));
  for (const std::uint64_t index : {std::uint64_t{0}, set->size() - 1}) {
    set->read(index, scratch, pixels);
    promise(set->label(index) >= 0 && idx(set->label(index)) < set->classes().size(),
            "labels are classes");
  }
}

Bytes chosen(std::uint8_t what, const Bytes& file) {
  Bytes input(1 + file.size(), what);
  std::copy(file.begin(), file.end(), input.begin() + 1);
  return input;
}

std::vector<Bytes> seeds() {
  return {chosen(0, good_images), chosen(1, good_labels),
          chosen(2, data::testing::gzipped(good_images)),
          chosen(3, data::testing::gzipped(good_labels))};
}

const Registered target_{"idx", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::idx_target
