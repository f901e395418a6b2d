# Settings for all targets, and warpstep_library(), the only way to declare a folder's target.
include(GNUInstallDirs)

# warpstep_default(NAME TYPE VALUE TEXT): a setting in the cache. In a build of another project, which shares the cache, a
# variable of ours alone.
macro(warpstep_default name type value text)
  if(PROJECT_IS_TOP_LEVEL)
    set(${name} "${value}" CACHE ${type} "${text}")
  elseif(NOT DEFINED ${name})
    set(${name} "${value}")
  endif()
endmacro()

if(NOT CMAKE_BUILD_TYPE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
elseif(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Twenty-six files per compilation: a file's own lines are 1 % of what the compiler reads, the rest is headers. Therefore names in
# anonymous namespaces must be unique within a target, and -Wshadow ignores locals that hide a name of another file.
warpstep_default(CMAKE_UNITY_BUILD BOOL ON "Compile twenty-six source files at a time")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 26)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
# The build tree uses the run paths of the installed tree. Otherwise CMake pads them for rewriting at installation, and the
# loader reads an empty entry as the current directory: a program started in a downloaded data set would load its libraries.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/../${CMAKE_INSTALL_LIBDIR};$ORIGIN")
list(REMOVE_DUPLICATES CMAKE_INSTALL_RPATH)

# Checkouts share the compiler cache: paths count relative to the source tree.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(WARPSTEP_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
                                 "${CCACHE_PROGRAM}")
endif()
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${WARPSTEP_COMPILER_LAUNCHER}")
endif()

# warpstep_require(NAME PACKAGE ...): find_package(NAME ...), whose own message does not name the PACKAGE to install.
macro(warpstep_require name package)
  find_package(${name} QUIET ${ARGN})
  if(NOT ${name}_FOUND)
    warpstep_missing(${name} ${package})
  endif()
endmacro()
function(warpstep_missing name package)
  message(FATAL_ERROR "${name} or its headers were not found: on Debian and Ubuntu, install the package ${package}. tools/setup "
                      "installs all that a build with GCC needs, tools/setup --check also what the tests need. If it is "
                      "installed elsewhere, add its prefix to CMAKE_PREFIX_PATH")
endfunction()

find_package(Threads REQUIRED)
warpstep_require(fmt libfmt-dev)
warpstep_require(nlohmann_json nlohmann-json3-dev)

