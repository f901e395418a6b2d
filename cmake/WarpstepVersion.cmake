# Run as a script, writes version.cpp; included, defines warpstep_version_source(target), which runs it at every build.
# The file changes only if the commit or its dirty mark changes, so that an ordinary rebuild compiles nothing.

function(warpstep_version_source target)
  set(source "${PROJECT_BINARY_DIR}/generated/version.cpp")
  set(sanitizers "")
  if(WARPSTEP_SANITIZE)
    list(JOIN WARPSTEP_SANITIZE ", " sanitizers)
    string(PREPEND sanitizers ", sanitizers: ")
  endif()
  add_custom_target(warpstep_version BYPRODUCTS "${source}"
    COMMAND "${CMAKE_COMMAND}" "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${source}"
            "-DWARPSTEP_VERSION=${PROJECT_VERSION}"
            "-DWARPSTEP_COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}${sanitizers}"
            -P "${PROJECT_SOURCE_DIR}/cmake/WarpstepVersion.cmake"
    VERBATIM COMMENT "")
  # Alone: each commit changes it.
  set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE "${source}")
  add_dependencies(${target} warpstep_version)
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()

set(WARPSTEP_COMMIT unknown)
find_program(GIT git)
# A copy of the source inside another repository has no commit of this project: only a .git in this folder counts.
if(GIT AND EXISTS "${SOURCE_DIR}/.git")
  # --no-optional-locks: a build must not lock the index while the user commits.
  execute_process(COMMAND "${GIT}" --no-optional-locks -C "${SOURCE_DIR}" describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND commit)
    set(WARPSTEP_COMMIT "${commit}")
  endif()
endif()
configure_file("${SOURCE_DIR}/engine/core/version.cpp.in" "${OUTPUT}" @ONLY)
