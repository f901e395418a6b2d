"""A loader in a process of its own, asked by lines; and what a process and its children hold in memory."""
import collections
import json
import subprocess
import tempfile
import threading

import alternate


class LoaderProcess:
    """A program under the line protocol; loader_child.py lists the commands."""

    def __init__(self, name, command, limit_s=600):
        self.name, self.command, self.limit_s, self.batches = name, command, limit_s, 1
        self.stderr = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.stderr)
        self.pid = self.process.pid

    def ask(self, command):
        watchdog = threading.Timer(self.limit_s, self.process.kill)
        watchdog.start()
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line.startswith("{"):  # anything else is chatter
                    return json.loads(line)
            raise BrokenPipeError
        except (BrokenPipeError, ValueError) as error:
            self.process.kill()
            self.process.wait()
            self.stderr.seek(0)
            last = "".join(collections.deque(self.stderr, 15))
            raise SystemExit(f"{self.name} ended or answered badly ({error!r}):\n  {self.command}\n{last}") from None
        finally:
            watchdog.cancel()

    def peak_memory(self, command):
        """The most that the tree was seen to hold, in bytes, while it worked on a command."""
        seen = [0]
        done = threading.Event()

        def watch():
            while not done.wait(0.05):
                seen.append(tree_memory(self.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            self.ask(command)
        finally:
            done.set()
            watcher.join()
        return max(seen)

    def quit(self):
        alternate.end(self.process)
        self.stderr.close()


def tree_memory(pid):
    """Bytes of a process and all below it; what they share is counted once (PSS)."""
    total, waiting = 0, [pid]
    while waiting:
        process = waiting.pop()
        try:
            with open(f"/proc/{process}/smaps_rollup") as rollup:
                total += next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) << 10
            with open(f"/proc/{process}/task/{process}/children") as children:
                waiting += map(int, children.read().split())
        except (OSError, StopIteration):
            continue  # it has ended meanwhile
    return total