# Compile options of our own code, private to each target and never exported.
add_library(warpstep_options INTERFACE)
target_compile_options(warpstep_options INTERFACE
  # Designated initialisers omit defaults. -ffp-contract: the same bits at every optimisation level.
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;$<$<CXX_COMPILER_ID:GNU>:-Wshadow=local>;-Wno-missing-field-initializers;-ffp-contract=off>"
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${WARPSTEP_WERROR}>>:-Werror>")
# GCC collects garbage less often: 8 % less time for 8 % more memory.
target_compile_options(warpstep_options INTERFACE
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:--param=ggc-min-expand=300>")
# Clang's -Wconversion has more than GCC's, and libstdc++ 12 uses what it deprecates. -fno-math-errno: as `#pragma GCC optimize`.
target_compile_options(warpstep_options INTERFACE
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-Wno-sign-conversion;-Wno-unknown-pragmas;-Wno-deprecated-declarations;-fno-math-errno>")
# With enough inlining GCC 12 reports the inactive alternatives of a std::variant as uninitialised.
target_compile_options(warpstep_options INTERFACE
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>")
target_link_options(warpstep_options INTERFACE -Wl,--as-needed)
if(WARPSTEP_SANITIZE)
  list(JOIN WARPSTEP_SANITIZE "," sanitizers)
  set(options -Og -g1 -UNDEBUG -fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # AddressSanitizer reports null pointers and object ends anyway, and CPUs read misaligned numbers: without these checks
  # compiling takes 40 % less time. GPUs do not, and what reads files should not: warpstep_check_alignment().
  if("undefined" IN_LIST WARPSTEP_SANITIZE)
    list(APPEND options -fno-sanitize=null,object-size,alignment)
  endif()
  set(instrumented "$<NOT:$<BOOL:$<TARGET_PROPERTY:WARPSTEP_PLAIN>>>")
  add_compile_options("$<${instrumented}:${options}>")
  add_compile_definitions("$<${instrumented}:WARPSTEP_SANITIZED>")
  # libstdc++ checks the indices of vectors, spans and texts, within an object where AddressSanitizer sees nothing.
  if("address" IN_LIST WARPSTEP_SANITIZE)
    add_compile_definitions("$<${instrumented}:_GLIBCXX_ASSERTIONS>")
  endif()
  # A library calls its own, instrumented copies of inline functions, not a plain program's.
  add_link_options(-fsanitize=${sanitizers} -Wl,-Bsymbolic-functions)
else()
  # A folder must declare each folder that it uses: unresolved symbols fail the link.
  target_link_options(warpstep_options INTERFACE -Wl,-z,defs)
endif()

# UBSan does not report pointers that overflow in this folder's targets; AddressSanitizer still reports where they are used.
macro(warpstep_ignore_pointer_overflow)
  if("undefined" IN_LIST WARPSTEP_SANITIZE)
    add_compile_options("$<$<NOT:$<BOOL:$<TARGET_PROPERTY:WARPSTEP_PLAIN>>>:-fno-sanitize=pointer-overflow>")
  endif()
endmacro()

# warpstep_check_alignment(TARGET): UBSan reports misaligned accesses of this one.
function(warpstep_check_alignment target)
  if("undefined" IN_LIST WARPSTEP_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=alignment)
  endif()
endfunction()

# warpstep_compile_fast(TARGET [LEVEL]): less optimisation in about half of the compile time, for what handles graphs, options and
# reports, and for tests, whose computing happens in the libraries. -Og takes a fifth less time than -O1 and compiles the
# program faster than -O0, which writes more code. LEVEL: 0 for tests that compute nothing at all. UBSan does not check dynamic
# types here.
function(warpstep_compile_fast target)
  set(level g)
  if(ARGC GREATER 1)
    set(level ${ARGV1})
  endif()
  set(plain "$<OR:$<NOT:$<BOOL:${WARPSTEP_SANITIZE}>>,$<BOOL:$<TARGET_PROPERTY:WARPSTEP_PLAIN>>>")
  target_compile_options(${target} PRIVATE "$<IF:${plain},$<$<CONFIG:Release>:-O${level}>,-O0>")
  if("undefined" IN_LIST WARPSTEP_SANITIZE)
    target_compile_options(${target} PRIVATE "$<$<NOT:${plain}>:-fno-sanitize=vptr>")
  endif()
endfunction()

# In the libraries' names: programs load a library of their own interface alone. Before 1.0 the minor version counts its changes.
set(WARPSTEP_SOVERSION ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
  string(APPEND WARPSTEP_SOVERSION ".${PROJECT_VERSION_MINOR}")
endif()

# warpstep_library(NAME [MODULE] SOURCES ... [LINK public...] [LINK_PRIVATE ...])
# A shared library libwarpstep_NAME.so, or a module that the engine loads by name at run time.
function(warpstep_library name)
  cmake_parse_arguments(arg "MODULE" "" "SOURCES;LINK;LINK_PRIVATE" ${ARGN})
  set(target warpstep_${name})
  if(arg_MODULE)
    add_library(${target} MODULE ${arg_SOURCES})
  else()
    add_library(${target} SHARED ${arg_SOURCES})
    add_library(warpstep::${name} ALIAS ${target})
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} VERSION ${PROJECT_VERSION}
                          SOVERSION ${WARPSTEP_SOVERSION})
  endif()
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
                             "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/warpstep>")
  target_link_libraries(${target} PUBLIC ${arg_LINK} PRIVATE ${arg_LINK_PRIVATE}
                        $<BUILD_INTERFACE:warpstep_options>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_property(GLOBAL APPEND PROPERTY WARPSTEP_LIBRARIES ${target})
endfunction()

# warpstep_compile_rooms_fast(LIBRARY ROOM ... [EXCEPT FILE ...]): compiles these subfolders of the library, which no step
# waits for, with warpstep_compile_fast(); the excepted files have loops over pixels, elements or bytes.
function(warpstep_compile_rooms_fast library)
  cmake_parse_arguments(arg "" "" "EXCEPT" ${ARGN})
  list(TRANSFORM arg_UNPARSED_ARGUMENTS REPLACE ".+" "\\0/*.cpp" OUTPUT_VARIABLE patterns)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${patterns})
  list(TRANSFORM arg_EXCEPT PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  list(REMOVE_ITEM files ${arg_EXCEPT})
  get_target_property(others ${library} SOURCES)
  set(sources ${others})
  list(REMOVE_ITEM others ${files})
  list(REMOVE_ITEM sources ${others})
  set_property(TARGET ${library} PROPERTY SOURCES ${others})
  add_library(${library}_rooms OBJECT ${sources})
  target_include_directories(${library}_rooms PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${library}_rooms PRIVATE $<TARGET_PROPERTY:${library},LINK_LIBRARIES> warpstep_options)
  warpstep_compile_fast(${library}_rooms)
  target_sources(${library} PRIVATE $<TARGET_OBJECTS:${library}_rooms>)
endfunction()

# warpstep_compile_plain(TARGET [THREADS | ADDRESSES]): without sanitizers, with the options of the release build, after which the
# compiler cache has the objects. For tests and what only they link: the accesses to be checked are those of the libraries.
# THREADS: ThreadSanitizer sees it, because it must see both sides of a race. ADDRESSES: only the others see it.
function(warpstep_compile_plain target)
  set(sees ADDRESSES)
  if(WARPSTEP_SANITIZE STREQUAL "thread")
    set(sees THREADS)
  endif()
  if(NOT sees IN_LIST ARGN)
    set_target_properties(${target} PROPERTIES WARPSTEP_PLAIN ON)
  endif()
endfunction()

# The tiers of tests; building a tier builds its tests and all libraries, because backends are loaded by name.
if(WARPSTEP_TESTS)
  warpstep_require(GTest "libgtest-dev, with libgmock-dev")
  include(GoogleTest)
  foreach(tier host cpu cuda-on-cpu plans gpu)
    add_custom_target(tier_${tier})
  endforeach()
endif()

# The test programs that start threads: of those in tiers host and cpu the others cannot have races, and the
# ThreadSanitizer build leaves them out. tests/threads.py counts the threads of each program and lists programs that are
# missing here.
set(WARPSTEP_THREADED "^(system_test|[a-z]+_threads_test|profile_command_test|backend_cuda_emulated_test)$")

# Of these, those whose own code has threads; the others start a program that has.
set(WARPSTEP_THREADED_TESTS "^([a-z]+_threads_test|profile_command_test|backend_cuda_emulated_test)$")

# How tests are compiled.
function(warpstep_test_sources target level)
  target_link_libraries(${target} PRIVATE GTest::gmock warpstep_options)
  target_compile_definitions(${target} PRIVATE WARPSTEP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  warpstep_compile_fast(${target} ${level})
endfunction()

# warpstep_backend_tests(NAME SOURCES ... LINK ...): tests that several programs have, each on its BACKEND, compiled once.
# The programs link NAME and, because CMake gives the objects of an object library only to those that link it directly, what
# of LINK is one.
function(warpstep_backend_tests name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC ${arg_LINK})
  warpstep_test_sources(${name} g)
  warpstep_compile_plain(${name})
endfunction()

# warpstep_test(NAME TIER tier [INSTRUMENTED] SOURCES ... LINK ... [TIMEOUT s] [SHARDS n] [ASAN_FILTER f] [TSAN_FILTER f]
# [BACKEND b] [PROPERTIES ...]): a GoogleTest program; all its tests have the tier as label, and the target tier_TIER builds it.
# SHARDS: a program with very many short tests runs in n processes, because starting a process takes longer than a test. With a
# sanitizer it takes longer than most tests, so every program runs in two processes or n. They start first (COST): otherwise
# one core would wait for the other in the end. ASAN_FILTER, TSAN_FILTER: the tests that AddressSanitizer and ThreadSanitizer
# run. BACKEND: what tests/tested_backend.h gives; the tests are those of a warpstep_backend_tests(), among LINK.
# PROPERTIES: of the tests; ENVIRONMENT is one of them. INSTRUMENTED: some of the sources are not tests; sanitizers see all.
function(warpstep_test name)
  cmake_parse_arguments(arg "INSTRUMENTED" "TIER;TIMEOUT;SHARDS;ASAN_FILTER;TSAN_FILTER;BACKEND" "SOURCES;LINK;PROPERTIES" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set(left_out "")
  if(WARPSTEP_SANITIZE STREQUAL "thread" AND arg_TIER MATCHES "^(host|cpu)$" AND NOT name MATCHES "${WARPSTEP_THREADED}")
    set(left_out EXCLUDE_FROM_ALL)
  endif()
  if(arg_BACKEND)
    list(APPEND arg_SOURCES "${PROJECT_SOURCE_DIR}/tests/tested_backend.cpp")
  endif()
  add_executable(${name} ${left_out} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gtest_main)
  if(arg_TIER MATCHES "^(host|plans)$" OR name MATCHES "^system_")
    warpstep_test_sources(${name} 0)
  else()  # compares what kernels compute
    warpstep_test_sources(${name} g)
  endif()
  if(name MATCHES "${WARPSTEP_THREADED_TESTS}")
    warpstep_compile_plain(${name} THREADS)
  elseif(NOT arg_INSTRUMENTED)
    warpstep_compile_plain(${name})
  endif()
  if(arg_BACKEND)
    target_compile_definitions(${name} PRIVATE WARPSTEP_TESTED_BACKEND="${arg_BACKEND}")
    add_dependencies(${name} warpstep_ref warpstep_${arg_BACKEND})
  endif()
  if(left_out)
    return()
  endif()
  add_dependencies(tier_${arg_TIER} ${name})
  if(NOT arg_SHARDS AND NOT WARPSTEP_SANITIZE)
    gtest_discover_tests(${name} TEST_PREFIX "${name}/" DISCOVERY_TIMEOUT 60
                         PROPERTIES LABELS ${arg_TIER} TIMEOUT ${arg_TIMEOUT} ${arg_PROPERTIES})
    return()
  endif()
  set(filter "*")
  if(WARPSTEP_SANITIZE STREQUAL "thread" AND arg_TSAN_FILTER)
    set(filter "${arg_TSAN_FILTER}")
  elseif("address" IN_LIST WARPSTEP_SANITIZE AND arg_ASAN_FILTER)
    set(filter "${arg_ASAN_FILTER}")
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 2)
  endif()
  math(EXPR last "${arg_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(test ${name}/shard_${shard})
    add_test(NAME ${test} COMMAND ${name})
    set_tests_properties(${test} PROPERTIES LABELS ${arg_TIER} TIMEOUT 1200 COST 25 ${arg_PROPERTIES})
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT GTEST_TOTAL_SHARDS=${arg_SHARDS} GTEST_SHARD_INDEX=${shard}
                                                          "GTEST_FILTER=${filter}")
  endforeach()
endfunction()
