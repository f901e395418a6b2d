# cmake --install: the program, the libraries, the headers and the package for find_package(warpstep).
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY WARPSTEP_LIBRARIES)
set(linked ${libraries})
foreach(target IN LISTS libraries)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL MODULE_LIBRARY)
    list(REMOVE_ITEM linked ${target})
    install(TARGETS ${target} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  endif()
endforeach()
install(TARGETS ${linked} EXPORT warpstepTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT warpstepTargets NAMESPACE warpstep:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/warpstep")
foreach(folder engine models data profiler)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/warpstep"
          FILES_MATCHING PATTERN "*.h" PATTERN "*testing*" EXCLUDE
          REGEX "/(testdata|export/page|dist/mpi)$" EXCLUDE)  # folders without headers
endforeach()

# The headers for kernels of a user's own op, and the sources of the generic op tests and benchmark.
set(include_kernels "${CMAKE_INSTALL_INCLUDEDIR}/warpstep/kernels")
install(FILES kernels/kernel.h kernels/cases.h DESTINATION "${include_kernels}")
if(WARPSTEP_HAS_CUDA)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/kernels/cuda" DESTINATION "${include_kernels}" FILES_MATCHING
          REGEX "/(check|dispatch|launch_kernel|runtime)[.]h$" REGEX "/(launch|reduce|vector|divider)[.]cuh$")
endif()
set(WARPSTEP_OPS_INSTALL_DIR "${CMAKE_INSTALL_DATADIR}/warpstep")
install(FILES kernels/cases.cpp DESTINATION "${WARPSTEP_OPS_INSTALL_DIR}/kernels")
install(FILES kernels/cuda/check.cpp kernels/cuda/dispatch.cpp DESTINATION "${WARPSTEP_OPS_INSTALL_DIR}/kernels/cuda")
install(FILES tests/op_test.cpp tests/adjoint_test.cpp tests/trial.h tests/trial.cpp tests/tested_backend.h tests/build_tree.h
              tests/tested_backend.cpp tests/tolerance.h
        DESTINATION "${WARPSTEP_OPS_INSTALL_DIR}/tests")
install(FILES bench/kernel_bench.cpp bench/kernel_bench_subjects.h bench/kernel_bench_subjects.cpp
              bench/kernel_bench_timing.h bench/kernel_bench_timing.cpp bench/open.h bench/program.h
        DESTINATION "${WARPSTEP_OPS_INSTALL_DIR}/bench")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/warpstepConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/warpstepConfig.cmake" INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/warpstep"
  PATH_VARS WARPSTEP_OPS_INSTALL_DIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/warpstepConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/warpstepConfig.cmake" "${PROJECT_BINARY_DIR}/warpstepConfigVersion.cmake"
              cmake/WarpstepNvcc.cmake cmake/WarpstepOps.cmake
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/warpstep")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
