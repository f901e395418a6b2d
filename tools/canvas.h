// A white picture to draw on, over cairo. Lengths are in units; y grows downwards.
#pragma once

#include <cairo.h>

#include <memory>
#include <string>

namespace warpstep {

struct Color {
  double red, green, blue;
};

enum class Mark { thin, circle, square };  // how the points of a line are marked; thin: not at all

class Canvas {
 public:
  Canvas(int width, int height, int pixels_per_unit);

  cairo_t* get() const { return cairo_.get(); }
  void color(Color color, double opacity = 1) const;
  void pen(double width, bool dashed = false) const;
  void line(double x0, double y0, double x1, double y1) const;
  void marker(double x, double y, Mark mark) const;
  // `align`: 0 begins at x, 0.5 is centred there, 1 ends there. Gives the width.
  double text(double x, double y, const std::string& text, double size, double align = 0,
              bool bold = false) const;

  // The picture as the bytes of a PNG file. Throws Error when cairo has failed on the way.
  std::string png() const;

 private:
  struct Release {
    void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
    void operator()(cairo_t* cairo) const { cairo_destroy(cairo); }
  };

  std::unique_ptr<cairo_surface_t, Release> surface_;
  std::unique_ptr<cairo_t, Release> cairo_;
};

}  // namespace warpstep
