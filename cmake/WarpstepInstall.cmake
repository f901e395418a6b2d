# cmake --install: the program, the libraries, the headers and find_package(warpstep).
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
          FILES_MATCHING PATTERN "*.h")
endforeach()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/warpstepConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/warpstepConfig.cmake" INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/warpstep")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/warpstepConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/warpstepConfig.cmake" "${PROJECT_BINARY_DIR}/warpstepConfigVersion.cmake"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/warpstep")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
