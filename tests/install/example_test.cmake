# Installs into one folder, moves it to another, builds docs/example, docs/custom_op and plugins against it there
# and runs their programs and the installed one.
file(REMOVE_RECURSE "${WORK_DIR}")
if(CCACHE)  # the sources of the benchmark and the tests are compiled again; the cache has them from an earlier build
  set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${CCACHE}")
  set(ENV{CCACHE_BASEDIR} "${SOURCE_DIR}")
  set(ENV{CCACHE_NOHASHDIR} 1)
endif()
set(prefix "${WORK_DIR}/moved here")  # with a space in the path, as users' paths have

function(run)
  cmake_parse_arguments(arg "" "OUTPUT" "COMMAND" ${ARGN})
  # LD_LIBRARY_PATH could hide that programs do not find their libraries.
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env --unset=LD_LIBRARY_PATH --unset=CMAKE_PREFIX_PATH ${arg_COMMAND}
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN arg_COMMAND " " text)
    message(FATAL_ERROR "${text}\nended with ${result}:\n${output}")
  endif()
  if(arg_OUTPUT AND NOT output MATCHES "${arg_OUTPUT}")
    message(FATAL_ERROR "the output does not match '${arg_OUTPUT}':\n${output}")
  endif()
endfunction()

run(COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/first")
file(RENAME "${WORK_DIR}/first" "${prefix}")
file(GLOB_RECURSE of_tests "${prefix}/include/*testing*")
if(of_tests)
  message(FATAL_ERROR "headers of our own tests are installed: ${of_tests}")
endif()
file(GLOB_RECURSE installed LIST_DIRECTORIES true "${prefix}/include/*")
foreach(folder IN LISTS installed)
  file(GLOB inside "${folder}/*")
  if(IS_DIRECTORY "${folder}" AND NOT inside)
    message(FATAL_ERROR "an empty folder is installed: ${folder}")
  endif()
endforeach()
run(COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${SOURCE_DIR}/docs/example" -B "${WORK_DIR}/example"
            "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Release)
run(COMMAND "${CMAKE_COMMAND}" --build "${WORK_DIR}/example")
run(COMMAND "${WORK_DIR}/example/example" OUTPUT "conv1/conv 3x3 p1 .*update_all adam")
# While the major version is 0, the minor one counts changes of the interface: a program must not load the library of another.
file(READ_SYMLINK "${prefix}/${LIBDIR}/libwarpstep_engine.so" name_at_link)
if(NOT name_at_link MATCHES "^libwarpstep_engine[.]so[.](0[.][0-9]+|[1-9][0-9]*)$")
  message(FATAL_ERROR "libwarpstep_engine.so is a link to ${name_at_link}, a name that another interface has as well")
endif()
# An external op: the tests of Warpstep's own ops run on it, the benchmark lists it, and a training with it learns.
run(COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${SOURCE_DIR}/docs/custom_op" -B "${WORK_DIR}/custom_op"
            "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
            -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DBENCH=ON)
run(COMMAND "${CMAKE_COMMAND}" --build "${WORK_DIR}/custom_op")
run(COMMAND "${CMAKE_CTEST_COMMAND}" --test-dir "${WORK_DIR}/custom_op" --output-on-failure -j 2 -E "op/cuda/"
    OUTPUT "100% tests passed, 0 tests failed out of [3-9][0-9]")
run(COMMAND "${WORK_DIR}/custom_op/siamese" cpu 100
    OUTPUT "loss/cosine_embedding margin 0.2.*step +1  loss 0[.][2-9].*step  100  loss 0[.]0.* %.*cosine_embedding.dgrad")
run(COMMAND "${WORK_DIR}/custom_op/op_bench" --backends cpu --benchmark_list_tests
    OUTPUT "cosine_embedding/forward/f32/of_4096x512/cpu.*cosine_embedding/dgrad/f32/of_4096x512/cpu")
# A plugin: a model of a user's own.
run(COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${SOURCE_DIR}/docs/naive_loss" -B "${WORK_DIR}/naive_loss"
            "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Release)
run(COMMAND "${CMAKE_COMMAND}" --build "${WORK_DIR}/naive_loss")
run(COMMAND "${prefix}/bin/warpstep" explain --plugin "${WORK_DIR}/naive_loss/naive_loss.so" gpt2-nano-naive --device cpu
            --batch 1 --sequence 2 --model-option vocabulary=8
    OUTPUT "gpt2-nano-naive: GPT-2 nano whose loss is a loop.*loss/token_loss .*loss/token_loss.dgrad")
# A plugin that links a library of ops.
run(COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${SOURCE_DIR}/tests/install/op_plugin" -B "${WORK_DIR}/op_plugin"
            "-DOPS=${SOURCE_DIR}/docs/custom_op" "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
            -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1)
run(COMMAND "${CMAKE_COMMAND}" --build "${WORK_DIR}/op_plugin")
run(COMMAND "${prefix}/bin/warpstep" explain --plugin "${WORK_DIR}/op_plugin/op_plugin.so" two-views --device cpu --batch 8
    OUTPUT "two-views: with a loss of its own.*loss/cosine_embedding margin 0.2")
# A program of a user's own with its model, data set, transform, observer and loop (docs/cpp.md), and the same as a plugin.
run(COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${SOURCE_DIR}/docs/cpp" -B "${WORK_DIR}/cpp"
            "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Release)
run(COMMAND "${CMAKE_COMMAND}" --build "${WORK_DIR}/cpp")
run(COMMAND "${WORK_DIR}/cpp/train_own" "${WORK_DIR}/bars"
    OUTPUT "conv2/conv 3x3 p1 .*epoch 4: loss 0[.][0-5].*accuracy (9[5-9]|100)[.].*64 steps, weights in ")
run(COMMAND "${prefix}/bin/warpstep" train two-convolutions --plugin "${WORK_DIR}/cpp/own.so" --data "${WORK_DIR}/bars"
            --transforms solarize=128,normalize --epochs 4 --device cpu --out "${WORK_DIR}/run"
    OUTPUT "two-convolutions on .*accuracy +(9[5-9]|100)[.]")
# Backends are loaded by name: the program must find them after the move.
run(COMMAND "${prefix}/bin/warpstep" info OUTPUT "\ncpu +(AVX-512|AVX2|SSE4[.]1|NEON).*, [0-9]+ threads?")
# The installed tree must not depend on the build folder. Line numbers of kernels name sources by way of it, compressed, so
# that of some the name is seen: of that module style/run_paths checks what it would load.
file(GLOB_RECURSE installed "${prefix}/lib*/*.so*" "${prefix}/lib*/*.cmake" "${prefix}/bin/*")
foreach(file IN LISTS installed)
  if(file MATCHES "/libwarpstep_cuda\\.so$")
    continue()
  endif()
  file(STRINGS "${file}" found REGEX "${BUILD_DIR}" LIMIT_COUNT 1)
  if(found)
    message(FATAL_ERROR "${file} names the build folder: ${found}")
  endif()
endforeach()
list(LENGTH installed count)
if(count LESS 5)
  message(FATAL_ERROR "only ${count} libraries, programs and CMake files were installed: ${installed}")
endif()
