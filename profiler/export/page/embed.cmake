# Writes a C++ source with the page's style, script and patterns as text and their hashes:
#   cmake -DFOLDER=profiler/export/page -DOUTPUT=page.cpp -P embed.cmake
function(embed name file result)
  file(READ "${FOLDER}/${file}" text)
  file(SHA256 "${FOLDER}/${file}" hash)
  # Raw strings in parts: a compiler may limit one string to 64 KiB.
  set(literals "")
  string(LENGTH "${text}" length)
  foreach(begin RANGE 0 ${length} 8000)
    string(SUBSTRING "${text}" ${begin} 8000 part)
    string(APPEND literals "R\"~page~(${part})~page~\"\n")
  endforeach()
  set(source "const std::string_view ${name} =\n${literals};\n")
  if(NOT name STREQUAL "patterns")
    string(APPEND source "const std::string_view ${name}_sha256 = \"${hash}\";\n")
  endif()
  set(${result} "${source}" PARENT_SCOPE)
endfunction()

embed(style report.css style)
embed(script report.js script)
embed(patterns patterns.svg patterns)
file(WRITE "${OUTPUT}" "#include \"profiler/export/html.h\"

namespace warpstep::profiler::html::page {

${style}
${script}
${patterns}
}  // namespace warpstep::profiler::html::page
")
