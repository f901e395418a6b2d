#include "profiler/export/trace_file.h"

#include <zlib.h>

#include <memory>

#include "engine/core/error.h"
#include "engine/core/file.h"

namespace warpstep::profiler {

std::string read_trace_text(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const std::string packed = read_file(path, max_bytes);
  if (!packed.starts_with("\x1f\x8b")) return packed;
  // By the descriptor that gzopen holds, and not from memory: zlib's own reader knows files of
  // several members.
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) fail<DataError>("{}: cannot open", path.string());
  std::string text, block(std::size_t{1} << 20, '\0');
  for (;;) {
    const int read = gzread(file.get(), block.data(), static_cast<unsigned>(block.size()));
    if (read < 0) {
      int code = 0;
      fail<DataError>("{}: cannot be unpacked: {}", path.string(), gzerror(file.get(), &code));
    }
    if (read == 0) break;
    text.append(block, 0, static_cast<std::size_t>(read));
    if (text.size() > max_bytes)
      fail<DataError>("{}: is more than {} bytes when unpacked", path.string(), max_bytes);
  }
  int code = Z_OK;
  const char* reason = gzerror(file.get(), &code);
  if (code != Z_OK) fail<DataError>("{}: is cut short: {}", path.string(), reason);
  return text;
}

}  // namespace warpstep::profiler
