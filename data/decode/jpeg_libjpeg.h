// libjpeg-turbo, wrapped for jpeg*.cpp alone. Its errors leave by longjmp: the functions here that
// call it hold nothing with a destructor, return false after an error, and say it in JpegEscape.
#pragma once

#include <jpeglib.h>

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "data/decode/image.h"

namespace warpstep::data {

// Where libjpeg-turbo's errors go. Its warnings are errors too: they are how it reports damage.
struct JpegEscape {
  jpeg_error_mgr manager{};  // first, so that a pointer to it is one to all
  std::jmp_buf jump{};
  bool truncated = false;
  char reason[JMSG_LENGTH_MAX] = {};

  JpegEscape();
  // Leaves for the last setjmp(jump).
  [[noreturn]] void leave(const char* why);
};

// A decompressor that is used for file after file.
struct JpegReader {
  jpeg_decompress_struct library{};
  JpegEscape* escape;
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::size_t bytes = 0;  // of the file that is being read
  int checked_scan = 0;

  explicit JpegReader(JpegEscape* escape_of_frame) : escape(escape_of_frame) {}
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&library); }

  std::size_t position() const { return bytes - source.bytes_in_buffer; }
};

// Which pixels of a file, and where to.
struct JpegWindow {
  std::span<const std::uint8_t> file;
  Window window;
  std::int64_t height = 0, width = 0;  // what the header of the file says
  std::int64_t margin = 0;             // pixels around the window that its upsampling sees
  std::int64_t channels = 0;
  std::uint8_t* pixels = nullptr;  // [window.height, window.width, channels]
  std::uint8_t* row = nullptr;     // room for width * channels bytes
  bool partial = false;            // leave out what the window does not need
};

// A compressor that appends to `file`.
struct JpegWriter {
  jpeg_compress_struct library{};
  JpegEscape* escape;
  jpeg_destination_mgr destination{};
  std::vector<std::uint8_t>* file;
  std::uint8_t buffer[16384];

  JpegWriter(JpegEscape* escape_of_frame, std::vector<std::uint8_t>* to)
      : escape(escape_of_frame), file(to) {}
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;
  ~JpegWriter() { jpeg_destroy_compress(&library); }
};

extern "C" {
bool warpstep_jpeg_create_reader(JpegReader* reader);
// False on an error; else *partial says whether rows and columns were left out.
bool warpstep_jpeg_read(JpegReader* reader, const JpegWindow* wanted, bool* partial);

// For frames that have done setjmp(escape->jump):
// everything up to the first scan, from a state that no earlier file has a part in
void warpstep_jpeg_begin(JpegReader* reader, const std::uint8_t* data, std::size_t bytes);
// refuses a file in which some component never had a scan
void warpstep_jpeg_check_complete(JpegReader* reader);
void warpstep_jpeg_create_writer(JpegWriter* writer);
}

// Throws the DataError of an error at byte `at` of `name`.
[[noreturn]] void throw_broken_jpeg(const std::string& name, std::size_t at,
                                    const JpegEscape& escape);

}  // namespace warpstep::data
