"""Finds what gpu_check needs: the programs, the device, the libraries they load, a Python with PyTorch."""
import ctypes
import dataclasses
import functools
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import cores

HERE = pathlib.Path(__file__).resolve().parents[2]
# A device's description: "NVIDIA H200 (sm_90, 132 SMs, 139.8 GiB), driver for CUDA 13.0, runtime 13.0, cuDNN ..."
DESCRIPTION = re.compile(r"(?P<device>.+?) \((?P<architecture>sm_\d+), .*driver for CUDA (?P<driver_cuda>[\d.]+), "
                         r"runtime (?P<cuda>[\d.]+)(, cuDNN (?P<cudnn>[\d.]+))?(.*cuBLASLt (?P<cublaslt>[\d.]+))?")
CUDNN_OF_ATTENTION = (9, 16)  # an older one leaves attention to our own kernels, without tensor cores


@dataclasses.dataclass
class Tree:
    """Programs, libraries, and the source files that they read; the same for a build and a staged tree."""
    programs: pathlib.Path
    libraries: pathlib.Path
    source: pathlib.Path
    staged: bool

    def carried(self):
        """Library folders only for `warpstep`: a staged tree has libraries that cairo needs and that the program does
        not link itself. Python must not load them instead of its own."""
        return [self.libraries] if self.staged else []

    def program(self, name):
        """The program's path, or None if this tree does not have it."""
        path = self.programs / name
        return str(path) if os.access(str(path), os.X_OK) else None


def find_tree(stage=None, here=HERE):
    """The given staged tree, or the one that contains this script, or the build of this repository."""
    root = pathlib.Path(stage).resolve() if stage else here
    if stage or (root / "bin").is_dir():
        return Tree(root / "bin", root / "lib", root, True)
    build = root / "build" / "release"
    return Tree(build / "bin", build / "lib", root, False)


def staged_in(tree):
    """The staged tree of a repository, build/stage; None without one."""
    stage = tree.source / "build" / "stage"
    return find_tree(stage) if os.access(str(stage / "bin" / "warpstep"), os.X_OK) else None


def nvcc():
    """CUDA's compiler, where CMake looks for it (cmake/WarpstepNvcc.cmake); None without one."""
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def cannot_build(include=("/usr/include", "/usr/local/include")):
    """What building lacks on this machine, in words; None if nothing that tools/setup would have to install."""
    programs = [name for name in ("cmake", "ninja", "g++") if not shutil.which(name)]
    if not nvcc():
        programs.append("nvcc")
    headers = [name for name in ("fmt/core.h", "nlohmann/json.hpp", "CLI/CLI.hpp", "gtest/gtest.h", "png.h")
               if not any(os.path.exists(os.path.join(folder, name)) for folder in include)]
    return "no " + ", ".join(programs + headers) if programs or headers else None


def no_driver():
    """Why building is pointless, in the words of `warpstep info`. None if there is a driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver on this machine (libcuda.so.1 not found)"
    return None


def architectures():
    """The architectures of the driver's devices, "90-real" for an H200. None if the driver fails."""
    try:
        driver, count, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0), []
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
            return None
        for ordinal in range(count.value):
            parts = []
            for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
                value = ctypes.c_int(0)
                if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, ordinal):
                    return None
                parts.append(str(value.value))
            found.append("".join(parts) + "-real")
        return ";".join(sorted(set(found))) or None
    except (OSError, AttributeError):
        return None


def with_libraries(env, folders):
    """The environment with folders that the loader searches first."""
    path = [str(f) for f in folders] + [p for p in [env.get("LD_LIBRARY_PATH")] if p]
    return {**env, "LD_LIBRARY_PATH": ":".join(path)} if path else env


def environment(tree, libraries=(), module=None):
    """The environment of all programs: `libraries` are folders, `module` a backend to test instead of cuda."""
    env = with_libraries(dict(os.environ), libraries)
    env["WARPSTEP_SOURCE_DIR"] = str(tree.source)
    env.pop("WARPSTEP_TESTED_BACKEND", None)
    if module:
        env["WARPSTEP_TESTED_BACKEND"] = str(module)
    return env


def pythons():
    """Interpreters that may have PyTorch; first the one named by PYTHON."""
    named = [os.environ.get("PYTHON"), shutil.which("python3"), shutil.which("python"), sys.executable]
    return list(dict.fromkeys(p for p in named if p))


def answer_of(python, code, limit_s=180):
    try:
        ran = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None


def python_with_torch():
    """(interpreter, version of PyTorch, whether it sees a CUDA device); None if no Python has PyTorch."""
    return first_with_torch(tuple(pythons()))


@functools.lru_cache(maxsize=None)  # importing PyTorch takes seconds
def first_with_torch(candidates):
    for python in candidates:
        answer = answer_of(python, "import torch; print(torch.__version__, torch.cuda.is_available())")
        if answer:
            version, sees = answer.split()[-2:]
            return python, version, sees == "True"
    return None


