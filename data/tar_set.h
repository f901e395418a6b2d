// Shards of encoded samples, named as WebDataset does.
#pragma once

#include <memory>
#include <string>

#include "data/dataset.h"

namespace warpstep::data {

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
