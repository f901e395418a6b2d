#include "own.h"

#include <charconv>
#include <cmath>
#include <fstream>

#include "data/formats/memory.h"
#include "engine/core/error.h"

namespace own {

using namespace warpstep;

Tensor two_convolutions(Tensor images, std::int64_t classes) {
  Tensor x = max_pool(relu(conv("conv1", images, {.out = 16, .padding = 1})));
  x = relu(conv("conv2", x, {.out = 32, .padding = 1}));
  return linear("fc", flatten(x), {.out = classes});
}

class Solarize final : public data::Transform {
 public:
  explicit Solarize(std::int64_t threshold) : threshold_(threshold) {}
  data::TransformStage stage() const override { return data::TransformStage::bytes; }
  std::string name() const override { return "solarize"; }
  std::string text() const override { return fmt::format("solarize={}", threshold_); }
  void apply(const data::RowImage& image, const data::Draw& draw) const override {
    if (draw.uniform(0) < 0.5F) return;
    for (std::uint8_t& byte : image.pixels)
      if (byte >= threshold_) byte = static_cast<std::uint8_t>(255 - byte);
  }
  // Evaluations see the images as they are.
  std::vector<data::TransformPtr> for_evaluation(const data::TransformPtr&) const override {
    return {};
  }

 private:
  std::int64_t threshold_;
};

data::TransformPtr make_solarize(const data::TransformArguments& arguments) {
  arguments.most(1, {});
  return std::make_shared<Solarize>(arguments.whole(0, 0, 255));
}

namespace {

std::string file_of(const std::string& folder, data::Split split) {
  return folder + "/" + std::string(name(split)) + ".csv";
}

// Appends the numbers of a line; false for anything but bytes and commas.
bool read_bytes(const std::string& line, std::vector<std::uint8_t>& bytes) {
  const char *at = line.data(), *end = at + line.size();
  while (at < end) {
    std::uint8_t byte = 0;
    const auto [after, error] = std::from_chars(at, end, byte);
    if (error != std::errc() || (after < end && *after != ',')) return false;
    bytes.push_back(byte);
    at = after + 1;
  }
  return true;
}

}  // namespace

bool has_csv(const std::string& folder, data::Split split) {
  return std::ifstream(file_of(folder, split)).good();
}

std::unique_ptr<data::Dataset> open_csv(const std::string& folder, data::Split split,
                                        const data::OpenOptions&) {
  const std::string path = file_of(folder, split);
  std::ifstream file(path);
  data::MemoryParts parts{.kind = "CSV", .path = path};
  std::string line;
  std::getline(file, line);  // the header
  std::vector<std::uint8_t> row;
  for (std::int64_t number = 2; std::getline(file, line); ++number) {
    row.clear();
    if (!read_bytes(line, row) || row.size() < 2)
      fail<DataError>("{}: line {}: not a label and pixels from 0 to 255", path, number);
    const auto side = std::lround(std::sqrt(static_cast<double>(row.size() - 1)));
    const Shape shape{side, side, 1};
    if (parts.labels.empty()) parts.shape = shape;
    if (idx(shape.count()) + 1 != row.size() || shape != parts.shape)
      fail<DataError>("{}: line {}: {} pixels, not the {} of the first image", path, number,
                      row.size() - 1, parts.shape.count());
    parts.labels.push_back(row[0]);
    parts.pixels.insert(parts.pixels.end(), row.begin() + 1, row.end());
  }
  if (parts.labels.empty()) fail<DataError>("{}: has no images", path);
  for (int digit = 0; digit < 10; ++digit) parts.classes.push_back(std::to_string(digit));
  return std::make_unique<data::MemoryDataset>(std::move(parts));
}

}  // namespace own
