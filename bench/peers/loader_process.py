"""A loader in a process of its own, asked by lines; and what a process and its children hold in memory."""
import threading

import alternate


class LoaderProcess(alternate.Asked):
    """A program under the line protocol; loader_child.py lists the commands."""

    def __init__(self, name, command):
        super().__init__(name, command, limit_s=600)
        self.batches, self.pid = 1, self.process.pid

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
