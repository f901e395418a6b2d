#include <algorithm>

#include "profiler/analysis/categories.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler::analysis {
namespace {

class Collector {
 public:
  Collector(const Session& session, const BreakdownOptions& options)
      : session_(session),
        options_(options),
        trainer_(trainer_thread(session)),
        counts_graphs_(!tells_graph_kernels(session)) {}

  ByCategory run() {
    for (const Span& span : session_.spans) take(span);
    for (const Activity& activity : session_.activities) take(activity);
    auto& runtime = of_[static_cast<std::size_t>(Category::runtime)];
    // A function that waits for the device (cudaStreamSynchronize) is a wait before it is anything
    // else; torch_tb_profiler does not know waits.
    if (!options_.tb_compatible)
      runtime = difference(merged(runtime), merged(of_[static_cast<std::size_t>(Category::sync)]));
    return std::move(of_);
  }

 private:
  void add(Category category, std::uint64_t begin_ns, std::uint64_t end_ns) {
    if (begin_ns < end_ns) of_[static_cast<std::size_t>(category)].push_back({begin_ns, end_ns});
  }

  void take(const Activity& a) {
    const bool counts = options_.tb_compatible || is_of_thread(session_, a, trainer_);
    switch (a.what) {
      case What::kernel:
        add(is_communication(session_.name(a.name)) ? Category::communication : Category::kernel,
            a.start_ns, a.end_ns);
        break;
      case What::graph:  // as a whole, unless its kernels are told
        if (counts_graphs_) add(Category::kernel, a.start_ns, a.end_ns);
        break;
      case What::copy: add(Category::copy, a.start_ns, a.end_ns); break;
      case What::set: add(Category::memset, a.start_ns, a.end_ns); break;
      case What::api:
        if (counts) add(Category::runtime, a.start_ns, a.end_ns);
        break;
      case What::sync:
        if (counts && !options_.tb_compatible) add(Category::sync, a.start_ns, a.end_ns);
        break;
      case What::overhead: break;
    }
  }

  void take(const Span& span) {
    const Kind kind = session_.kind(span);
    if (options_.tb_compatible)
      add(tb_category(kind), span.begin_ns, tells_tb(kind) ? span.end_ns : span.begin_ns);
    else if (kind == Kind::call && session_.computes_on_host())
      add(Category::kernel, span.begin_ns, span.end_ns);
    else if (span.thread == trainer_)
      add(category(kind), span.begin_ns, span.end_ns);
  }

  // Of a span of the trainer's thread. One that loads by itself waits for data meanwhile.
  static Category category(Kind kind) {
    switch (kind) {
      case Kind::wait:
      case Kind::sample:
      case Kind::stage: return Category::data;
      case Kind::sync: return Category::sync;
      case Kind::host_api: return Category::runtime;
      default: return Category::cpu;
    }
  }

  // What torch_tb_profiler sees of them; the loader's own threads are nothing that it knows.
  static bool tells_tb(Kind kind) {
    return kind != Kind::sample && kind != Kind::stage && kind != Kind::idle;
  }
  static Category tb_category(Kind kind) {
    return kind == Kind::wait       ? Category::data
           : kind == Kind::host_api ? Category::runtime
                                    : Category::cpu;
  }

  const Session& session_;
  const BreakdownOptions& options_;
  std::optional<std::uint32_t> trainer_;
  bool counts_graphs_;
  ByCategory of_;
};

}  // namespace

bool is_communication(std::string_view kernel) {
  return kernel.starts_with("nccl");
}

ByCategory by_category(const Session& session, const BreakdownOptions& options) {
  return Collector(session, options).run();
}

}  // namespace warpstep::profiler::analysis
