# warpstep_curves: draws a run's learning curves with cairo.
include_guard(GLOBAL)
warpstep_require(PkgConfig pkg-config)
pkg_check_modules(CAIRO QUIET IMPORTED_TARGET GLOBAL cairo)
if(NOT CAIRO_FOUND)
  warpstep_missing(cairo libcairo2-dev)
endif()

add_library(warpstep_curves STATIC
  "${CMAKE_CURRENT_LIST_DIR}/canvas.cpp" "${CMAKE_CURRENT_LIST_DIR}/curves.cpp")
target_link_libraries(warpstep_curves PUBLIC warpstep::engine PRIVATE PkgConfig::CAIRO ${CMAKE_DL_LIBS} warpstep_options)
