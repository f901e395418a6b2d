#include "tools/canvas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <numbers>

#include "engine/core/error.h"

#ifdef WARPSTEP_SANITIZED
// fontconfig keeps its font data until the process ends and never frees it.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libfontconfig\n";
}
#endif

namespace warpstep {
namespace {

// On a machine without fontconfig's files (a container) the library, which cairo asks for fonts,
// complains on the terminal and looks where fonts usually are. Here it is given those places first.
// cairo brings the library along; its functions are looked up, as one without it draws, too.
void configure_fonts() {
  void* const library = ::dlopen("libfontconfig.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return;
  const auto create = reinterpret_cast<void* (*)()>(::dlsym(library, "FcConfigCreate"));
  const auto destroy = reinterpret_cast<void (*)(void*)>(::dlsym(library, "FcConfigDestroy"));
  const auto filename = reinterpret_cast<unsigned char* (*)(void*, const unsigned char*)>(
      ::dlsym(library, "FcConfigGetFilename"));
  const auto load = reinterpret_cast<int (*)(void*, const unsigned char*, int)>(
      ::dlsym(library, "FcConfigParseAndLoadFromMemory"));
  const auto use = reinterpret_cast<int (*)(void*)>(::dlsym(library, "FcConfigSetCurrent"));
  if (!create || !destroy || !filename || !load || !use) return;  // an older one
  void* const fonts = create();
  if (!fonts) return;
  if (unsigned char* const found = filename(fonts, nullptr)) {  // the file that it would read
    std::free(found);
    return destroy(fonts);
  }
  constexpr const char* places =
      "<?xml version=\"1.0\"?><!DOCTYPE fontconfig SYSTEM \"urn:fontconfig:fonts.dtd\"><fontconfig>"
      "<dir>/usr/share/fonts</dir><dir>/usr/local/share/fonts</dir><dir prefix=\"xdg\">fonts</dir>"
      "<cachedir prefix=\"xdg\">fontconfig</cachedir></fontconfig>";
  if (load(fonts, reinterpret_cast<const unsigned char*>(places), 1)) use(fonts);
}

}  // namespace

Canvas::Canvas(int width, int height, int pixels_per_unit)
    : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width * pixels_per_unit,
                                          height * pixels_per_unit)),
      cairo_(cairo_create(surface_.get())) {
  [[maybe_unused]] static const bool has_fonts = (configure_fonts(), true);  // once, before text
  cairo_scale(get(), pixels_per_unit, pixels_per_unit);
  cairo_set_source_rgb(get(), 1, 1, 1);
  cairo_paint(get());
  cairo_set_line_join(get(), CAIRO_LINE_JOIN_ROUND);
}

void Canvas::color(Color color, double opacity) const {
  cairo_set_source_rgba(get(), color.red, color.green, color.blue, opacity);
}

void Canvas::pen(double width, bool dashed) const {
  const double dash[] = {6, 3};
  cairo_set_line_width(get(), width);
  cairo_set_dash(get(), dash, dashed ? 2 : 0, 0);
}

void Canvas::line(double x0, double y0, double x1, double y1) const {
  cairo_move_to(get(), x0, y0);
  cairo_line_to(get(), x1, y1);
  cairo_stroke(get());
}

void Canvas::marker(double x, double y, Mark mark) const {
  cairo_new_path(get());
  if (mark == Mark::circle) cairo_arc(get(), x, y, 3.2, 0, 2 * std::numbers::pi);
  if (mark == Mark::square) cairo_rectangle(get(), x - 3, y - 3, 6, 6);
  cairo_fill(get());
}

double Canvas::text(double x, double y, const std::string& text, double size, double align,
                    bool bold) const {
  cairo_select_font_face(get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(get(), size);
  cairo_text_extents_t extents;
  cairo_text_extents(get(), text.c_str(), &extents);
  cairo_move_to(get(), x - align * extents.x_advance, y);
  cairo_show_text(get(), text.c_str());
  return extents.x_advance;
}

std::string Canvas::png() const {
  std::string bytes;
  const auto append = [](void* out, const unsigned char* data, unsigned count) {
    static_cast<std::string*>(out)->append(reinterpret_cast<const char*>(data), count);
    return CAIRO_STATUS_SUCCESS;
  };
  cairo_status_t status = cairo_status(get());
  if (status == CAIRO_STATUS_SUCCESS)
    status = cairo_surface_write_to_png_stream(surface_.get(), append, &bytes);
  if (status != CAIRO_STATUS_SUCCESS)
    fail<Error>("cairo cannot draw: {}", cairo_status_to_string(status));
  return bytes;
}

}  // namespace warpstep
