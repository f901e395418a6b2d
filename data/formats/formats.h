// Shards of encoded samples, named as WebDataset does.
#pragma once

#include <memory>
#include <string>

#include "data/formats/dataset.h"

namespace warpstep::data {

// Folders train/ and test/ of PNG and JPEG files.

// False also for a folder of tar shards.
bool has_image_folder(const std::string& spec, Split split);

// spec/train or spec/test. Images of PNG files alone have the channels of the first one; where
// there are JPEG files all have 3. Which of the two a file is, is seen from its content.
std::unique_ptr<Dataset> open_image_folder(const std::string& spec, Split split);

// The binary version of CIFAR-10.

bool has_cifar_files(const std::string& folder, Split split);
std::unique_ptr<Dataset> open_cifar(const std::string& folder, Split split);

// MNIST's IDX files, gzipped or not.

bool has_idx_files(const std::string& folder, Split split);
// Memory is taken as the images come out of the file, whatever its header claims.
std::unique_ptr<Dataset> open_idx(const std::string& folder, Split split,
                                  const OpenOptions& options = {});

// Data sets as safetensors files: spec/train.safetensors and spec/test.safetensors.

bool has_safetensors(const std::string& spec, Split split);

// Either decoded images, `image` U8 [n, height, width, channels], or encoded ones, `data` U8
// [bytes] of which sample i is bytes offset[i] to offset[i + 1], `offset` U64 [n + 1]. Both with
// `label` [n] of integers and, if it is there, `crc32c` U32 [n]. The metadata may have "classes", a
// JSON array of names as text, and "encoding": png, jpeg or mixed. Other tensors are not looked at.
std::unique_ptr<Dataset> open_safetensors(const std::string& spec, Split split,
                                          const OpenOptions& options);

// spec/train.tar, spec/train-*.tar or spec/train/*.tar, and test likewise.
bool has_tar_shards(const std::string& spec, Split split);

// Members whose names are equal up to the first dot of their last part, and which follow each
// other, are a sample. It has one of .png, .jpg and .jpeg, a .cls with the label's digits, and, in
// all samples or in none, a .crc32c of 8 hexadecimal digits; other members are not looked at, nor
// are hidden ones. Names of classes are in spec/classes.txt if it is there. Reads all headers and
// labels, many shards at once; where a shard has an index (tar_index.h), holds it against that, and
// where not, writes one if it can.
std::unique_ptr<Dataset> open_tar(const std::string& spec, Split split, const OpenOptions& options);

}  // namespace warpstep::data
