#include "data/formats/files.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/core/clock.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

// One folder that is closed to this user must not cost the images of the others.
std::optional<std::vector<Entry>> folder_entries(const std::string& folder, FoundFiles& found) try {
  return list_folder(folder, Dangling::list);
} catch (const DataError& error) {
  found.unlisted.emplace_back(error.what());
  return std::nullopt;
}

using Place = std::pair<dev_t, ino_t>;

// `above`: the folders that this one is in. A link to one of them would lead back here for ever.
void add_folder(const std::string& folder, std::vector<Place>& above, FoundFiles& found) {
  struct stat status {};
  ::stat(folder.c_str(), &status);
  const Place place(status.st_dev, status.st_ino);
  if (std::ranges::find(above, place) != above.end()) return;
  const std::optional<std::vector<Entry>> entries = folder_entries(folder, found);
  if (!entries) return;
  above.push_back(place);
  for (const Entry& entry : *entries) {
    const std::string path = (folder.ends_with('/') ? folder : folder + "/") + entry.name;
    if (entry.folder)
      add_folder(path, above, found);
    else
      (has_png_name(path) || has_jpeg_name(path) ? found.images : found.passed_over)
          .push_back(path);
  }
  above.pop_back();
}

// Also of a link to a file that does not exist: a shell's *.png gives it like any other.
bool has_entry(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
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
  std::vector<Place> above;
  for (const std::string& path : paths) {
    if (!has_entry(path))
      found.missing.push_back(path);
    else if (is_folder(path))
      add_folder(path, above, found);
    else
      found.images.push_back(path);
  }
  if (found.images.empty() && !found.missing.empty())
    fail<DataError>("{}: there is no such file or folder", found.missing.front());
  if (found.images.empty() && !found.unlisted.empty())
    fail<DataError>("{}", found.unlisted.front());
  if (found.images.empty())
    fail<DataError>("{}: no .png, .jpg or .jpeg file is in it", first_few(paths));
  return found;
}

std::unique_ptr<Dataset> open_files(std::vector<std::string> files, const Shape& shape,
                                    std::vector<std::string> classes) {
  return std::make_unique<FileList>(std::move(files), shape, std::move(classes));
}

}  // namespace warpstep::data
