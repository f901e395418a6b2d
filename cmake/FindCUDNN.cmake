# Defines CUDNN::cudnn, found in the toolkit's folders or in CUDNN_ROOT, which may be a Python wheel's nvidia/cudnn folder.
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS "${CUDNN_ROOT}" ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
# Also search for the full soname: wheels have no libcudnn.so.
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS "${CUDNN_ROOT}" "${CUDAToolkit_LIBRARY_DIR}"
             PATH_SUFFIXES lib lib64)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)
if(CUDNN_INCLUDE_DIR AND EXISTS "${CUDNN_INCLUDE_DIR}/cudnn_version.h")
  foreach(part MAJOR MINOR PATCHLEVEL)
    file(STRINGS "${CUDNN_INCLUDE_DIR}/cudnn_version.h" line REGEX "^#define CUDNN_${part} +[0-9]+")
    string(REGEX REPLACE "[^0-9]" "" CUDNN_${part} "${line}")
  endforeach()
  set(CUDNN_VERSION "${CUDNN_MAJOR}.${CUDNN_MINOR}.${CUDNN_PATCHLEVEL}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES IMPORTED_LOCATION "${CUDNN_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR}")
endif()
