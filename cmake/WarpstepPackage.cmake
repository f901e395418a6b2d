# `cpack`: warpstep-VERSION-Linux-ARCH.tar.gz, which runs from any folder, and a .deb with its dependencies; the libraries
# of the distribution are not in them. `cpack -G DEB` makes one of the two.
if(NOT WARPSTEP_SANITIZE)
  set(CPACK_PACKAGE_NAME warpstep)
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
  set(CPACK_PACKAGE_CONTACT "the authors of Warpstep")
  set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
  set(CPACK_PACKAGE_FILE_NAME "warpstep-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
  set(CPACK_PACKAGE_CHECKSUM SHA256)
  set(CPACK_GENERATOR "TGZ;DEB")
  set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
  set(CPACK_STRIP_FILES ON)
  set(CPACK_THREADS 0)
  set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};${PROJECT_NAME};Unspecified;/")
  # Depends: on the packages of the libraries that the programs need, found by dpkg-shlibdeps.
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
  include(CPack)
  # The archives of a release, with the source's and the checksums of all.
  add_custom_target(release COMMAND "${CMAKE_COMMAND}" "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}" "-DBUILD_DIR=${PROJECT_BINARY_DIR}"
                    "-DVERSION=${PROJECT_VERSION}" "-DCPACK=${CMAKE_CPACK_COMMAND}" -P "${PROJECT_SOURCE_DIR}/cmake/WarpstepRelease.cmake"
                    USES_TERMINAL VERBATIM)
endif()

# The reference of the C++ interface as HTML: build/PRESET/reference/html/index.html.
find_program(DOXYGEN_PROGRAM doxygen)
if(DOXYGEN_PROGRAM)
  file(READ "${PROJECT_SOURCE_DIR}/docs/reference/Doxyfile" doxyfile)
  file(WRITE "${PROJECT_BINARY_DIR}/reference/Doxyfile"
       "${doxyfile}PROJECT_NUMBER = ${PROJECT_VERSION}\nOUTPUT_DIRECTORY = ${PROJECT_BINARY_DIR}/reference\nWARN_AS_ERROR = FAIL_ON_WARNINGS\n")
  add_custom_target(reference COMMAND "${DOXYGEN_PROGRAM}" "${PROJECT_BINARY_DIR}/reference/Doxyfile"
                    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" VERBATIM)
else()
  add_custom_target(reference COMMAND "${CMAKE_COMMAND}" -E echo "doxygen was not found: apt-get install doxygen, then configure again"
                    COMMAND "${CMAKE_COMMAND}" -E false VERBATIM)
endif()
