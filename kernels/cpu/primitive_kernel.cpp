#include "kernels/cpu/onednn.h"

namespace warpstep::cpu {
namespace {

// The memories are made once and only given new addresses, so that a step allocates nothing.
class PrimitiveKernel final : public Kernel {
 public:
  PrimitiveKernel(const dnnl::engine& engine, PrimitivePlan plan,
                  const std::vector<Argument>& arguments)
      : plan_(std::move(plan)) {
    for (const Argument& argument : arguments) {
      const dnnl::memory memory(argument.md, engine, nullptr);
      memories_.push_back({memory, argument.output, argument.index});
      arguments_.emplace(argument.dnnl_argument, memory);
    }
    if (workspace_bytes() == 0) return;
    scratchpad_ = dnnl::memory(plan_.scratchpad, engine, nullptr);
    arguments_.emplace(DNNL_ARG_SCRATCHPAD, scratchpad_);
  }

  std::size_t workspace_bytes() const override { return plan_.scratchpad.get_size(); }
  std::string implementation() const override { return plan_.implementation; }

  void enqueue(Stream& stream, const Buffers& buffers) const override {
    for (const Operand& operand : memories_) {
      void* address = (operand.output ? buffers.out : buffers.in)[idx(operand.index)];
      // Setting an address may write a blocked layout's padding: do so only when it is a new one.
      if (operand.memory.get_data_handle() != address) operand.memory.set_data_handle(address);
    }
    if (buffers.workspace) scratchpad_.set_data_handle(buffers.workspace);
    plan_.primitive.execute(static_cast<CpuStream&>(stream).stream, arguments_);
  }

 private:
  struct Operand {
    dnnl::memory memory;
    bool output;
    int index;
  };

  PrimitivePlan plan_;
  std::vector<Operand> memories_;
  dnnl::memory scratchpad_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

}  // namespace

std::unique_ptr<Kernel> primitive_kernel(const dnnl::engine& engine, PrimitivePlan plan,
                                         const std::vector<Argument>& arguments) {
  return std::make_unique<PrimitiveKernel>(engine, std::move(plan), arguments);
}

}  // namespace warpstep::cpu
