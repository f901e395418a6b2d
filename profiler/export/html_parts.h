// The sections of the page, in its order; each empty when the session has nothing for it.
#pragma once

#include <string>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/compare.h"

namespace warpstep::profiler::html {

std::string verdict_part(const Session& session, const Analysis& analysis);
std::string mean_part(const Analysis& analysis);
std::string steps_part(const Session& session, const Analysis& analysis);
std::string findings_part(const Session& session, const Analysis& analysis);
std::string cards_part(const Session& session, const Analysis& analysis);
std::string layers_part(const Session& session, const Analysis& analysis);
std::string roofline(const Work& work);
std::string kernels_part(const Session& session, const Analysis& analysis);
std::string ops_part(const Analysis& analysis);
std::string loader_part(const Analysis& analysis);
std::string memory_part(const Analysis& analysis);
std::string machine_part(const Session& session, const Analysis& analysis);
std::string path_part(const Analysis& analysis);
std::string comparison_part(const Comparison& comparison);
std::string stamp_part(const Session& session);

// The class that colours a category: "c-kernel"; and a bound of the critical path alike.
std::string category_class(Category category);
std::string bound_class(const std::string& bound);

}  // namespace warpstep::profiler::html
