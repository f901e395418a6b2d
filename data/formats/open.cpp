// Which format a folder holds: one row per format. A new format adds a row here and its two
// functions to formats.h.

#include <array>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "data/formats/dataset.h"
#include "data/formats/formats.h"
#include "data/formats/npy.h"
#include "data/formats/tokens.h"
#include "data/io/file.h"
#include "engine/core/caught.h"
#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/text.h"

namespace warpstep::data {
namespace {

constexpr Format image_folder{"train/, test/ or val/ folders of images", has_image_folder,
                              open_image_folder};

// Those that read folders.
constexpr std::array own_formats{image_folder,
                                 Format{"tar shards", has_tar_shards, open_tar},
                                 Format{"safetensors files", has_safetensors, open_safetensors},
                                 Format{".npy files", has_npy_files, open_npy},
                                 Format{"IDX files", has_idx_files, open_idx},
                                 Format{"CIFAR-10 batches", has_cifar_files, open_cifar}};

std::vector<Format>& plugin_formats() {
  static std::vector<Format> formats;
  return formats;
}

[[noreturn]] void nothing_found(const std::string& spec) {
  if (has_tokens(spec))
    fail<DataError>(
        "{}: holds tokens, not images; train a language model on them, such as gpt2-nano", spec);
  std::vector<std::string> names;
  for (const Entry& entry : list_folder(spec)) {
    names.push_back(entry.folder ? entry.name + "/" : entry.name);
  }
  fail<DataError>(
      "{}: no data set found; looked for folders train/ and test/ or val/ of PNG and JPEG files or "
      "of tar shards, "
      "folders of one class each, train-000000.tar, train.safetensors, train-images.npy, "
      "train-images-idx3-ubyte[.gz] (MNIST) and data_batch_1.bin (CIFAR-10 binary); found {}",
      spec, names.empty() ? "nothing" : first_few(names));
}

const Format& format_of(const std::string& spec) {
  if (!exists(spec)) fail<DataError>("{}: there is no such folder{}", spec, nearest_folder(spec));
  const Format* found = nullptr;
  std::vector<const Format*> formats;
  for (const Format& format : plugin_formats()) formats.push_back(&format);
  if (is_folder(spec))
    for (const Format& format : own_formats) formats.push_back(&format);
  for (const Format* each : formats) {
    const Format& format = *each;
    if (!format.has_split(spec, Split::train) && !format.has_split(spec, Split::test)) continue;
    if (found != nullptr) {
      fail<DataError>("{}: holds both {} and {}; give each its own folder", spec, found->files,
                      format.files);
    }
    found = &format;
  }
  if (found != nullptr) return *found;
  if (!is_folder(spec))
    fail<DataError>("{}: is not a folder; name the folder of the data set", spec);
  if (has_unsplit_images(spec)) return image_folder;
  nothing_found(spec);
}

bool has_part(const Format& format, const std::string& spec, Split split) {
  return format.has_split(spec, split) ||
         (split == Split::train && format.open_split == open_image_folder &&
          has_unsplit_images(spec));
}

// "; or give the whole set: DIR" for the training folder of a set; else empty.
std::string whole_set(const std::string& spec) {
  const auto folder = std::filesystem::absolute(spec).lexically_normal();
  const auto parent =
      (folder.has_filename() ? folder : folder.parent_path()).parent_path().string();
  if (!has_image_folder(parent, Split::train) || !has_image_folder(parent, Split::test)) return {};
  return fmt::format("; or give the whole set, which has one: {}", parent);
}

// The format names what is missing.
[[noreturn]] void no_test_part(const Format& format, const std::string& spec,
                               const OpenOptions& options) {
  std::string missing = spec + ": has no test part";
  try {
    format.open_split(spec, Split::test, options);
  } catch (const DataError& error) {
    missing = error.what();
  }
  fail<DataError>(
      "{}; without a test part, --val-split 0.1 takes a tenth of each class's training images for "
      "it{}",
      missing, whole_set(spec));
}

}  // namespace

std::string_view name(Split split) {
  return split == Split::train ? "train" : "test";
}

void add_format(const Format& format) {
  plugin_formats().push_back(format);
}

std::unique_ptr<Dataset> open(const std::string& spec, Split split, const OpenOptions& options) {
  try {
    const Format& format = format_of(spec);
    if (split == Split::test && !has_part(format, spec, split)) no_test_part(format, spec, options);
    std::unique_ptr<Dataset> set =
        naming(fmt::format("{}: the format of {}", spec, format.files), "open_split()",
               [&] { return format.open_split(spec, split, options); });
    if (!set)
      fail<DataError>("{}: the format of {} opened nothing: its open_split returned a null pointer",
                      spec, format.files);
    check_image_shape(set->image_shape(), set->path());
    check_labels_of(*set);
    return set;
  } catch (const std::bad_alloc&) {
    fail<DataError>(
        "{}: cannot allocate the memory of the {} split; use a smaller set or another format", spec,
        name(split));
  }
}

bool has_split(const std::string& spec, Split split) {
  return has_part(format_of(spec), spec, split);
}

}  // namespace warpstep::data
