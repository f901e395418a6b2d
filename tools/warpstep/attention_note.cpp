#include "tools/warpstep/attention_note.h"

#include <fmt/format.h>

#include <variant>

namespace warpstep::tools {

std::string attention_note(const Program& program) {
  std::string why;
  std::int64_t calls = 0, without = 0;
  for (const Call& call : program.calls()) {
    const AnyOp& op = program.graph().nodes[idx(call.node)].op;
    if (!std::holds_alternative<Attention>(op) && !std::holds_alternative<AttentionGrad>(op))
      continue;
    ++calls;
    const std::string reason = call.kernel->without_tensor_cores();
    if (reason.empty()) continue;
    ++without;
    if (why.empty()) why = reason;
  }
  if (without == 0) return {};
  return fmt::format(
      "note: {} of {} calls of attention run on our own kernels, without tensor cores, which made "
      "a "
      "step of gpt2 14 times as long on an H200. Why: {}",
      without, calls, why);
}

}  // namespace warpstep::tools
