#include "bench/kernel_bench_subjects.h"

#include <cctype>
#include <set>

#include "bench/open.h"
#include "engine/core/cpu_isa.h"
#include "engine/core/error.h"

namespace warpstep::bench {
namespace {

// Ops that tensor cores compute: only they differ with tf32.
bool is_product(const AnyOp& op) {
  return name(op).starts_with("conv") || name(op).starts_with("linear");
}

std::string direction(const Node& node) {
  const std::string_view op = name(node.op);
  if (const auto dot = op.find('.'); dot != op.npos) return std::string(op.substr(dot + 1));
  switch (node.phase) {
    case Phase::data_grad: return "dgrad";
    case Phase::weight_grad: return "wgrad";
    case Phase::update: return "update";
    default: return "forward";
  }
}

// The case's name without its folder, which the op implies, and without characters that separate
// parts or are special in a shell.
std::string label(const std::string& case_name) {
  std::string text = case_name.substr(case_name.find('/') + 1);
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return text;
}

std::string subject_name(const Node& node, Precision precision, const std::string& case_label,
                         const Device& device) {
  const std::string_view op = name(node.op);
  return fmt::format("{}/{}/{}/{}/{}", op.substr(0, op.find('.')), direction(node),
                     dtype_name(precision), case_label, device.name);
}

}  // namespace

std::vector<Precision> Device::precisions() const {
  if (queues()) return {Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16};
  if (name == "cpu" && bf16_isa() != Bf16Isa::none) return {Precision::fp32, Precision::bf16};
  return {Precision::fp32};
}

Device open_device(const std::string& name, BackendOptions options) {
  Device device{.name = {}, .backend = open(name, options), .tf32 = nullptr};
  device.name = device.backend->name();
  if (!device.queues()) return device;
  options.tf32 = true;
  device.tf32 = open(name, options);
  return device;
}

std::string_view dtype_name(Precision precision) {
  return precision == Precision::tf32 ? "tf32" : name(storage_dtype(precision));
}

std::vector<Subject> subjects(const Device& device, bool all_cases) {
  std::vector<Subject> found;
  std::set<std::string> taken;
  for (cases::Case& plain : cases::all()) {
    if (!plain.heavy && !all_cases) continue;
    if (!plain.fusion.empty() && !device.backend->wants(plain.fusion)) continue;
    const std::string case_label = label(plain.name);
    if (cases::has_adjoint(plain)) plain = cases::with_adjoint(std::move(plain));
    for (const Precision precision : device.precisions()) {
      const auto lowered = std::make_shared<cases::Case>(plain);
      lowered->graph = apply_precision(std::move(lowered->graph), precision);
      for (std::size_t n = 0; n < lowered->graph.nodes.size(); ++n) {
        const Node& node = lowered->graph.nodes[n];
        if (is_view(node.op) || (precision == Precision::tf32 && !is_product(node.op))) continue;
        std::string name = subject_name(node, precision, case_label, device);
        for (int twin = 2; !taken.insert(name).second; ++twin)
          name = subject_name(node, precision, fmt::format("{}.{}", case_label, twin), device);
        found.push_back({std::move(name), lowered, n, precision});
      }
    }
  }
  return found;
}

}  // namespace warpstep::bench
