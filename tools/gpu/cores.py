"""How many cores this process may use, at least 1: its affinity mask, and the lowest quota of its control groups, rounded up.

As engine/core/control_group.cpp counts them, so that builds and tests start no more than the program's own threads. Run as a
program, prints how many compilers may run at once: one per core, and no more than memory allows.
"""
import math
import os
import pathlib
import re
import sys

COMPILER_BYTES = 5 << 28  # 1.25 GiB: most compilations take less than 1, a few 1.4


def text_of(path):
    try:
        return path.read_text(errors="surrogateescape")  # names of groups are bytes
    except OSError:
        return ""


def folders(mount, group):
    """A group and its ancestors, up to the mount. One outside of the container's is /../NAME."""
    group = pathlib.Path(os.path.normpath(group.lstrip("/")))
    parts = () if group.parts[:1] == ("..",) else group.parts
    return [mount.joinpath(*parts[:count]) for count in range(len(parts) + 1)]


def groups_of(root, controller):
    """The folders of this process's control groups, of version 2 and 1."""
    mounts = pathlib.Path(root) / "sys/fs/cgroup"
    groups = [mounts]
    lines = text_of(pathlib.Path(root) / "proc/self/cgroup").splitlines()
    for _, controllers, group in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if not controllers:
            groups += folders(mounts, group) + folders(mounts / "unified", group)
        elif controller in controllers.split(","):
            groups += folders(mounts / controller, group) + folders(mounts / controllers, group)
    return groups


def quotas(root):
    """The quotas in cores; -1 and "max" are none."""
    for group in groups_of(root, "cpu"):
        words = (text_of(group / "cpu.max") or
                 text_of(group / "cpu.cfs_quota_us") + " " + text_of(group / "cpu.cfs_period_us")).split()
        if len(words) == 2 and all(word.isdigit() and int(word) for word in words):
            yield int(words[0]) / int(words[1])


def cores(root="/"):
    return max(1, min([len(os.sched_getaffinity(0)), *(math.ceil(quota) for quota in quotas(root))]))


def memory_limits(root):
    """Bytes: those that the system has left, and the limits of control groups, of which "max" is none."""
    available = re.search(r"^MemAvailable:\s*(\d+) kB", text_of(pathlib.Path(root) / "proc/meminfo"), re.MULTILINE)
    if available:
        yield int(available[1]) << 10
    for group in groups_of(root, "memory"):
        limit = (text_of(group / "memory.max") or text_of(group / "memory.limit_in_bytes")).strip()
        if limit.isdigit():
            yield int(limit)


def build_jobs(root="/"):
    return max(1, min([cores(root), *(limit // COMPILER_BYTES for limit in memory_limits(root))]))


if __name__ == "__main__":
    print(build_jobs(*sys.argv[1:]))
