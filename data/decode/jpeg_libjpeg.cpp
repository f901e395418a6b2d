#include "data/decode/jpeg_libjpeg.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "data/decode/jpeg.h"
#include "engine/core/error.h"
#include "engine/core/types.h"

namespace warpstep::data {
namespace {

// Usual encoders write progressive files with up to 10 scans. A scan of a few bytes may visit every
// block, so the limit bounds the decoding time of a small file.
constexpr int max_scans = 100;
// More than the 512 MiB of coefficients that a header may need, with libjpeg-turbo's rounding.
constexpr long max_memory_bytes = 640L << 20;
// bits[0] of a Huffman table that this file has not defined; libjpeg-turbo sets it to 0.
constexpr std::uint8_t unfilled = 0xff;

JpegReader* reader_of(j_decompress_ptr library) {
  return static_cast<JpegReader*>(library->client_data);
}

}  // namespace

extern "C" {

static void warpstep_jpeg_error(j_common_ptr library) {
  char reason[JMSG_LENGTH_MAX];
  library->err->format_message(library, reason);
  reinterpret_cast<JpegEscape*>(library->err)->leave(reason);
}

static void warpstep_jpeg_message(j_common_ptr library, int level) {
  if (level < 0) warpstep_jpeg_error(library);
}

static void warpstep_jpeg_nothing(j_decompress_ptr) {}

static boolean warpstep_jpeg_more(j_decompress_ptr library) {
  JpegEscape* escape = reader_of(library)->escape;
  escape->truncated = true;
  library->src->bytes_in_buffer = 0;  // the decoder has read up to the end
  escape->leave("the file ends too early");
}

static void warpstep_jpeg_skip(j_decompress_ptr library, long bytes) {
  if (bytes <= 0) return;
  jpeg_source_mgr* source = library->src;
  if (idx(bytes) > source->bytes_in_buffer) warpstep_jpeg_more(library);
  source->next_input_byte += bytes;
  source->bytes_in_buffer -= idx(bytes);
}

// libjpeg-turbo keeps tables from file to file, for streams of abbreviated images. Here a file that
// lacks a table must be refused, whatever file was decoded before.
static void warpstep_jpeg_forget_tables(j_decompress_ptr library) {
  for (JQUANT_TBL* table : library->quant_tbl_ptrs)
    std::memset(table->quantval, 0, sizeof table->quantval);
  for (std::size_t t = 0; t < NUM_HUFF_TBLS; ++t) {
    std::memset(library->dc_huff_tbl_ptrs[t]->bits, 0, sizeof library->dc_huff_tbl_ptrs[t]->bits);
    std::memset(library->ac_huff_tbl_ptrs[t]->bits, 0, sizeof library->ac_huff_tbl_ptrs[t]->bits);
    library->dc_huff_tbl_ptrs[t]->bits[0] = unfilled;
    library->ac_huff_tbl_ptrs[t]->bits[0] = unfilled;
  }
}

// Called for each scan: its tables must be this file's. (libjpeg-turbo has checked their indices
// when it started the scan.)
static void warpstep_jpeg_check_scan(JpegReader* reader) {
  const jpeg_decompress_struct& library = reader->library;
  if (library.input_scan_number == reader->checked_scan) return;
  reader->checked_scan = library.input_scan_number;
  if (library.input_scan_number > max_scans) reader->escape->leave("it has more than 100 scans");
  const bool codes_dc = !library.progressive_mode || (library.Ss == 0 && library.Ah == 0);
  const bool codes_ac = !library.progressive_mode || library.Ss > 0;
  for (int c = 0; c < library.comps_in_scan; ++c) {
    const jpeg_component_info& component = *library.cur_comp_info[c];
    if (component.quant_table == nullptr || component.quant_table->quantval[0] == 0)
      reader->escape->leave("it lacks a quantization table");
    if ((codes_dc && library.dc_huff_tbl_ptrs[component.dc_tbl_no]->bits[0] == unfilled) ||
        (codes_ac && library.ac_huff_tbl_ptrs[component.ac_tbl_no]->bits[0] == unfilled))
      reader->escape->leave("it lacks a Huffman table");
  }
}

// libjpeg-turbo calls this between the parts of a file that it reads before the pixels.
static void warpstep_jpeg_progress(j_common_ptr library) {
  warpstep_jpeg_check_scan(static_cast<JpegReader*>(library->client_data));
}

bool warpstep_jpeg_create_reader(JpegReader* reader) {
  j_decompress_ptr library = &reader->library;
  library->err = &reader->escape->manager;
  if (setjmp(reader->escape->jump) != 0) return false;
  jpeg_create_decompress(library);
  library->client_data = reader;
  library->src = &reader->source;
  library->progress = &reader->progress;
  library->mem->max_memory_to_use = max_memory_bytes;
  reader->progress.progress_monitor = warpstep_jpeg_progress;
  reader->source.init_source = warpstep_jpeg_nothing;
  reader->source.fill_input_buffer = warpstep_jpeg_more;
  reader->source.skip_input_data = warpstep_jpeg_skip;
  reader->source.resync_to_restart = jpeg_resync_to_restart;
  reader->source.term_source = warpstep_jpeg_nothing;
  const auto common = reinterpret_cast<j_common_ptr>(library);
  for (JQUANT_TBL*& table : library->quant_tbl_ptrs) table = jpeg_alloc_quant_table(common);
  for (JHUFF_TBL*& table : library->dc_huff_tbl_ptrs) table = jpeg_alloc_huff_table(common);
  for (JHUFF_TBL*& table : library->ac_huff_tbl_ptrs) table = jpeg_alloc_huff_table(common);
  return true;
}

void warpstep_jpeg_begin(JpegReader* reader, const std::uint8_t* data, std::size_t bytes) {
  reader->source.next_input_byte = data;
  reader->source.bytes_in_buffer = bytes;
  reader->bytes = bytes;
  reader->checked_scan = 0;
  reader->escape->truncated = false;
  warpstep_jpeg_forget_tables(&reader->library);
  jpeg_read_header(&reader->library, TRUE);
}

void warpstep_jpeg_check_complete(JpegReader* reader) {
  const jpeg_decompress_struct& library = reader->library;
  for (int c = 0; c < library.num_components; ++c) {
    if (library.comp_info[c].quant_table == nullptr ||
        (library.progressive_mode && library.coef_bits[c][0] < 0))
      reader->escape->leave("it ends before every component has a scan");
  }
}

// When a progressive file ends before its last refinement, libjpeg-turbo smooths across blocks, and
// a window depends on more than its margin.
static bool warpstep_jpeg_is_refined(const jpeg_decompress_struct& library) {
  if (!library.progressive_mode) return true;
  for (int c = 0; c < library.num_components; ++c)
    for (int k = 0; k < DCTSIZE2; ++k)
      if (library.coef_bits[c][k] != 0) return false;
  return true;
}

static void warpstep_jpeg_start(JpegReader* reader, const JpegWindow* wanted) {
  j_decompress_ptr library = &reader->library;
  warpstep_jpeg_begin(reader, wanted->file.data(), wanted->file.size());
  if (library->image_width != wanted->width || library->image_height != wanted->height)
    reader->escape->leave("its header is ambiguous");
  library->out_color_space = wanted->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  library->dct_method = JDCT_ISLOW;
  library->do_fancy_upsampling = TRUE;
  jpeg_start_decompress(library);
  warpstep_jpeg_check_scan(reader);
  warpstep_jpeg_check_complete(reader);
}

bool warpstep_jpeg_read(JpegReader* reader, const JpegWindow* wanted, bool* partial) {
  j_decompress_ptr library = &reader->library;
  if (setjmp(reader->escape->jump) != 0) {
    jpeg_abort_decompress(library);
    return false;
  }
  warpstep_jpeg_start(reader, wanted);
  const Window& window = wanted->window;
  *partial = wanted->partial && warpstep_jpeg_is_refined(*library);
  JDIMENSION left = 0;
  if (*partial) {
    const std::int64_t begin = std::max<std::int64_t>(0, window.x - wanted->margin);
    const std::int64_t end = std::min(wanted->width, window.x + window.width + wanted->margin);
    left = static_cast<JDIMENSION>(begin);
    auto width = static_cast<JDIMENSION>(end - begin);
    jpeg_crop_scanline(library, &left, &width);  // moves left to the edge of an MCU
    if (window.y > 0) jpeg_skip_scanlines(library, static_cast<JDIMENSION>(window.y));
  }
  const std::size_t row_bytes = idx(window.width * wanted->channels);
  const std::size_t before = idx((window.x - left) * wanted->channels);
  // Whether rows can be decoded to their final address.
  const bool direct = window.x == left && window.width == library->output_width;
  const auto top = static_cast<JDIMENSION>(window.y);
  const auto bottom = static_cast<JDIMENSION>(window.y + window.height);
  const JDIMENSION last = *partial ? bottom : library->output_height;
  while (library->output_scanline < last) {
    const JDIMENSION y = library->output_scanline;
    const bool is_wanted = y >= top && y < bottom;
    std::uint8_t* to = is_wanted ? wanted->pixels + (y - top) * row_bytes : nullptr;
    JSAMPROW row = is_wanted && direct ? to : wanted->row;
    jpeg_read_scanlines(library, &row, 1);
    if (is_wanted && !direct) std::memcpy(to, row + before, row_bytes);
  }
  if (*partial)
    jpeg_abort_decompress(library);
  else
    jpeg_finish_decompress(library);  // reads to the end of the image and finds damage there
  return true;
}

static void warpstep_jpeg_start_buffer(j_compress_ptr library) {
  auto* writer = static_cast<JpegWriter*>(library->client_data);
  writer->destination.next_output_byte = writer->buffer;
  writer->destination.free_in_buffer = sizeof writer->buffer;
}

static void warpstep_jpeg_append(JpegWriter* writer, std::size_t bytes) {
  try {
    writer->file->insert(writer->file->end(), writer->buffer, writer->buffer + bytes);
    return;
  } catch (...) {
  }
  writer->escape->leave("out of memory");
}

static boolean warpstep_jpeg_flush(j_compress_ptr library) {
  auto* writer = static_cast<JpegWriter*>(library->client_data);
  warpstep_jpeg_append(writer, sizeof writer->buffer);
  warpstep_jpeg_start_buffer(library);
  return TRUE;
}

static void warpstep_jpeg_end(j_compress_ptr library) {
  auto* writer = static_cast<JpegWriter*>(library->client_data);
  warpstep_jpeg_append(writer, sizeof writer->buffer - writer->destination.free_in_buffer);
}

void warpstep_jpeg_create_writer(JpegWriter* writer) {
  writer->library.err = &writer->escape->manager;
  jpeg_create_compress(&writer->library);
  writer->library.client_data = writer;
  writer->library.dest = &writer->destination;
  writer->library.mem->max_memory_to_use = max_memory_bytes;
  writer->destination.init_destination = warpstep_jpeg_start_buffer;
  writer->destination.empty_output_buffer = warpstep_jpeg_flush;
  writer->destination.term_destination = warpstep_jpeg_end;
}

}  // extern "C"

JpegEscape::JpegEscape() {
  jpeg_std_error(&manager);
  manager.error_exit = warpstep_jpeg_error;
  manager.emit_message = warpstep_jpeg_message;
}

void JpegEscape::leave(const char* why) {
  std::snprintf(reason, sizeof reason, "%s", why);
  std::longjmp(jump, 1);
}

void throw_broken_jpeg(const std::string& name, std::size_t at, const JpegEscape& escape) {
  if (escape.truncated)
    fail<DataError>(
        "{}: is truncated: the JPEG data ends at byte {} before the image does; copy the file "
        "again",
        name, at);
  fail<DataError>("{}: byte {}: is a broken JPEG: {}; copy the file again", name, at,
                  escape.reason);
}

// From pixels to a JPEG file.

namespace {

struct Encoding420 {
  const Shape* shape;
  const std::uint8_t* pixels;
  int quality;
};

}  // namespace

extern "C" {

static bool warpstep_jpeg_encode(JpegWriter* writer, const Encoding420* image) {
  if (setjmp(writer->escape->jump) != 0) return false;
  warpstep_jpeg_create_writer(writer);
  j_compress_ptr library = &writer->library;
  const Shape& shape = *image->shape;
  library->image_height = static_cast<JDIMENSION>(shape[0]);
  library->image_width = static_cast<JDIMENSION>(shape[1]);
  library->input_components = static_cast<int>(shape[2]);
  library->in_color_space = shape[2] == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_set_defaults(library);  // 4:2:0
  jpeg_set_quality(library, image->quality, TRUE);
  jpeg_start_compress(library, TRUE);
  while (library->next_scanline < library->image_height) {
    auto row = const_cast<JSAMPROW>(image->pixels +
                                    idx(library->next_scanline) * idx(shape[1] * shape[2]));
    jpeg_write_scanlines(library, &row, 1);
  }
  jpeg_finish_compress(library);
  return true;
}

}  // extern "C"

std::vector<std::uint8_t> encode_jpeg(const Shape& shape, std::span<const std::uint8_t> pixels,
                                      int quality) {
  if (shape.rank() != 3 || (shape[2] != 1 && shape[2] != 3) ||
      pixels.size() != idx(shape.count()) || quality < 1 || quality > 100)
    fail<UsageError>("encode_jpeg: {} bytes for an image of {} in quality {}", pixels.size(),
                     shape.text(), quality);
  std::vector<std::uint8_t> file;
  JpegEscape escape;
  JpegWriter writer(&escape, &file);
  const Encoding420 image{&shape, pixels.data(), quality};
  if (!warpstep_jpeg_encode(&writer, &image))
    fail<DataError>("cannot encode an image of {} as JPEG: {}", shape.text(), escape.reason);
  return file;
}

// Lossless conversion to a JPEG file with restart markers: reads the coefficients, encodes them
// again and compares the result.

namespace {

constexpr std::int64_t max_interval =
    5;  // MCUs; costs 1.4 % more bytes before the optimised Huffman tables

struct Transcoding {
  std::span<const std::uint8_t> file;
  unsigned interval = 0;  // MCUs
  JpegEscape escape;
  JpegReader from{&escape};
  JpegReader again{&escape};
  std::vector<std::uint8_t> out;
  JpegWriter to{&escape, &out};
};

// The largest divisor of a row up to max_interval, or the whole row if there is only 1: a marker at
// every MCU would cost 7 % of the file.
unsigned interval_of(std::int64_t mcus_per_row) {
  for (std::int64_t interval = max_interval; interval > 1; --interval)
    if (mcus_per_row % interval == 0) return static_cast<unsigned>(interval);
  return static_cast<unsigned>(mcus_per_row);
}

}  // namespace

extern "C" {

static bool warpstep_jpeg_transcode(Transcoding* work) {
  if (setjmp(work->escape.jump) != 0) return false;
  j_decompress_ptr from = &work->from.library;
  j_compress_ptr to = &work->to.library;
  jpeg_save_markers(from, JPEG_COM, 0xffff);
  for (int n = 0; n < 16; ++n) jpeg_save_markers(from, JPEG_APP0 + n, 0xffff);
  warpstep_jpeg_begin(&work->from, work->file.data(), work->file.size());
  jvirt_barray_ptr* coefficients = jpeg_read_coefficients(from);
  warpstep_jpeg_check_complete(&work->from);
  warpstep_jpeg_create_writer(&work->to);
  jpeg_copy_critical_parameters(from, to);
  to->restart_interval = work->interval;
  to->restart_in_rows = 0;
  to->optimize_coding = TRUE;
  // Off, because these two are copied below with all other markers.
  to->write_JFIF_header = FALSE;
  to->write_Adobe_marker = FALSE;
  jpeg_write_coefficients(to, coefficients);
  for (jpeg_saved_marker_ptr saved = from->marker_list; saved != nullptr; saved = saved->next)
    jpeg_write_marker(to, saved->marker, saved->data, saved->data_length);
  jpeg_finish_compress(to);
  return true;
}

static bool warpstep_jpeg_same_component(Transcoding* work, int c, jvirt_barray_ptr expected,
                                         jvirt_barray_ptr got) {
  const jpeg_component_info& a = work->from.library.comp_info[c];
  const jpeg_component_info& b = work->again.library.comp_info[c];
  if (a.width_in_blocks != b.width_in_blocks || a.height_in_blocks != b.height_in_blocks ||
      a.h_samp_factor != b.h_samp_factor || a.v_samp_factor != b.v_samp_factor ||
      std::memcmp(a.quant_table->quantval, b.quant_table->quantval,
                  sizeof a.quant_table->quantval) != 0)
    return false;
  for (JDIMENSION y = 0; y < a.height_in_blocks; ++y) {
    const auto row = [&](JpegReader& reader, jvirt_barray_ptr blocks) {
      const auto common = reinterpret_cast<j_common_ptr>(&reader.library);
      return reader.library.mem->access_virt_barray(common, blocks, y, 1, FALSE)[0];
    };
    if (std::memcmp(row(work->from, expected), row(work->again, got),
                    a.width_in_blocks * sizeof(JBLOCK)) != 0)
      return false;
  }
  return true;
}

// False with a reason unless both files have the same coefficients.
static bool warpstep_jpeg_verify(Transcoding* work) {
  if (setjmp(work->escape.jump) != 0) return false;
  const std::vector<std::uint8_t>& written = work->out;
  warpstep_jpeg_begin(&work->from, work->file.data(), work->file.size());
  jvirt_barray_ptr* expected = jpeg_read_coefficients(&work->from.library);
  warpstep_jpeg_begin(&work->again, written.data(), written.size());
  jvirt_barray_ptr* got = jpeg_read_coefficients(&work->again.library);
  const jpeg_decompress_struct& a = work->from.library;
  const jpeg_decompress_struct& b = work->again.library;
  bool same = a.image_width == b.image_width && a.image_height == b.image_height &&
              a.num_components == b.num_components && a.jpeg_color_space == b.jpeg_color_space;
  for (int c = 0; same && c < a.num_components; ++c)
    same = warpstep_jpeg_same_component(work, c, expected[c], got[c]);
  if (!same) work->escape.leave("the file with restart markers holds another image");
  return true;
}

}  // extern "C"

std::vector<std::uint8_t> make_seekable(std::span<const std::uint8_t> file,
                                        const std::string& name) {
  const JpegHeader header = read_jpeg_header(file, name);
  if (header.frame != marker::sof0)
    fail<DataError>(
        "{}: is not a baseline JPEG, so it cannot have restart markers for seeking; convert with: "
        "jpegtran -copy all (without -progressive)",
        name);
  Transcoding work;
  work.file = file;
  work.interval = interval_of(header.mcus_per_row());
  if (!warpstep_jpeg_create_reader(&work.from) || !warpstep_jpeg_create_reader(&work.again))
    fail<Error>("cannot initialise libjpeg-turbo: {}", work.escape.reason);
  if (!warpstep_jpeg_transcode(&work)) throw_broken_jpeg(name, work.from.position(), work.escape);
  jpeg_abort_decompress(&work.from.library);
  if (!warpstep_jpeg_verify(&work)) throw_broken_jpeg(name, work.from.position(), work.escape);
  return std::move(work.out);
}

}  // namespace warpstep::data
