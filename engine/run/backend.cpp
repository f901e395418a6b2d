#include "engine/run/backend.h"

#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/version.h"
#include "engine/core/wheel_versions.h"
#include "engine/core/wheels.h"
#include "engine/run/backend_build.h"

namespace warpstep {

Stream::~Stream() = default;
Recording::~Recording() = default;
Kernel::~Kernel() = default;
Backend::~Backend() = default;

namespace {

std::filesystem::path module_folder() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&open_backend), &self) == 0) return {};
  return std::filesystem::path(self.dli_fname).parent_path();
}

}  // namespace

void Backend::upload(Stream&, void* to, const void* from, std::size_t bytes) const {
  std::memcpy(to, from, bytes);
}

void Backend::fill(void* memory, std::uint8_t byte, std::size_t bytes) const {
  std::memset(memory, byte, bytes);
}

std::unique_ptr<Recording> Backend::record(Stream&, const std::function<void()>&) const {
  return nullptr;
}

std::shared_ptr<Backend> open_backend(const std::string& name, const BackendOptions& options) {
  if (name.starts_with("cuda:")) {
    BackendOptions numbered = options;
    const std::string_view digits = std::string_view(name).substr(5);
    int device = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device);
    if (error != std::errc{} || end != digits.data() + digits.size() || device < 0)
      fail<UsageError>("'{}' is not a device; write cuda, or cuda:0, cuda:1 and so on", name);
    numbered.device = device;
    return open_backend("cuda", numbered);
  }
  if (name != "ref" && name != "cpu" && name != "cuda")
    fail<UsageError>("no backend is called '{}'; the backends are cpu, cuda and ref", name);
  if (name == "cuda" && options.assumed_device.empty() &&
      !dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
    fail<DeviceError>("no NVIDIA driver on this machine (libcuda.so.1 not found)");
  const auto path = module_folder() / fmt::format("libwarpstep_{}.so", name);
  if (!std::filesystem::exists(path))
    fail<DeviceError>("the {} backend was not built ({} not found)", name, path.string());
  return load_backend(path, options);
}

std::shared_ptr<Backend> load_backend(const std::filesystem::path& path,
                                      const BackendOptions& options) {
  if (options.threads < 0 || options.threads > BackendOptions::most_threads)
    fail<UsageError>(
        "BackendOptions::threads is {}; must be from 0 (all that this process may run on) to {}",
        options.threads, BackendOptions::most_threads);
  // OpenMP reads these when the module loads it. Waiting threads that spin for long starve the
  // loader and every other process on their cores, and threads that sleep at once wake up late:
  // they spin for some 100 us. docs/ABLATIONS.md has the figures. A user's own setting has
  // priority.
  if (!std::getenv("OMP_WAIT_POLICY")) {
    setenv("OMP_WAIT_POLICY", "passive", 0);
    setenv("GOMP_SPINCOUNT", "5000", 0);
    // Clang's sleeps at once if passive; before 19 it may know whole milliseconds only.
    const std::string_view compiler = warpstep::compiler();
    if (compiler.starts_with("Clang"))
      setenv("KMP_BLOCKTIME", compiler < "Clang 19" ? "1" : "100us", 0);
  }
  // With an older one attention has no tensor cores: kernels/cuda/dnn_cudnn_attention.cpp.
  const LibraryVersion cudnn_of_attention{9, 16};
  if (path.filename() == "libwarpstep_cuda.so")
    prefer_newer_in_wheels("libcudnn.so.9", cudnn_of_attention, path);
  std::string why;
  void* module = open_with_wheels(path, RTLD_NOW | RTLD_LOCAL, &why);
  if (!module)
    fail<DeviceError>(
        "{} does not load: {}; install what is missing, or add its folder to LD_LIBRARY_PATH "
        "(Python wheels are searched, too)",
        path.filename().string(), why);
  const auto entry = reinterpret_cast<BackendEntry>(dlsym(module, "warpstep_backend"));
  if (!entry) fail<DeviceError>("{} is not a backend: {}", path.string(), dlerror());
  const std::string why_not =
      other_build(module, path, "backend", "warpstep_backend_build", backend_interface());
  if (!why_not.empty()) fail<DeviceError>("{}", why_not);
  return std::shared_ptr<Backend>(entry(options));
}

std::vector<BackendStatus> backend_statuses() {
  std::vector<BackendStatus> statuses;
  for (const char* name : {"cuda", "cpu", "ref"}) {
    try {
      const std::shared_ptr<Backend> backend = open_backend(name);
      const std::string more = backend->describe_surroundings();
      statuses.push_back({name, true, backend->describe() + (more.empty() ? "" : ", ") + more});
    } catch (const Error& error) {
      statuses.push_back({name, false, error.what()});
    }
  }
  return statuses;
}

StepOptions options_for(const Backend& backend, StepOptions options) {
  for (const FusionRow& row : fusion_table())
    if (!backend.wants(row.name)) options.no_fuse.emplace(row.name);
  options.exchange = backend.exchange();
  options.computes = [open = backend.shared_from_this()](const AnyOp& op, const Types& in) {
    return open->computes(op, in);
  };
  return options;
}

}  // namespace warpstep
