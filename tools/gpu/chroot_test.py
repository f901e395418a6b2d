#!/usr/bin/env python3
"""A tree of programs in an empty root folder, where CUDA exists only as PyTorch's wheels lay it out: no paths, variables or
packages of this machine help. `warpstep` must find the libraries and plan all of ResNet-50 for an assumed device.

    sudo chroot_test.py TREE [CUDA [WORK]]    TREE: a build folder or a staged tree; CUDA: a folder with CUDA 13 and cuDNN 9

The C runtime comes from this machine. Files are linked into the folder WORK (default: beside TREE), or copied from another
file system. Exit code 77: it cannot run here (no root, no CUDA).
"""
import errno
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SITE = "usr/local/lib/python3.12/dist-packages/nvidia"
# The wheels of PyTorch 2.11 for CUDA 13.0: folder -> patterns of its libraries.
WHEELS = {"cudnn": ["libcudnn*.so.9"], "cu13": ["libcudart.so.13", "libcublas*.so.13", "libnvrtc*.so.13", "libcupti.so.13"]}
RUNTIME = ("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libutil.so.1", "libgcc_s.so.1",
           "libstdc++.so.6", "libz.so.1")
LOADER = "/lib64/ld-linux-x86-64.so.2"
ARGUMENTS = ["explain", "resnet50", "--batch", "256", "--precision", "fp16", "--assume", "sm_90", "--plans"]


def place(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    source = os.path.realpath(source)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(source, target)
        shutil.copymode(source, target)


def found_by_loader(program):
    """name -> path of what the loader of this machine finds for a program or library."""
    printed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"(\S+) => (/\S+)", printed))


def wheels(root, cuda):
    """Lays CUDA's libraries out as wheels; the number of files."""
    folders, count = [cuda / "lib64", cuda / "lib", cuda], 0
    for wheel, patterns in WHEELS.items():
        for pattern in patterns:
            files = next((list(folder.glob(pattern)) for folder in folders if list(folder.glob(pattern))), [])
            for file in files:
                place(file, root / SITE / wheel / "lib" / file.name)
                count += 1
    return count


def fill(root, tree):
    """The tree at its own path, as a build folder's programs name theirs, and the C runtime. A staged tree must have the
    rest; a build folder gets it from this machine."""
    needed, is_staged = {}, (tree / "tools/gpu_check").exists()
    for name in ("bin/warpstep", *(str(path.relative_to(tree)) for path in sorted((tree / "lib").glob("*.so*")))):
        place(tree / name, root / tree.relative_to("/") / name)
        needed.update(found_by_loader(tree / name))
    for name, path in needed.items():
        of_tree = pathlib.Path(path).is_relative_to(tree)
        of_cuda = re.match(r"lib(cuda|cudnn|cublas|nv|nccl)", name)
        if name in RUNTIME or not (is_staged or of_tree or of_cuda):
            place(path, root / "lib/x86_64-linux-gnu" / name)
    place(LOADER, root / LOADER[1:])
    # All that the loader reads of /proc, for $ORIGIN: so none has to be mounted.
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/exe").symlink_to(tree / "bin/warpstep")


def run(root, tree, *words):
    """In the folder as root, with an empty environment."""
    program = [shutil.which("chroot"), str(root), str(tree / "bin" / "warpstep"), *words]
    return subprocess.run(program, env={}, capture_output=True, text=True, timeout=900, check=False)


def check(root, tree):
    """What is wrong, in words; None if all is planned."""
    before = run(root, tree, *ARGUMENTS)
    if before.returncode == 0 or "libcudart.so.13" not in before.stderr + before.stdout:
        return f"without wheels it does not name what is missing: {before.returncode} {before.stdout} {before.stderr}"
    (root / "hidden").rename(root / SITE)
    after = run(root, tree, *ARGUMENTS)
    planned = [line for line in after.stdout.splitlines() if "cudnn engine" in line or "stem 7x7" in line]  # ours
    if after.returncode != 0:
        return f"exit code {after.returncode}: {after.stderr.strip()}"
    convolutions = [line for line in after.stdout.splitlines() if re.search(r"/(norm_)?conv(\.[dw]grad)? ", line)]
    if len(planned) < 150 or set(convolutions) - set(planned):
        return f"{len(planned)} plans of {len(convolutions)} convolutions:\n{after.stdout}"
    facts = json.loads(run(root, tree, "info", "--json").stdout)
    reason = next(backend for backend in facts["backends"] if backend["name"] == "cuda")["reason"]
    if "no NVIDIA driver" not in reason:
        return f"without a driver `warpstep info` says: {reason}"
    print(f"{len(planned)} convolutions are planned, all of {after.stdout.splitlines()[0]}")
    return None


def main(tree, cuda="/usr/local/cuda", work=None):
    tree, cuda = pathlib.Path(tree).resolve(), pathlib.Path(cuda)
    if os.geteuid() != 0 or not shutil.which("chroot"):
        print("SKIPPED: chroot needs root")
        return 77
    with tempfile.TemporaryDirectory(prefix="chroot_", dir=work or tree.parent) as folder:
        root = pathlib.Path(folder)
        root.chmod(0o755)
        if wheels(root, cuda) < 8:
            print(f"SKIPPED: no CUDA 13 and cuDNN 9 in {cuda}")
            return 77
        (root / SITE).rename(root / "hidden")
        fill(root, tree)
        wrong = check(root, tree)
    if wrong:
        print(wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
