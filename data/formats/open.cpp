#include <array>
#include <new>
#include <string>
#include <vector>

#include "data/formats/dataset.h"
#include "data/formats/formats.h"
#include "data/formats/npy.h"
#include "data/io/file.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

using OpenSplit = std::unique_ptr<Dataset> (*)(const std::string& folder, Split split,
                                               const OpenOptions& options);

struct Format {
  const char* what;
  bool (*has)(const std::string& folder, Split split);
  OpenSplit open;
};

// For formats that are read whole or file by file, to which no option matters.
template <std::unique_ptr<Dataset> (*open)(const std::string&, Split)>
std::unique_ptr<Dataset> plainly(const std::string& folder, Split split, const OpenOptions&) {
  return open(folder, split);
}

constexpr std::array formats{
    Format{"train/ or test/ folders of images", has_image_folder, plainly<open_image_folder>},
    Format{"tar shards", has_tar_shards, open_tar},
    Format{"safetensors files", has_safetensors, open_safetensors},
    Format{".npy files", has_npy_files, open_npy},
    Format{"IDX files", has_idx_files, open_idx},
    Format{"CIFAR-10 batches", has_cifar_files, plainly<open_cifar>}};

[[noreturn]] void nothing_found(const std::string& spec) {
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
    if (!format.has(spec, Split::train) && !format.has(spec, Split::test)) continue;
    if (found != nullptr) {
      fail<DataError>("{}: holds both {} and {}; give each its own folder", spec, found->what,
                      format.what);
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
    return format_of(spec).open(spec, split, options);
  } catch (const std::bad_alloc&) {
    fail<DataError>("{}: out of memory while the {} images were opened", spec, name(split));
  }
}

bool has_split(const std::string& spec, Split split) {
  return format_of(spec).has(spec, split);
}

}  // namespace warpstep::data
