"""Runs a program and ends it, with all processes that it started, when gpu_check ends in any way.

    guard.py DESCRIPTOR PROGRAM [ARGUMENT ...]

DESCRIPTOR is the read end of a pipe whose write end gpu_check keeps: end of file means that gpu_check has gone, by SIGKILL,
too. As a subreaper this process is the parent of every orphan below it, so that no session of its own lets one escape.
If this process is killed, its program dies by PR_SET_PDEATHSIG. Ends as the program did, by the same signal if by one.
"""
import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None)


def die_with_the_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def descendants():
    """Every process below this one; all of them, orphans too, because it is a subreaper."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:  # it ended
                continue
            children.setdefault(parent, []).append(int(name))
    found, open_ends = [], [os.getpid()]
    while open_ends:
        below = children.get(open_ends.pop(), [])
        found += below
        open_ends += below
    return found


def end_descendants(limit_s=5):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        left = descendants()
        if not left:
            return
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):  # a setuid program's, as sudo's, cannot be ended: the others can
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.005)


def main(descriptor, command):
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    try:
        program = subprocess.Popen(command, preexec_fn=die_with_the_parent)
    except OSError as error:
        print(error, flush=True)
        return 127
    while program.poll() is None:
        readable = select.select([descriptor, wake], [], [])[0]
        if descriptor in readable:
            break
        os.read(wake, 4096)
        for orphan in set(descendants()) - {program.pid}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(orphan, os.WNOHANG)
    end_descendants()
    return program.poll()


if __name__ == "__main__":
    code = main(int(sys.argv[1]), sys.argv[2:])
    if code is not None and code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    sys.exit(code)
