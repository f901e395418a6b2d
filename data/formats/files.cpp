#include "data/formats/files.h"

#include <utility>

#include "engine/core/clock.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

void add_folder(const std::string& folder, FoundFiles& found) {
  for (const Entry& entry : list_folder(folder)) {
    const std::string path = (folder.ends_with('/') ? folder : folder + "/") + entry.name;
    if (entry.folder)
      add_folder(path, found);
    else
      (has_png_name(path) || has_jpeg_name(path) ? found.images : found.passed_over)
          .push_back(path);
  }
}

class FileList final : public Dataset {
 public:
  FileList(std::vector<std::string> files, const Shape& shape, std::vector<std::string> classes)
      : files_(std::move(files)), shape_(shape), classes_(std::move(classes)) {}

  std::string kind() const override { return "files"; }
  std::string path() const override { return "the given files"; }
  Shape image_shape() const override { return shape_; }
  std::uint64_t size() const override { return files_.size(); }
  std::int32_t label(std::uint64_t) const override { return 0; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string name(std::uint64_t index) const override { return files_[index]; }
  std::uint64_t fingerprint() const override {
    Hash hash;
    for (const std::string& file : files_) hash.add(file);
    return hash.value();
  }
  // An estimate: files may be any size, and a scratch grows.
  std::uint64_t max_fetched_bytes() const override {
    return static_cast<std::uint64_t>(shape_.count());
  }

  Sample fetch(std::uint64_t index, Scratch& scratch) const override {
    const std::uint64_t begin = now_ns();
    read_into(scratch.bytes, files_[index], max_encoded_bytes);
    scratch.note_read(begin, scratch.bytes.size());
    return {scratch.bytes, encoding_of(scratch.bytes, files_[index]), {}};
  }

 private:
  std::vector<std::string> files_;
  Shape shape_;
  std::vector<std::string> classes_;
};

}  // namespace

FoundFiles find_images(const std::vector<std::string>& paths) {
  FoundFiles found;
  for (const std::string& path : paths) {
    if (!exists(path)) fail<DataError>("{}: there is no such file or folder", path);
    if (is_folder(path))
      add_folder(path, found);
    else
      found.images.push_back(path);
  }
  if (found.images.empty())
    fail<DataError>("{}: no .png, .jpg or .jpeg file is in it", first_few(paths));
  return found;
}

std::unique_ptr<Dataset> open_files(std::vector<std::string> files, const Shape& shape,
                                    std::vector<std::string> classes) {
  return std::make_unique<FileList>(std::move(files), shape, std::move(classes));
}

}  // namespace warpstep::data
