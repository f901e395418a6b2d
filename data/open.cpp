#include <array>
#include <string>
#include <vector>

#include "data/cifar.h"
#include "data/dataset.h"
#include "data/file.h"
#include "data/folder.h"
#include "data/idx.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

struct Format {
  const char* what;
  bool (*has)(const std::string& folder, Split split);
  std::unique_ptr<Dataset> (*open)(const std::string& folder, Split split);
};

constexpr std::array formats{
    Format{"train/ or test/ folders of PNG files", has_png_folder, open_png_folder},
    Format{"IDX files", has_idx_files, open_idx},
    Format{"CIFAR-10 batches", has_cifar_files, open_cifar}};

[[noreturn]] void nothing_found(const std::string& spec) {
  std::vector<std::string> names;
  for (const Entry& entry : list_folder(spec)) {
    names.push_back(entry.folder ? entry.name + "/" : entry.name);
  }
  fail<DataError>(
      "{}: no data set found; looked for folders train/ and test/ of PNG files, "
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

std::unique_ptr<Dataset> open(const std::string& spec, Split split) {
  return format_of(spec).open(spec, split);
}

bool has_split(const std::string& spec, Split split) {
  return format_of(spec).has(spec, split);
}

}  // namespace warpstep::data
