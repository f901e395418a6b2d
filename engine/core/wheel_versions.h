// Which of two libraries of one name is newer: a machine may have an old cuDNN where the loader
// looks, and PyTorch's wheels a new one where it does not.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace warpstep {

using LibraryVersion = std::vector<int>;  // {9, 19, 0}

// By the name that the file has or links to, libcudnn.so.9.19.0, or by the metadata of the wheel
// that it is in, site-packages/nvidia_cudnn_cu13-9.19.0.56.dist-info; empty if neither says.
// Nothing is loaded: a library that has answered cannot be unloaded.
LibraryVersion library_version(const std::filesystem::path& file);

// The file that the loader will take for a `module` that is linked to the library `name`; empty if
// there is none, and if the process has one already.
std::filesystem::path file_of_loader(const std::string& name, const std::filesystem::path& module);

// The newest of the wheels' files of that name, if `found` is older than it and than `needed`;
// empty otherwise.
std::filesystem::path newer_in_wheels(const std::filesystem::path& found,
                                      const LibraryVersion& needed);

// Loads such a file, with the parts that it looks for by name, so that `module`, loaded next, uses
// it in place of the loader's. Where that fails the loader's remains.
void prefer_newer_in_wheels(const std::string& name, const LibraryVersion& needed,
                            const std::filesystem::path& module);

}  // namespace warpstep
