#include <string>
#include <vector>

#include "data/cifar.h"
#include "data/dataset.h"
#include "data/file.h"
#include "data/folder.h"
#include "data/idx.h"
#include "engine/core/error.h"

namespace warpstep::data {

std::string_view name(Split split) {
  return split == Split::train ? "train" : "test";
}

std::unique_ptr<Dataset> open(const std::string& spec, Split split) {
  if (!exists(spec)) fail<DataError>("{}: there is no such folder", spec);
  if (!is_folder(spec))
    fail<DataError>("{}: is not a folder; name the folder of the data set", spec);
  const bool folders = is_folder(spec + "/train") || is_folder(spec + "/test");
  const bool idx = has_idx_files(spec);
  const bool cifar = has_cifar_files(spec);
  if (folders + idx + cifar > 1) {
    fail<DataError>("{}: holds more than one data set ({}{}{}); give each its own folder", spec,
                    folders ? "train/ or test/ folders, " : "", idx ? "IDX files, " : "",
                    cifar ? "CIFAR-10 batches" : "");
  }
  if (folders) return open_png_folder(spec, split);
  if (idx) return open_idx(spec, split);
  if (cifar) return open_cifar(spec, split);
  std::vector<std::string> names;
  for (const Entry& entry : list_folder(spec)) {
    names.push_back(entry.folder ? entry.name + "/" : entry.name);
  }
  fail<DataError>(
      "{}: no data set found; looked for folders train/ and test/ of PNG files, "
      "train-images-idx3-ubyte[.gz] (MNIST) and data_batch_1.bin (CIFAR-10 binary); found {}",
      spec, names.empty() ? "nothing" : first_few(names));
}

}  // namespace warpstep::data
