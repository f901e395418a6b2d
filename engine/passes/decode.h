// From the graph of a language model on whole sequences to that of a step that continues them.
#pragma once

#include "engine/graph/graph.h"

namespace warpstep {

// `graph` without its loss, and without the inputs that only the loss reads. It has logits.
Graph without_loss(Graph graph);

// `graph`, of a model on sequences of T tokens, without its loss, dropout of its attention and the
// order of its tokens. A step of the result continues each sequence by T tokens: it has an input
// `position` i32 [1], the number of tokens before them, and for each attention a buffer
// "LAYER.cache" f32 [batch, context, 2C] with the keys and values of the tokens that earlier steps
// saw (engine/graph/ops/decode.h). Position + T is at most `context`. Steps of different T can
// share a store. Throws ShapeError for a graph that embeds no tokens, for a context longer than the
// model's or shorter than T, and for an attention that is not causal.
Graph for_decoding(Graph graph, std::int64_t context);

}  // namespace warpstep
