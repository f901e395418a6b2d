// Folders of image files: one file per sample, read when it is fetched.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "data/decode/image.h"
#include "data/formats/formats.h"
#include "data/formats/labels.h"
#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "engine/core/record.h"

namespace warpstep::data {
namespace {

class ImageFolder : public Dataset {
 public:
  // `channels`: of all images; 0: those of the folder's own.
  ImageFolder(std::string path, LabelledFolder folder, std::int64_t channels = 0)
      : path_(std::move(path)),
        folder_(std::move(folder)),
        descriptor_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    memory_bytes_ = folder_.files.capacity() * sizeof(LabelledFile);
    for (const LabelledFile& file : folder_.files)
      if (file.name.capacity() > 15) memory_bytes_ += file.name.capacity() + 1;  // on the heap
    Hash hash;
    bool png = false;
    bool jpeg = false;
    for (const LabelledFile& file : folder_.files) {
      hash.add(file.name);
      hash.add(file.bytes);
      hash.add(static_cast<std::uint64_t>(file.label));
      (has_png_name(file.name) ? png : jpeg) = true;
      longest_ = std::max(longest_, file.bytes);
    }
    for (const std::string& name : folder_.classes.names) hash.add(name);
    fingerprint_ = hash.value();
    kind_ = !jpeg ? "PNG folder" : png ? "PNG and JPEG folder" : "JPEG folder";
    shape_ = first_readable(*this).shape;
    if (channels == 0 && jpeg) channels = 3;
    if (channels > 0) shape_ = Shape{shape_[0], shape_[1], channels};
  }

  std::string kind() const override { return kind_; }
  std::string path() const override { return path_; }
  Shape image_shape() const override { return shape_; }
  std::uint64_t size() const override { return folder_.files.size(); }
  std::int32_t label(std::uint64_t index) const override { return folder_.files[index].label; }
  const std::vector<std::string>& classes() const override { return folder_.classes.names; }
  std::string name(std::uint64_t index) const override {
    return path_ + "/" + folder_.files[index].name;
  }
  std::uint64_t fingerprint() const override { return fingerprint_; }
  std::vector<std::string> passed_over() const override { return folder_.passed_over; }
  void each_file(const FileVisitor& visit) const override {
    for (const LabelledFile& file : folder_.files) visit(path_ + "/" + file.name, file.modified_ns);
  }
  std::uint64_t max_fetched_bytes() const override { return longest_; }
  std::uint64_t memory_bytes() const override { return memory_bytes_; }
  std::int64_t claim() const override { return shape_.count() <= 4096 ? 2 : 1; }

  Sample fetch(std::uint64_t index, Scratch& scratch) const override {
    const std::uint64_t begin = now_ns();
    const LabelledFile& file = folder_.files[index];
    std::span<const std::uint8_t> bytes = read_quickly(file, scratch.bytes);
    if (bytes.empty()) {  // it changed after it was listed, or cannot be read: read_into() reports
                          // why
      read_into(scratch.bytes, name(index), max_encoded_bytes);
      bytes = scratch.bytes;
    }
    scratch.note_read(begin, bytes.size());
    return {bytes, encoding_of(bytes, file.name), {}};
  }

  // From the file's beginning, where nearly all have their header.
  Shape shape_of(std::uint64_t index, Scratch& scratch) const override {
    constexpr std::size_t most = 16384;
    const LabelledFile& file = folder_.files[index];
    const Descriptor descriptor = opened(file);
    scratch.bytes.resize(std::max<std::size_t>(scratch.bytes.size(), most));
    const ssize_t got =
        descriptor.number() < 0 ? -1 : ::read(descriptor.number(), scratch.bytes.data(), most);
    if (got > 0) try {
        const std::span<const std::uint8_t> begin(scratch.bytes.data(),
                                                  static_cast<std::size_t>(got));
        return decoded_shape({begin, encoding_of(begin, file.name), {}}, file.name);
      } catch (const DataError&) {  // longer metadata, or a broken file
      }
    return Dataset::shape_of(index, scratch);
  }

 private:
  Descriptor opened(const LabelledFile& file) const {
    return Descriptor(::openat(descriptor_.number(), file.name.c_str(),
                               O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  }

  // openat, read and close. The listing has the size, so no fstat is needed, and one byte more than
  // that is requested, so that a single read shows the end. Empty when anything is not as expected.
  std::span<const std::uint8_t> read_quickly(const LabelledFile& file,
                                             std::vector<std::uint8_t>& buffer) const {
    if (file.bytes > max_encoded_bytes) return {};
    const Descriptor descriptor = opened(file);
    if (descriptor.number() < 0) return {};
    if (buffer.size() < file.bytes + 1) buffer.resize(file.bytes + 1);
    const ssize_t got = ::read(descriptor.number(), buffer.data(), file.bytes + 1);
    if (got < 0 || static_cast<std::uint64_t>(got) != file.bytes) return {};
    return {buffer.data(), file.bytes};
  }

  std::string path_;
  std::uint64_t memory_bytes_ = 0;
  LabelledFolder folder_;
  Descriptor descriptor_;  // of the folder
  std::string kind_;
  Shape shape_;
  std::uint64_t longest_ = 0;  // bytes of a file
  std::uint64_t fingerprint_ = 0;
};

}  // namespace

namespace {

bool is_split(const std::string& path) {
  return is_folder(path) && !has_name_ending(path, ".tar");
}

// spec/train; spec/test or, as ImageNet's folders are called, spec/val; the folder itself where its
// images are in no split.
std::string split_folder(const std::string& spec, Split split) {
  if (split == Split::train && has_unsplit_images(spec)) return spec;
  if (split == Split::test && !is_split(spec + "/test") && is_split(spec + "/val"))
    return spec + "/val";
  return fmt::format("{}/{}", spec, name(split));
}

}  // namespace

bool has_image_folder(const std::string& spec, Split split) {
  return is_split(fmt::format("{}/{}", spec, name(split))) ||
         (split == Split::test && is_split(spec + "/val"));
}

bool has_unsplit_images(const std::string& spec) {
  for (const char* split : {"/train", "/test", "/val"})
    if (is_folder(spec + split)) return false;
  return is_folder(spec) && has_labelled_images(spec);
}

std::unique_ptr<Dataset> open_image_folder(const std::string& spec, Split split,
                                           const OpenOptions&) {
  const std::string path = split_folder(spec, split), train = spec + "/train";
  std::optional<Classes> known;
  std::int64_t channels = 0;
  if (split == Split::test && is_folder(train)) {
    LabelledFolder training = read_labelled_folder(train, std::nullopt);
    known = training.classes;
    channels = ImageFolder(train, std::move(training)).image_shape()[2];
  }
  return std::make_unique<ImageFolder>(path, read_labelled_folder(path, known), channels);
}

}  // namespace warpstep::data
