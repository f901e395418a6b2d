// Images and labels as pairs of .npy files.
#include <fmt/ranges.h>

#include "data/file.h"
#include "data/label_array.h"
#include "data/mapped_images.h"
#include "data/npy.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

std::string path_of(const std::string& spec, Split split, const char* what) {
  return fmt::format("{}/{}-{}.npy", spec, name(split), what);
}

std::vector<std::int32_t> labels_of(const std::string& spec, Split split) {
  const MappedFile file(path_of(spec, split, "labels"), Io::pread);
  const NpyArray array = read_npy_header(file);
  if (array.shape.size() != 1)
    fail<DataError>("{}: has the shape ({}); labels have one dimension", file.path(),
                    fmt::join(array.shape, ", "));
  std::vector<std::uint8_t> scratch;
  return read_labels(array.type, file.view(array.offset, array.bytes, scratch), file.path());
}

}  // namespace

bool has_npy_files(const std::string& spec, Split split) {
  return exists(path_of(spec, split, "images"));
}

std::unique_ptr<Dataset> open_npy(const std::string& spec, Split split,
                                  const OpenOptions& options) {
  MappedParts parts;
  parts.kind = "NPY";
  parts.file = std::make_unique<MappedFile>(path_of(spec, split, "images"), options.io);
  const std::string& path = parts.file->path();
  const NpyArray images = read_npy_header(*parts.file);
  const std::vector<std::uint64_t>& shape = images.shape;
  if (images.type != StoredType::u8 || shape.size() < 3 || shape.size() > 4)
    fail<DataError>(
        "{}: holds {} of shape ({}); images are uint8 of [samples, height, width] or "
        "[samples, height, width, channels]",
        path, name(images.type), fmt::join(shape, ", "));
  parts.shape = image_shape_of(shape[1], shape[2], shape.size() == 4 ? shape[3] : 1, path);
  parts.offset = images.offset;
  parts.labels = labels_of(spec, split);
  if (parts.labels.size() != shape[0])
    fail<DataError>("{}: has {} images, but there are {} labels", path, shape[0],
                    parts.labels.size());
  parts.classes = read_class_names(spec);
  if (parts.classes.empty()) {  // the training split decides how many there are, if it is there
    const bool own = split == Split::train || !exists(path_of(spec, Split::train, "labels"));
    parts.classes = numbered_classes(own ? parts.labels : labels_of(spec, Split::train));
  }
  check_labels(parts.labels, parts.classes.size(), path_of(spec, split, "labels"));
  return std::make_unique<MappedImages>(std::move(parts));
}

}  // namespace warpstep::data
