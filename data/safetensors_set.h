// Data sets as safetensors files: spec/train.safetensors and spec/test.safetensors.
#pragma once

#include <memory>
#include <string>

#include "data/dataset.h"

namespace warpstep::data {

bool has_safetensors(const std::string& spec, Split split);

// Either decoded images, `image` U8 [n, height, width, channels], or encoded ones, `data` U8
// [bytes] of which sample i is bytes offset[i] to offset[i + 1], `offset` U64 [n + 1]. Both with
// `label` [n] of integers and, if it is there, `crc32c` U32 [n]. The metadata may have "classes", a
// JSON array of names as text, and "encoding": png, jpeg or mixed. Other tensors are not looked at.
std::unique_ptr<Dataset> open_safetensors(const std::string& spec, Split split,
                                          const OpenOptions& options);

}  // namespace warpstep::data
