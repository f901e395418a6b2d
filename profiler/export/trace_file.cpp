#include "profiler/export/trace_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "profiler/export/export.h"

namespace warpstep::profiler {
namespace {

constexpr int deepest = 100;  // a file may nest without end, a stack does not

void append(std::string& out, const Json& json, int depth) {
  if (depth > deepest) {
    out += "null";
    return;
  }
  if (!json.is_structured()) {
    out += printed(json);
    return;
  }
  out += json.is_object() ? '{' : '[';
  bool first = true;
  for (const auto& item : json.items()) {
    if (!first) out += ", ";
    first = false;
    if (json.is_object()) out += json_quoted(item.key()) + ": ";
    append(out, item.value(), depth + 1);
  }
  out += json.is_object() ? '}' : ']';
}

}  // namespace

std::string json_quoted(std::string_view text) {
  return printed(Json(text));
}

std::string spaced(const Json& json) {
  std::string out;
  append(out, json, 0);
  return out;
}

std::string thousandths(std::uint64_t n) {
  return fmt::format("{}.{:03}", n / 1000, n % 1000);
}

std::string gzipped(std::string_view text) {
  z_stream stream{};
  // 15 + 16: the largest window, in a gzip frame, whose time zlib leaves 0.
  if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    fail<Error>("gzip: out of memory");
  std::string out;
  std::string block(std::size_t{1} << 18, '\0');
  int state = Z_OK;
  // zlib counts in 32 bits, so that longer texts go in by pieces.
  do {
    const std::size_t piece = std::min<std::size_t>(text.size(), std::size_t{1} << 30);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(piece);
    text.remove_prefix(piece);
    const int flush = text.empty() ? Z_FINISH : Z_NO_FLUSH;
    do {
      stream.next_out = reinterpret_cast<Bytef*>(block.data());
      stream.avail_out = static_cast<uInt>(block.size());
      state = deflate(&stream, flush);
      out.append(block, 0, block.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  } while (state != Z_STREAM_END && !text.empty());
  deflateEnd(&stream);
  if (state != Z_STREAM_END) fail<Error>("gzip: the stream did not end (zlib's status {})", state);
  return out;
}

std::string read_trace_text(const std::filesystem::path& path, std::uint64_t max_bytes) {
  std::string packed = read_file(path, max_bytes);
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
