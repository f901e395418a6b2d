#include "engine/core/error.h"
#include "models/zoo.h"

namespace warpstep::models {

// The classifier of Composer's MNIST tutorial: 22 thousand parameters, 5.6 MFLOP per image of 28x28
// forward. The last pool leaves 4x4 pixels of any square image that it divides.
Tensor mnist_cnn(Tensor x, std::int64_t classes) {
  x = relu(conv("conv1", x, {.out = 16}));
  x = relu(batch_norm("bn", conv("conv2", x, {.out = 32})));
  const Shape& shape = x.type().shape;
  if (shape[1] != shape[2] || shape[1] % 4 != 0)
    fail<ShapeError>(
        "mnist_cnn pools to 4x4, but images of {0}x{1} leave {2}x{3} pixels, which 4 does "
        "not divide; use square images, for example 28x28",
        shape[1] + 4, shape[2] + 4, shape[1], shape[2]);
  x = avg_pool(x, {.window = shape[1] / 4, .stride = shape[1] / 4});
  x = relu(linear("fc1", flatten(x), {.out = 32}));
  return linear("fc2", x, {.out = classes});
}

}  // namespace warpstep::models
