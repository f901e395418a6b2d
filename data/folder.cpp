#include "data/folder.h"

#include <optional>
#include <utility>

#include "data/clock.h"
#include "data/labels.h"
#include "data/png.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::uint64_t max_file_bytes = std::uint64_t{1} << 30;  // of one PNG

class PngFolder : public Dataset {
 public:
  PngFolder(std::string path, LabelledFolder folder)
      : path_(std::move(path)), folder_(std::move(folder)) {
    std::vector<std::uint8_t> first;
    const std::string first_path = name(0);
    read_into(first, first_path, max_file_bytes);
    shape_ = png_shape(first, first_path);
    Hash hash;
    for (const LabelledFile& file : folder_.files) {
      hash.add(file.name);
      hash.add(file.bytes);
      hash.add(static_cast<std::uint64_t>(file.label));
    }
    for (const std::string& name : folder_.classes.names) hash.add(name);
    fingerprint_ = hash.value();
  }

  std::string kind() const override { return "PNG folder"; }
  std::string path() const override { return path_; }
  Shape image_shape() const override { return shape_; }
  std::uint64_t size() const override { return folder_.files.size(); }
  std::int32_t label(std::uint64_t index) const override { return folder_.files[index].label; }
  const std::vector<std::string>& classes() const override { return folder_.classes.names; }
  std::string name(std::uint64_t index) const override {
    return path_ + "/" + folder_.files[index].name;
  }
  std::uint64_t fingerprint() const override { return fingerprint_; }
  std::int64_t claim() const override { return shape_.count() <= 4096 ? 2 : 1; }

  Sample fetch(std::uint64_t index, Scratch& scratch) const override {
    const std::uint64_t begin = now_ns();
    read_into(scratch.bytes, name(index), max_file_bytes);
    scratch.read_ns += now_ns() - begin;
    scratch.bytes_read += scratch.bytes.size();
    return {scratch.bytes, Encoding::png, {}};
  }

 private:
  std::string path_;
  LabelledFolder folder_;
  Shape shape_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace

bool has_png_folder(const std::string& spec, Split split) {
  return is_folder(fmt::format("{}/{}", spec, name(split)));
}

std::unique_ptr<Dataset> open_png_folder(const std::string& spec, Split split) {
  const std::string path = fmt::format("{}/{}", spec, name(split));
  std::optional<Classes> known;
  const std::string train = spec + "/train";
  if (split == Split::test && is_folder(train)) {
    known = read_labelled_folder(train, std::nullopt).classes;
  }
  return std::make_unique<PngFolder>(path, read_labelled_folder(path, known));
}

}  // namespace warpstep::data
