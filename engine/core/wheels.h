// Shared libraries of Python wheels. PyTorch's bring CUDA and cuDNN into the folders
// site-packages/nvidia/*/lib, where the dynamic loader does not look; a machine may have no others.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace warpstep {

// The library folders of wheels for CUDA 13: of an active virtual environment first, then of the
// site-packages that this library is in, of the python3 in PATH, of the user, of the system and of
// /opt.
std::vector<std::filesystem::path> wheel_folders();

// The file `name` ("libcupti.so.13") in one of those folders; empty if none has it.
std::filesystem::path in_wheels(const std::string& name);

// dlopen(name), or of the wheels' file of that name if the loader finds none. Null on failure, with
// the loader's reason in `why` if that is not null.
void* open_library(const std::string& name, int flags, std::string* why = nullptr);

// dlopen() of a file that may need libraries of wheels: these are loaded first, by their paths.
void* open_with_wheels(const std::filesystem::path& file, int flags, std::string* why);

}  // namespace warpstep
