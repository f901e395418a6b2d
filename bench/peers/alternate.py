"""Long-running programs that train window by window, timed in turn so that both sides see the same machine.

A program reads lines: for `window K` it runs K training steps and answers with one JSON line
{"seconds": time of the K steps, "losses": [K numbers]} (of other fields the last values are kept); `quit` ends it.
"""
import collections
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time


class TimeOver(SystemExit):
    """A program did not answer in its time, and was killed; it may have been sound."""


class Asked:
    """A program that answers a line with a line of JSON. `limit_s`: of one answer."""

    def __init__(self, name, command, env=None, limit_s=900):
        self.name, self.command, self.limit_s, self.late = name, command, limit_s, False
        self.stderr = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, env={**os.environ, **(env or {})}, text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr)

    def _is_late(self):
        self.late = True
        self.process.kill()

    def ask(self, command, what="an answer"):
        watchdog = threading.Timer(self.limit_s, self._is_late)
        watchdog.start()
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line.startswith("{"):  # anything else is chatter
                    return json.loads(line)
            raise BrokenPipeError
        except (BrokenPipeError, ValueError, OSError) as error:
            self.process.kill()
            self.process.wait()
            if self.late:
                raise TimeOver(f"{self.name}: the time was over: {what} was not done after {self.limit_s:.1f} s, and it was killed") from None
            self.stderr.seek(0)
            last = collections.deque(self.stderr, 15)
            raise SystemExit(f"{self.name} ended or answered badly ({error!r}):\n  {self.command}\n"
                             + "".join(last)) from None
        finally:
            watchdog.cancel()


class Runner(Asked):
    """A program that implements the protocol; its clock starts before the process does."""

    def __init__(self, name, command, env=None, limit_s=900):
        self.losses, self.about, self.warm_step_s = [], {}, 0
        self.forget()
        begin = time.perf_counter()
        super().__init__(name, command, env, limit_s)
        self._window(1)
        self.first_step_s = time.perf_counter() - begin

    def forget(self):
        """The windows so far; not the losses."""
        self.ms, self.cpu_ms, self.spans = [], [], []

    def _window(self, steps):
        answer = self.ask(f"window {steps}", f"a window of {steps} steps" if self.losses else "its first step")
        if len(answer["losses"]) != steps:
            raise SystemExit(f"{self.name}: {len(answer['losses'])} losses for a window of {steps} steps")
        self.losses += answer["losses"]
        self.about.update({k: v for k, v in answer.items() if k not in ("seconds", "losses")})
        return answer

    def warm_up(self, steps):
        self.warm_step_s = self._window(steps)["seconds"] / steps

    def steps_in(self, seconds):
        """As many steps as take about so long, by the warm-up's last."""
        return max(1, round(seconds / max(self.warm_step_s, 1e-6)))

    def window(self, steps):
        before, begin = self._cpu_s(), time.time()
        seconds = self._window(steps)["seconds"]
        self.spans.append((begin, time.time()))
        self.ms.append(1000 * seconds / steps)
        self.cpu_ms.append(1000 * (self._cpu_s() - before) / steps)

    def _cpu_s(self):
        # Linux numbers the clock of another process's CPU time so (clock_getcpuclockid(3)).
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def kill(self):
        self.process.kill()
        self.process.communicate()
        self.stderr.close()

    def quit(self):
        """Ends the program; gives what was seen of it."""
        found = self.report()
        end(self.process)
        self.stderr.close()
        return found

    def report(self):
        """What was seen of it since forget()."""
        with open(f"/proc/{self.process.pid}/status") as status:
            peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        return {"name": self.name, "command": self.command, "about": self.about,
                "step_ms": spread(self.ms), "step_cpu_ms": spread(self.cpu_ms),
                "cores_busy": round(sum(self.cpu_ms) / sum(self.ms), 2),
                "windows_ms": [round(ms, 3) for ms in self.ms], "peak_rss_mb": round(peak / 1024, 1),
                "first_step_s": round(self.first_step_s, 2), "first_losses": self.losses[:10],
                "last_loss": self.losses[-1]}


def end(process):
    """Asks a program to end, and kills it if it does not."""
    process.stdin.write("quit\n")
    process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()


def spread(values):
    low, middle, high = (statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1
                         else values * 3)
    return {"median": round(middle, 4), "p25": round(low, 4), "p75": round(high, 4),
            "min": round(min(values), 4), "n": len(values)}


def undisturbed(report, threads):
    """Whether the program had its cores: load from other programs shows as threads waiting to run."""
    return report["cores_busy"] > 0.85 * threads


def alternate(runners, windows, steps, pause_s=0.1, seconds=0):
    """One window of each in turn, `windows` times: of `steps` steps, or of those that take each about `seconds`.
    The pause lets the last one's threads go to sleep."""
    for _ in range(windows):
        for runner in runners:
            time.sleep(pause_s)
            runner.window(steps or runner.steps_in(seconds))


def first_difference(a, b, tolerance):
    """Relative, of the first losses: those of the same weights and the same batch, before any update. Times of programs
    that differ there cannot be compared."""
    x, y = a.losses[0], b.losses[0]
    if not abs(x - y) <= tolerance * abs(x):
        raise SystemExit(f"the first losses differ: {a.name} {x:.8g}, {b.name} {y:.8g}, relative {abs(x - y) / abs(x):.1e}, "
                         f"allowed {tolerance:.0e}; no ratio is reported")
    return abs(x - y) / abs(x)


def spread_of_losses(runs):
    """For each step the largest relative distance of two of these lists of losses: what rounding makes of equal programs."""
    return [(max(losses) - min(losses)) / abs(min(losses)) for losses in zip(*runs)]


def check_losses(ours, others, tolerance, count=10):
    """Later losses part by rounding: Adam divides by a gradient's own size, and norms over few numbers amplify. `ours` may
    be as far from its nearest as three times the widest that the `others`, equal programs, are apart so far, or
    `tolerance` relative; with a single other there is no such scale, and only a loss that is not finite is refused.
    Returns the largest relative distance."""
    runs, widest, largest = [other.losses[:count] for other in others], 0, 0
    spread = spread_of_losses(runs)
    for step, (loss, *theirs) in enumerate(zip(ours.losses[:count], *runs)):
        nearest = min(theirs, key=lambda other: abs(other - loss))
        distance = abs(loss - nearest) / abs(nearest)
        widest, largest = max(widest, spread[step]), max(largest, distance)
        allowed = max(tolerance, 3 * widest) if len(runs) > 1 else float("inf")
        if not distance <= allowed or not abs(loss) < float("inf"):
            raise SystemExit(f"losses part at step {step}: {ours.name} {loss:.8g}, nearest {nearest:.8g}, relative {distance:.1e}; "
                             f"{len(runs)} equal programs are {widest:.1e} apart, allowed {allowed:.0e}; no ratio is reported")
    return largest
