#include "kernels/cases.h"

namespace warpstep::cases {

void add_avg_pool(List list) {
  struct Size {
    const char* label;
    std::int64_t batch, height, width, channels;
    AvgPool op = {};
    bool heavy = false;
  };
  for (const Size& size : {
           Size{"resnet", 2, 7, 7, 512},
           Size{"1x1 maps", 3, 1, 1, 256},
           Size{"2x2 maps", 9, 2, 2, 32},
           Size{"of 17 channels", 3, 9, 6, 17},
           Size{"of one channel", 2, 23, 33, 1},
           Size{"30x31 maps", 1, 30, 31, 8},
           Size{"of 288 channels", 2, 3, 3, 288},
           Size{"a whole image and padding", 1, 4, 4, 8, {4, 1, 2}},
           Size{"2x2 stride 2", 3, 8, 6, 32, {2, 2, 0}},
           Size{"2x2 stride 2, a row left over", 3, 7, 9, 17, {2, 2, 0}},
           Size{"3x3 stride 2 padding 1", 3, 9, 7, 24, {3, 2, 1}},
           Size{"3x3 stride 1 padding 1", 1, 6, 5, 5, {3, 1, 1}},
           Size{"gaps: 2x2 stride 3", 3, 11, 8, 30, {2, 3, 0}},
           Size{"one window of 20", 1, 20, 20, 3, {20, 1, 0}},
           Size{"resnet50 @224", 8, 7, 7, 2048, {}, true},
           Size{"densenet", 8, 56, 56, 128, {2, 2, 0}, true},
       })
    list.add(std::string(size.op.window == 0 ? "global average " : "average ") + size.label,
             [&](Case& c) {
               const Type type{DType::f32, {size.batch, size.height, size.width, size.channels}};
               avg_pool(input(c, "x", type), size.op);
               c.heavy = size.heavy;
             });
}

}  // namespace warpstep::cases
