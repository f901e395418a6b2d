"""How many cores this process may use, at least 1: its affinity mask, and the lowest quota of its control groups, rounded up.

As engine/core/control_group.cpp counts them, so that builds and tests start no more than the program's own threads.
"""
import math
import os
import pathlib
import sys


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


def quotas(root):
    """The quotas in cores, of version 2 and 1; -1 and "max" are none."""
    mounts = pathlib.Path(root) / "sys/fs/cgroup"
    groups = [mounts]
    lines = text_of(pathlib.Path(root) / "proc/self/cgroup").splitlines()
    for _, controllers, group in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if not controllers:
            groups += folders(mounts, group) + folders(mounts / "unified", group)
        elif "cpu" in controllers.split(","):
            groups += folders(mounts / "cpu", group) + folders(mounts / controllers, group)
    for group in groups:
        words = (text_of(group / "cpu.max") or
                 text_of(group / "cpu.cfs_quota_us") + " " + text_of(group / "cpu.cfs_period_us")).split()
        if len(words) == 2 and all(word.isdigit() and int(word) for word in words):
            yield int(words[0]) / int(words[1])


def cores(root="/"):
    return max(1, min([len(os.sched_getaffinity(0)), *(math.ceil(quota) for quota in quotas(root))]))


if __name__ == "__main__":
    print(cores(*sys.argv[1:]))
