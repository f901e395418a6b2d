#include "profiler/analysis/analysis.h"

namespace warpstep::profiler {

Analysis analyse(const Session& session) {
  const View view(session);
  Analysis analysis;
  analysis.breakdown = break_down(view);
  analysis.devices = device_metrics(view);
  analysis.work = find_work(view);
  analysis.memory = memory_timeline(session);
  analysis.loader = loader_view(view);
  analysis.stall = diagnose(analysis.loader, view);
  analysis.path = critical_path(view);
  analysis.trust = find_trust(view, analysis.breakdown);
  analysis.findings = find_findings(view, analysis);
  return analysis;
}

}  // namespace warpstep::profiler
