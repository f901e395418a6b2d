#!/usr/bin/env bash
# Builds the program and its CPU backend for 64-bit Arm and runs tests of them under QEMU: every op against the reference, the
# data library, the engine, whole models against PyTorch's goldens, and a training. By hand, as root, with mmdebstrap,
# g++-12-aarch64-linux-gnu, qemu-user-static and a network; some 15 minutes on two cores.
#
#   arm.sh [BUILD] [SYSROOT]       default: build/arm, and BUILD/sysroot, which is filled if it does not exist
#
# Not run: what starts threads beyond a limit or handles faults in system calls, which QEMU does otherwise than a kernel.
set -euo pipefail
case ${1-} in
  --help | -h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
  -*) printf 'arm.sh: unknown argument %s, see --help\n' "$1" >&2; exit 2 ;;
esac
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(realpath -m -- "${1-$root/build/arm}")
sysroot=$(realpath -m -- "${2-$build/sysroot}")
libraries=aarch64-linux-gnu
step() { printf '\n== %s\n' "$*"; }
emulated() { nice qemu-aarch64-static -L "$sysroot" "$@"; }
mkdir -p -- "$build"

step "libraries of a Debian for Arm"
[ -e "$sysroot/usr/lib/$libraries" ] ||
  mmdebstrap --quiet --variant=extract --architectures=arm64 --include=libc6-dev,libstdc++-12-dev,libgomp1,libfmt-dev,$(
    )nlohmann-json3-dev,libcli11-dev,libpng-dev,zlib1g-dev,libdeflate-dev,libjpeg-dev,libcairo2-dev,libgtest-dev,$(
    )libgmock-dev,libbenchmark-dev bookworm "$sysroot" http://deb.debian.org/debian

step "build"
export PKG_CONFIG_SYSROOT_DIR=$sysroot PKG_CONFIG_LIBDIR=$sysroot/usr/lib/$libraries/pkgconfig:$sysroot/usr/share/pkgconfig
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DWARPSTEP_TESTS=ON -DWARPSTEP_WERROR=ON -DWARPSTEP_CUDA=OFF \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$libraries-g++-12 -DCMAKE_SYSROOT="$sysroot" \
  -DCMAKE_LIBRARY_ARCHITECTURE=$libraries -DCMAKE_FIND_ROOT_PATH="$sysroot" -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER \
  -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY \
  "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64-static;-L;$sysroot" >"$build/configure.log"
tests=(op_cpu_test data_test engine_test parity_test)
cmake --build "$build" --parallel --target warpstep warpstep_cpu warpstep_ref "${tests[@]}"

step "tests"
for test in "${tests[@]}"; do
  filter='-*FusionOf*:*PlanOfModel*'  # minutes of planning that is the same on every CPU
  [ "$test" != parity_test ] || filter='*mnist*:*gpt2*'
  emulated "$build/bin/$test" --gtest_brief=1 --gtest_filter="$filter"
done

step "a training"
emulated "$build/bin/warpstep" info
emulated "$build/bin/warpstep" data make "$build/shapes" --size 32x32 --train 512 --test 64
emulated "$build/bin/warpstep" train mlp --data "$build/shapes" --epochs 3 --batch 64 --out "$build/run" --overwrite
echo
echo "passed"
