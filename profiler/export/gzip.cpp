#include <zlib.h>

#include <algorithm>
#include <limits>

#include "engine/core/error.h"
#include "profiler/export/export.h"

namespace warpstep::profiler {

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

}  // namespace warpstep::profiler
