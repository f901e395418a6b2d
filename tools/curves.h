// The learning curves of a run as a picture.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace warpstep {

struct CurvePoint {
  double epoch = 0;  // epochs of training done when it was measured; fractions inside an epoch
  double value = 0;
};

// Each list in the order of its epochs; any of them may be empty, and values that are not finite
// leave a gap and are counted in the picture.
struct CurveData {
  std::string model, data;                  // for the title
  std::vector<CurvePoint> step_loss;        // training loss of each logged step, drawn light
  std::vector<CurvePoint> train_loss;       // means of the epochs
  std::vector<CurvePoint> train_accuracy;   // shares of 1
  std::vector<CurvePoint> validation_loss;  // epoch 0 is the untrained model
  std::vector<CurvePoint> validation_accuracy;
};

// Of many points what can be seen: in each of `columns` equal parts of the epochs from 0 to `last`
// the first point, the lowest, the highest and the last, in their order. Points that are not finite
// stay only where a part has no others. Up to 4 points a part: all, unchanged.
std::vector<CurvePoint> visible_points(std::span<const CurvePoint> points, double last,
                                       std::size_t columns);

// Writes loss and accuracy over epochs, side by side, as a PNG of 2400x1000 pixels. Equal data give
// equal bytes with the same cairo and fonts. Throws DataError when the file cannot be written.
void draw_curves(const CurveData& data, const std::filesystem::path& png);

}  // namespace warpstep
