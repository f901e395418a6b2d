// What model files are written with. Each function records one op and, for layers with weights, its
// parameters under PyTorch's names and with PyTorch's default initialisation: uniform in +-1 /
// sqrt(fan_in) for weights and biases (torch.nn.Conv2d and torch.nn.Linear, reset_parameters), 1
// and 0 for a batch norm's.
#pragma once

#include "engine/graph/graph.h"

namespace warpstep {

// images u8 [N,H,W,C] -> (x / 255 - mean[c]) / std[c]. Needs mean and std of C elements, std above
// 0.
Tensor normalize(Tensor images, std::span<const float> mean, std::span<const float> std,
                 Where where = Where::current());

// images f32 [N,H,W,C] that the loader has normalised -> the same numbers in the dtype that the
// step computes in, stored as its kernels want them.
Tensor convert(Tensor images, Where where = Where::current());

// images u8 [any,H,W,C], rows row_plans_type(N) -> [N,out.height,out.width,C], see
// engine/core/pixels.h.
Tensor augment(Tensor images, Tensor rows, const PixelPlan& plan, ImageExtent out,
               Where where = Where::current());

// How a convolution's weight begins.
enum class ConvInit : std::uint8_t {
  fan_in,          // PyTorch's default
  kaiming_fan_out  // normal with deviation sqrt(2 / (kernel^2 out)), as torchvision's ResNets
};

// Parameters `name`.weight and `name`.bias.
Tensor conv(std::string name, Tensor x, Conv op, ConvInit init = ConvInit::fan_in,
            Where where = Where::current());
// Parameters `name`.weight and `name`.bias, buffers `name`.running_mean and `name`.running_var.
Tensor batch_norm(std::string name, Tensor x, BatchNorm op = {}, Where where = Where::current());
// x [N,K]. After a flatten of images, with activations and dropout between or not, the weight's
// columns keep PyTorch's NCHW order outside of the engine; after another op they do not.
Tensor linear(std::string name, Tensor x, Linear op, Where where = Where::current());

// How a linear layer begins, and how its weight is seen outside of the engine.
struct LinearForm {
  double deviation =
      0;  // of a normal distribution around 0, with biases of 0; 0: PyTorch's default
  bool transposed = false;  // the weight travels as [in,out], as GPT-2's Conv1D has it
};
Tensor linear(std::string name, Tensor x, Linear op, const LinearForm& form,
              Where where = Where::current());

// Parameters `name`.weight and, with a bias, `name`.bias of C elements; x [N,C], not of flattened
// images of more than a pixel.
Tensor layer_norm(std::string name, Tensor x, LayerNorm op = {}, Where where = Where::current());

// Tokens and positions i32 [N], see Embed.
struct Embedding {
  std::int64_t vocabulary = 0, context = 0, sequence = 0, width = 0;  // sequence <= context
  double deviation = 1;  // of the normal distribution that both tables begin with
};
// Parameters `tokens_name`.weight [vocabulary,width] and `positions_name`.weight [context,width].
Tensor embed(const std::string& tokens_name, const std::string& positions_name, Tensor tokens,
             Tensor order, const Embedding& embedding, Where where = Where::current());
// x [N,width] times the table of tokens of embed()'s output `embedded`, without a bias: logits
// [N,vocabulary].
Tensor tied_head(std::string name, Tensor x, Tensor embedded, Where where = Where::current());

// qkv [N,3C] -> [N,C], see Attention; its layer is set here.
Tensor attention(Tensor qkv, Attention op, Where where = Where::current());

// The layer of linear() that made `like`, applied to x too, with the same parameters: the branches
// of a siamese network.
Tensor twin(Tensor x, Tensor like, Where where = Where::current());

Tensor relu(Tensor x, Where where = Where::current());
Tensor gelu(Tensor x, Gelu op = {}, Where where = Where::current());
Tensor max_pool(Tensor x, MaxPool op = {}, Where where = Where::current());
Tensor avg_pool(Tensor x, AvgPool op, Where where = Where::current());
Tensor global_avg_pool(Tensor x, Where where = Where::current());  // [N,H,W,C] -> [N,1,1,C]
Tensor dropout(Tensor x, double rate, Where where = Where::current());
Tensor flatten(Tensor x, Where where = Where::current());  // [N,...] -> [N,F]
Tensor add(Tensor a, Tensor b, Where where = Where::current());

// A user's own op as layer `name`; gives its first output, Graph::record() all of them. A parameter
// for it keeps the engine's order of axes in checkpoints.
Tensor custom(std::string name, std::shared_ptr<const CustomOp> op, const std::vector<Tensor>& in,
              Where where = Where::current());
Tensor parameter(Graph& graph, std::string name, Shape shape, Initial initial);
// Makes `loss` (f32 []) what training minimises, and `correct` (i32 []) the samples that a step
// counts as right; without it accuracies are 0.
void set_loss(Tensor loss, Tensor correct = {});

struct LossOptions {
  double label_smoothing = 0;          // 0 to 1
  std::vector<float> class_weights{};  // one a class, is_class_weight(); empty: all 1
  bool raw = false;  // the model's output counts as log-probabilities: NLL without a softmax
  // The weights do not count, but remain a buffer: all programs of a store have the same buffers.
  bool unweighted = false;
  bool operator==(const LossOptions&) const = default;
};

// 0, or one whose sum over a batch is a normal number of f32.
bool is_class_weight(double weight);

// Throws ShapeError unless the logits are [rows,classes].
void require_logits(Tensor logits, std::int64_t rows, std::int64_t classes);

// Mean cross-entropy and top-1 count of logits [N,K]; sets Graph::logits, loss and correct. With
// mixup, `rows`, row_plans_type(N), give each row's weight and its pair's label. UsageError for
// class weights that are not K, or not what they may be.
void cross_entropy(Tensor logits, Tensor labels, Tensor rows = {}, const LossOptions& options = {},
                   Where where = Where::current());

}  // namespace warpstep
