// Internal to jpeg*.cpp: wraps libjpeg-turbo. Its errors leave by longjmp, so functions that call
// it have no objects with destructors, and return false with the reason in JpegEscape.
#pragma once

// clang-format off
#include <stdio.h>  // jpeglib.h needs FILE and size_t
#include <jpeglib.h>
// clang-format on

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "data/decode/image.h"

namespace warpstep::data {

// Receives libjpeg-turbo's errors. Warnings are errors too: they are how it reports damage.
struct JpegEscape {
  jpeg_error_mgr manager{};  // first, so that a pointer to it is one to the whole struct
  std::jmp_buf jump{};
  bool truncated = false;
  char reason[JMSG_LENGTH_MAX] = {};

  JpegEscape();
  // Jumps to the last setjmp(jump).
  [[noreturn]] void leave(const char* why);
};

// A decompressor, reused from file to file.
struct JpegReader {
  jpeg_decompress_struct library{};
  JpegEscape* escape;
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::size_t bytes = 0;  // of the current file
  int checked_scan = 0;

  explicit JpegReader(JpegEscape* escape_of_frame) : escape(escape_of_frame) {}
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&library); }

  std::size_t position() const { return bytes - source.bytes_in_buffer; }
};

// The window to decode, its file and its destination.
struct JpegWindow {
  std::span<const std::uint8_t> file;
  Window window;
  std::int64_t height = 0, width = 0;  // by the file's header
  std::int64_t margin = 0;             // JpegHeader::margin()
  std::int64_t channels = 0;
  std::uint8_t* pixels = nullptr;  // [window.height, window.width, channels]
  std::uint8_t* row = nullptr;     // buffer of width * channels bytes
  bool partial = false;            // skip what the window does not need
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
// False on an error; else *partial says whether rows and columns were skipped.
bool warpstep_jpeg_read(JpegReader* reader, const JpegWindow* wanted, bool* partial);

// The callers of these must have called setjmp(escape->jump).
// Reads everything up to the first scan, independent of earlier files.
void warpstep_jpeg_begin(JpegReader* reader, const std::uint8_t* data, std::size_t bytes);
// Refuses a file in which a component has no scan.
void warpstep_jpeg_check_complete(JpegReader* reader);
void warpstep_jpeg_create_writer(JpegWriter* writer);
}

// Throws the DataError of an error at byte `at` of `name`.
[[noreturn]] void throw_broken_jpeg(const std::string& name, std::size_t at,
                                    const JpegEscape& escape);

}  // namespace warpstep::data
