# Sourced by the scripts in this folder: selects the compiler and CMake, and has shared functions.
# Sets warpstep_root, PATH and, where plain g++ is too old, CXX.
warpstep_root=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")/.." && pwd)  # zsh gives $0
least_gcc=12
least_cmake=3.25

print_header() {  # prints the comment at the beginning of a script
  sed -n '2,/^[^#]/s/^#\( \|$\)//p' "$1"
}

at_least() {  # at_least FOUND WANTED: version numbers
  [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

cmake_version() { cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p'; }

gcc_version() {  # the version of a compiler; any clang counts as new enough
  case $("$1" --version 2>/dev/null | head -n 1) in
    '') ;;
    *clang*) echo 99 ;;
    *) "$1" -dumpfullversion -dumpversion ;;
  esac
}

# Selects the first compiler that is new enough: Ubuntu 22.04 has g++ 11 by default, and g++-12 as a package.
use_compiler() {
  local compiler
  for compiler in ${CXX:-} g++ g++-12 g++-13 g++-14 g++-15; do
    at_least "$(gcc_version "$compiler")" $least_gcc || continue
    if [ "$compiler" = g++ ]; then unset CXX; else export CXX=$compiler; fi
    return 0
  done
  return 1
}

# How many compilers may run at once. nproc ignores the quotas of containers (docker run --cpus), and memory.
build_jobs() {  # build_jobs [ROOT]
  local all allowed
  all=$(nproc)
  allowed=$(python3 -I -S -B "$warpstep_root/tools/gpu/cores.py" "$@" 2>/dev/null) || allowed=$all
  echo $((allowed < all ? allowed : all))
}

# Prints the name of a clang-tidy that understands the standard library's std::source_location: 16 or later.
tidy_name() {
  local name
  for name in clang-tidy clang-tidy-{16..22}; do
    at_least "$("$name" --version 2>/dev/null | sed -n 's/.*version \([0-9.]*\).*/\1/p')" 16 || continue
    echo "$name"
    return 0
  done
  return 1
}

# tools/setup installs a CMake there if the system's is too old. After the checkout was moved it does not run.
! "$warpstep_root/.cache/cmake/bin/cmake" --version >/dev/null 2>&1 || export PATH="$warpstep_root/.cache/cmake/bin:$PATH"
use_compiler || true
# Warnings are errors only with the compiler version that the code is kept clean for; other versions have other warnings.
case $(gcc_version "${CXX:-g++}") in
  $least_gcc.*) export WARPSTEP_WERROR=ON ;;
  *) export WARPSTEP_WERROR=OFF ;;
esac
