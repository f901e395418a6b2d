// The page's style and script, from page/report.css, page/report.js and page/patterns.svg: the
// build writes them into a source file (profiler/export/page/embed.cmake).
#pragma once

#include <string_view>

namespace warpstep::profiler::html::page {

extern const std::string_view style, script;
extern const std::string_view patterns;  // SVG that tells apart what colours alone might not
extern const std::string_view style_sha256, script_sha256;  // of these bytes, in hexadecimal

}  // namespace warpstep::profiler::html::page
