# STAGE/bin/warpstep, a copy of PROGRAM, and STAGE/lib with links to all of LIB; libwarpstep_cuda.so is MODULE,
# libcuda.so.1 is DRIVER and libnccl.so.2 is NCCL.
file(REMOVE_RECURSE "${STAGE}")
file(MAKE_DIRECTORY "${STAGE}/bin" "${STAGE}/lib")
file(COPY "${PROGRAM}" DESTINATION "${STAGE}/bin")
file(GLOB libraries "${LIB}/*.so*")
foreach(library IN LISTS libraries)
  get_filename_component(name "${library}" NAME)
  file(CREATE_LINK "${library}" "${STAGE}/lib/${name}" SYMBOLIC)
endforeach()
file(REMOVE "${STAGE}/lib/libwarpstep_cuda.so")
file(CREATE_LINK "${MODULE}" "${STAGE}/lib/libwarpstep_cuda.so" SYMBOLIC)
file(CREATE_LINK "${NCCL}" "${STAGE}/lib/libnccl.so.2" SYMBOLIC)
file(CREATE_LINK "${DRIVER}" "${STAGE}/lib/libcuda.so.1" SYMBOLIC)
