// gzip files for tests.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <vector>

namespace warpstep::data::testing {

inline std::vector<std::uint8_t> gzipped(const std::vector<std::uint8_t>& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::vector<std::uint8_t> out(deflateBound(&stream, bytes.size()));
  stream.next_in = const_cast<std::uint8_t*>(bytes.data());
  stream.avail_in = static_cast<unsigned>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<unsigned>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace warpstep::data::testing