def numbers(version):
    """(9, 19, 0, 56) of "9.19.0.56"."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def cudnn_of(place):
    """The version of site-packages' cuDNN for CUDA 13; () without it. cuDNN 9 for CUDA 12 has the same soname but needs
    libraries that CUDA 13 does not have."""
    found = glob.glob(os.path.join(place, "nvidia_cudnn_cu13-*.dist-info"))
    return max((numbers(os.path.basename(name).split("-")[1]) for name in found), default=())


def wheel_folders():
    """Library folders of NVIDIA's Python wheels, the newest cuDNN for CUDA 13 first: site-packages/nvidia/*/lib."""
    places = ["/usr/lib/python3/dist-packages", *glob.glob("/usr/local/lib/python3*/*-packages"),
              *glob.glob("/opt/*/lib/python3*/site-packages"), *glob.glob("/opt/*/*/lib/python3*/site-packages")]
    for python in pythons():
        answer = answer_of(python, "import json, sys, sysconfig; "
                           "print(json.dumps(sys.path + [sysconfig.get_path('purelib')]))")
        places = (json.loads(answer) if answer else []) + places
    places = [p for p in dict.fromkeys(places) if glob.glob(os.path.join(p, "nvidia", "*", "lib", "lib*.so.*"))]
    places.sort(key=cudnn_of, reverse=True)
    return [folder for p in places for folder in sorted(glob.glob(os.path.join(p, "nvidia", "*", "lib")))]


def info(tree, env):
    """The output of `warpstep info --json`, and its CUDA entry; RuntimeError if there is none."""
    program = tree.program("warpstep")
    if program is None:
        raise RuntimeError(f"no program 'warpstep' in {tree.programs}")
    try:
        ran = subprocess.run([program, "info", "--json"], env=with_libraries(env, tree.carried()), capture_output=True,
                             text=True, timeout=300, check=False)
        facts = json.loads(ran.stdout)
    except subprocess.TimeoutExpired:
        raise RuntimeError("warpstep info did not finish within 300 s") from None
    except ValueError:
        raise RuntimeError(f"warpstep info ended with {ran.returncode}: {ran.stderr.strip()}") from None
    return facts, next(b for b in facts["backends"] if b["name"] == "cuda")


def starts(tree, env):
    """Whether the loader finds what the program of own kernels is linked to, CUDA's runtime."""
    program = tree.program("kernels_cuda_test")
    return not program or subprocess.run([program, "--gtest_list_tests"], env=env, capture_output=True, timeout=120,
                                         check=False).returncode != 127


def find_device(tree, module=None):
    """(info's facts, the CUDA entry, the environment in which it was found). The backend looks for CUDA's libraries in
    Python wheels, too. Programs that are linked to them find them by the folders in their environment, which also put the
    wheels' cuDNN before one that is too old."""
    env = environment(tree, module=module)
    facts, cuda = info(tree, env)
    if cuda["available"]:
        lacking, old = not starts(tree, env), () < cudnn_in_use(cuda) < CUDNN_OF_ATTENTION
        folders = wheel_folders() if lacking or old else []
        if folders:
            wider = environment(tree, folders, module)
            newer_facts, newer = info(tree, wider)
            if newer["available"] and (lacking or cudnn_in_use(newer) > cudnn_in_use(cuda)):
                return newer_facts, newer, wider
    if not cuda["available"] and "does not load" in cuda["reason"]:
        folders = wheel_folders()
        wider = environment(tree, folders, module)
        if folders:
            facts, found = info(tree, wider)
            if found["available"] or "does not load" not in found["reason"]:
                return facts, found, wider
    return facts, cuda, env


def versions(description):
    """The parts of a device's description by name; only 'device' if it has another form."""
    match = DESCRIPTION.match(description)
    return {k: v for k, v in match.groupdict().items() if v} if match else {"device": description}


def cudnn_in_use(cuda):
    """Of info's CUDA entry; () if it has none."""
    return numbers(versions(cuda["description"]).get("cudnn", ""))


def processes(description, most=16):
    """How many test programs run at once: one per core, and per 2 GiB of the device, as each has a context and cuDNN."""
    memory = re.search(r"([\d.]+) GiB\)", description)
    return max(1, min(most, cores.cores(), int(float(memory[1]) / 2) if memory else most))


def nvidia_smi():
    """Facts that only nvidia-smi has: driver version, power limit, clocks. None without it."""
    program = shutil.which("nvidia-smi")
    if not program:
        return None
    fields = "name,driver_version,memory.total,power.limit,clocks.max.sm,clocks.max.memory,persistence_mode"
    try:
        ran = subprocess.run([program, "--query-gpu=" + fields, "--format=csv,noheader"], capture_output=True,
                             text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return [dict(zip(fields.split(","), (part.strip() for part in line.split(","))))
            for line in ran.stdout.splitlines() if line.count(",") == fields.count(",")] or None


def sanitizer():
    """The path of compute-sanitizer, or None."""
    found = shutil.which("compute-sanitizer")
    if found:
        return found
    # The wheel nvidia-cuda-sanitizer-api has all of it since 13.5; before, what starts the program is missing.
    near = ["/usr/local/cuda/bin", *(os.path.join(folder, "..", "compute-sanitizer") for folder in wheel_folders()),
            "/usr/local/cuda/compute-sanitizer"]
    return next((path for folder in near if os.access(path := os.path.join(folder, "compute-sanitizer"), os.X_OK)), None)
