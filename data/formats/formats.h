// The formats of open.cpp, one pair of functions each: has_X says whether a folder holds a split in
// the format, open_X opens it. An open_X throws DataError that names the file and the fix. Format
// is such a pair, also for those of a plugin.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/formats/dataset.h"

namespace warpstep::data {

struct Format {
  const char* files;  // what a set of it consists of, for messages: "tar shards"
  bool (*has_split)(const std::string& spec, Split split);
  std::unique_ptr<Dataset> (*open_split)(const std::string& spec, Split split,
                                         const OpenOptions& options);
};

// Adds a format to those that open() looks for, in folders as in files: has_split must look at the
// name or the content. Not while other threads open sets.
void add_format(const Format& format);

// Folders train/ and test/ or val/ of PNG and JPEG files; has_image_folder is false for folders of
// tar shards.

bool has_image_folder(const std::string& spec, Split split);

// Labelled images in the folder itself, which has none of train/, test/ and val/: open_image_folder
// opens them as the training split.
bool has_unsplit_images(const std::string& spec);

// In a split of PNG files, all images have the channels of the first; in one with JPEG files all
// have 3; a test split has those of the training split if there is one. The content of a file
// decides which of the two it is.
std::unique_ptr<Dataset> open_image_folder(const std::string& spec, Split split,
                                           const OpenOptions& options = {});

// The binary version of CIFAR-10: data_batch_*.bin and test_batch.bin.

bool has_cifar_files(const std::string& folder, Split split);
std::unique_ptr<Dataset> open_cifar(const std::string& folder, Split split,
                                    const OpenOptions& options = {});

// MNIST's IDX files, gzipped or not.

bool has_idx_files(const std::string& folder, Split split);
// Allocates memory as images come out of the file, not for what its header claims.
std::unique_ptr<Dataset> open_idx(const std::string& folder, Split split,
                                  const OpenOptions& options = {});

// spec/train.safetensors and spec/test.safetensors.

bool has_safetensors(const std::string& spec, Split split);

// Either decoded images, `image` U8 [n, height, width, channels], or encoded ones, `data` U8
// [bytes] of which sample i is bytes offset[i] to offset[i + 1], `offset` U64 [n + 1]. Both with
// `label` [n] of integers and optionally `crc32c` U32 [n]. The metadata may have "classes", the
// text of a JSON array of names, and "encoding": png, jpeg or mixed. Other tensors are ignored.
std::unique_ptr<Dataset> open_safetensors(const std::string& spec, Split split,
                                          const OpenOptions& options);

// The "classes" of the metadata: a JSON array. Empty when a name is not UTF-8.
std::string class_metadata(const std::vector<std::string>& names);

// Shards of encoded samples, named as WebDataset does: spec/train.tar, spec/train-*.tar or
// spec/train/*.tar, and test likewise.

bool has_tar_shards(const std::string& spec, Split split);

// Neighbouring members whose names are equal up to the first dot of their last part form a sample.
// It has one of .png, .jpg and .jpeg, a .cls with the label's digits, and, in all samples or in
// none, a .crc32c of 8 hexadecimal digits; hidden and other members are ignored. spec/classes.txt
// may name the classes. Reads all headers and labels, many shards at once; compares them with a
// shard's index (tar.h) where there is one, else writes one if it can.
std::unique_ptr<Dataset> open_tar(const std::string& spec, Split split, const OpenOptions& options);

}  // namespace warpstep::data
