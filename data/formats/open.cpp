// Which format a folder holds: one row per format. A new format adds a row here and its two
// functions to formats.h.
#include <array>
#include <new>
#include <string>
#include <vector>

#include "data/formats/dataset.h"
#include "data/formats/formats.h"
#include "data/formats/npy.h"
#include "data/formats/tokens.h"
#include "data/io/file.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

struct Format {
  const char* files;  // for messages
  bool (*has_split)(const std::string& folder, Split split);
  std::unique_ptr<Dataset> (*open_split)(const std::string& folder, Split split,
                                         const OpenOptions& options);
};

constexpr std::array formats{
    Format{"train/ or test/ folders of images", has_image_folder, open_image_folder},
    Format{"tar shards", has_tar_shards, open_tar},
    Format{"safetensors files", has_safetensors, open_safetensors},
    Format{".npy files", has_npy_files, open_npy},
    Format{"IDX files", has_idx_files, open_idx},
    Format{"CIFAR-10 batches", has_cifar_files, open_cifar}};

[[noreturn]] void nothing_found(const std::string& spec) {
  if (has_tokens(spec))
    fail<DataError>(
        "{}: holds tokens, not images; train a language model on them, such as gpt2-nano", spec);
  std::vector<std::string> names;
  for (const Entry& entry : list_folder(spec)) {
    names.push_back(entry.folder ? entry.name + "/" : entry.name);
  }
  fail<DataError>(
      "{}: no data set found; looked for folders train/ and test/ of PNG and JPEG files or of tar "
      "shards, train-000000.tar, train.safetensors, train-images.npy, "
      "train-images-idx3-ubyte[.gz] (MNIST) and data_batch_1.bin (CIFAR-10 binary); found {}",
      spec, names.empty() ? "nothing" : first_few(names));
}

const Format& format_of(const std::string& spec) {
  if (!exists(spec)) fail<DataError>("{}: there is no such folder", spec);
  if (!is_folder(spec)) {
    fail<DataError>("{}: is not a folder; name the folder of the data set", spec);
  }
  const Format* found = nullptr;
  for (const Format& format : formats) {
    if (!format.has_split(spec, Split::train) && !format.has_split(spec, Split::test)) continue;
    if (found != nullptr) {
      fail<DataError>("{}: holds both {} and {}; give each its own folder", spec, found->files,
                      format.files);
    }
    found = &format;
  }
  if (found == nullptr) nothing_found(spec);
  return *found;
}

}  // namespace

std::string_view name(Split split) {
  return split == Split::train ? "train" : "test";
}

std::unique_ptr<Dataset> open(const std::string& spec, Split split, const OpenOptions& options) {
  try {
    return format_of(spec).open_split(spec, split, options);
  } catch (const std::bad_alloc&) {
    fail<DataError>(
        "{}: cannot allocate the memory of the {} split; use a smaller set or another format", spec,
        name(split));
  }
}

bool has_split(const std::string& spec, Split split) {
  return format_of(spec).has_split(spec, split);
}

}  // namespace warpstep::data
