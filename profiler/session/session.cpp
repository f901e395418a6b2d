#include "profiler/session/session.h"

#include <algorithm>
#include <tuple>

#include "engine/core/error.h"

namespace warpstep::profiler {
namespace {

class Checker {
 public:
  Checker(const Session& session, const std::string& path) : session_(session), path_(path) {}

  void run() const {
    for (const Step& step : session_.steps) check_step(step);
    for (const Span& span : session_.spans) {
      require_order("a span", span.begin_ns, span.end_ns);
      require_name("a span", span.name);
      if (span.thread >= session_.threads.size())
        fail<DataError>("{}: a span is of thread {}, but there are {}", path_, span.thread,
                        session_.threads.size());
    }
    for (const Activity& activity : session_.activities) {
      require_order("an activity", activity.start_ns, activity.end_ns);
      require_name("an activity", activity.name);
      if (activity.what > What::overhead)
        fail<DataError>("{}: an activity is of the kind {}, which is none", path_,
                        static_cast<int>(activity.what));
    }
    for (const Sample& sample : session_.samples) require_name("a sample", sample.name);
    for (const Device& device : session_.devices) require_name("a device", device.name);
    for (const Window& window : session_.windows)
      require_order("a window", window.begin_ns, window.end_ns);
  }

 private:
  void require_order(const char* what, std::uint64_t begin, std::uint64_t end) const {
    if (begin > end)
      fail<DataError>("{}: {} ends at {} ns, before it begins at {} ns", path_, what, end, begin);
  }
  void require_name(const char* what, std::uint32_t name) const {
    if (name >= session_.names.size())
      fail<DataError>("{}: {} has the name {}, but there are {}", path_, what, name,
                      session_.names.size());
  }
  void check_step(const Step& step) const {
    require_order("a step", step.begin_ns, step.end_ns);
    std::uint64_t left = step.end_ns - step.begin_ns;  // taken part by part: a sum may wrap around
    for (const std::uint64_t part :
         {step.data_ns, step.copies_ns, step.kernels_ns, step.cpu_ns, step.other_ns}) {
      if (part > left)
        fail<DataError>("{}: the parts of step {} are longer than its {} ns", path_, step.step,
                        step.end_ns - step.begin_ns);
      left -= part;
    }
    if (left != 0)
      fail<DataError>("{}: the parts of step {} are {} ns shorter than it", path_, step.step, left);
  }

  const Session& session_;
  const std::string& path_;
};

}  // namespace

void finish_session(Session& session, const std::string& path) {
  Checker(session, path).run();
  std::stable_sort(session.steps.begin(), session.steps.end(),
                   [](const Step& a, const Step& b) { return a.begin_ns < b.begin_ns; });
  std::stable_sort(session.spans.begin(), session.spans.end(), [](const Span& a, const Span& b) {
    return std::tuple(a.thread, a.begin_ns, ~a.end_ns) <
           std::tuple(b.thread, b.begin_ns, ~b.end_ns);
  });
  std::stable_sort(session.activities.begin(), session.activities.end(),
                   [](const Activity& a, const Activity& b) { return a.start_ns < b.start_ns; });
  std::stable_sort(session.samples.begin(), session.samples.end(),
                   [](const Sample& a, const Sample& b) { return a.at_ns < b.at_ns; });
}

}  // namespace warpstep::profiler
