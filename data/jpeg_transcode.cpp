// The lossless way to a JPEG file with restart markers: coefficients are read, coded anew, and
// compared.
#include <cstring>
#include <utility>

#include "data/jpeg.h"
#include "data/jpeg_libjpeg.h"
#include "data/jpeg_markers.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::int64_t max_interval = 5;  // MCUs: 1.4 % more bytes before the new Huffman tables

struct Transcoding {
  std::span<const std::uint8_t> file;
  unsigned interval = 0;  // MCUs
  JpegEscape escape;
  JpegReader from{&escape};
  JpegReader again{&escape};
  std::vector<std::uint8_t> out;
  JpegWriter to{&escape, &out};
};

// The largest divisor of a row up to max_interval; a row of many MCUs that has none but 1 stays
// whole, because markers at every MCU would cost 7 % of the file.
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
  // All markers are copied as they are, these two with them.
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

// False with a reason unless the file that was written holds what the given one does.
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
  if (!same) work->escape.leave("the image written with restart markers is another one");
  return true;
}

}  // extern "C"

std::vector<std::uint8_t> make_seekable(std::span<const std::uint8_t> file,
                                        const std::string& name) {
  const JpegHeader header = read_jpeg_header(file, name);
  if (header.frame != marker::sof0)
    fail<DataError>(
        "{}: is no baseline JPEG, so it cannot have restart markers to seek by; convert with: "
        "jpegtran -copy all (without -progressive)",
        name);
  Transcoding work;
  work.file = file;
  work.interval = interval_of(header.mcus_per_row());
  if (!warpstep_jpeg_create_reader(&work.from) || !warpstep_jpeg_create_reader(&work.again))
    fail<Error>("libjpeg-turbo cannot be used: {}", work.escape.reason);
  if (!warpstep_jpeg_transcode(&work)) throw_broken_jpeg(name, work.from.position(), work.escape);
  jpeg_abort_decompress(&work.from.library);
  if (!warpstep_jpeg_verify(&work)) throw_broken_jpeg(name, work.from.position(), work.escape);
  return std::move(work.out);
}

}  // namespace warpstep::data
