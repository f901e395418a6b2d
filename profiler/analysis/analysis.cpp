#include "profiler/analysis/analysis.h"

namespace warpstep::profiler {

Analysis analyse(const Session& session) {
  Analysis analysis;
  analysis.breakdown = break_down(session);
  analysis.devices = device_metrics(session);
  analysis.work = find_work(session);
  analysis.memory = memory_timeline(session);
  analysis.loader = loader_view(session);
  analysis.stall = diagnose(analysis.loader, session);
  analysis.path = critical_path(session);
  analysis.trust = find_trust(session, analysis.breakdown);
  analysis.findings = find_findings(session, analysis);
  return analysis;
}

}  // namespace warpstep::profiler
