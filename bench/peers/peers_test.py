#!/usr/bin/env python3
"""The peers' own logic, without PyTorch and without a GPU: arguments, tolerances, which path a setting takes."""
import contextlib
import io
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import alternate  # noqa: E402
import data_parallel  # noqa: E402
import gpu  # noqa: E402
import pytorch_child  # noqa: E402
import pytorch_step  # noqa: E402
import step_switches  # noqa: E402


class Arguments(unittest.TestCase):
    def refusal(self, *arguments):
        words = io.StringIO()
        with contextlib.redirect_stderr(words), self.assertRaises(SystemExit) as ended:
            pytorch_step.parse(arguments)
        self.assertEqual(ended.exception.code, 2)
        return words.getvalue()

    def test_the_device_decides_the_rest(self):
        cpu, cuda = pytorch_step.parse([]), pytorch_step.parse(["--device", "cuda:1", "--precision", "fp16"])
        self.assertEqual((cpu.steps, cuda.steps), (10, None))
        self.assertEqual(cpu.settings.split(","), pytorch_step.CPU_SETTINGS)
        self.assertEqual([s.split("-")[0] for s in cuda.settings.split(",")], ["eager", "compile", "tune", "graph"])
        self.assertEqual(cpu.tolerance, 1e-4)
        self.assertEqual(pytorch_step.parse(["--tolerance", "0.05", "--steps", "7"]).tolerance, 0.05)
        self.assertGreater(pytorch_step.parse(["--precision", "bf16"]).tolerance, 0.05)

    def test_every_default_setting_is_one(self):
        for device, settings in (("cpu", pytorch_step.CPU_SETTINGS), ("cuda", pytorch_step.CUDA_SETTINGS)):
            for setting in settings:
                pytorch_step.parse(["--device", device, "--settings", setting])

    def test_models_of_text(self):
        cpu = pytorch_step.parse(["--model", "gpt2-nano", "--batch", "12"])
        self.assertEqual((cpu.sequence, cpu.image), (64, 0))
        self.assertEqual(cpu.settings.split(","), pytorch_step.TEXT_CPU_SETTINGS)
        cuda = pytorch_step.parse(["--model", "gpt2", "--device", "cuda", "--model-option", "layers=6", "context=256"])
        self.assertEqual((cuda.sequence, cuda.model_option), (256, ["layers=6", "context=256"]))
        self.assertEqual(cuda.settings.split(",")[-1], "graph-rows-fused-glibc")
        self.assertEqual(pytorch_step.parse(["--model", "gpt2", "--sequence", "128"]).sequence, 128)
        self.assertIn("mlp is no model of text", self.refusal("--model", "mlp", "--sequence", "64"))
        for model, setting in (("gpt2", "eager-nchw-fused-keep"), ("mlp", "eager-rows-fused-keep")):
            self.assertIn("theirs alone", self.refusal("--model", model, "--settings", setting))

    def test_refusals(self):
        self.assertIn("neither cpu nor cuda", self.refusal("--device", "tpu"))
        self.assertIn("neither cpu nor cuda", self.refusal("--device", "cuda:x"))
        self.assertIn("tf32", self.refusal("--precision", "tf32"))
        self.assertIn("fp8", self.refusal("--precision", "fp8"))
        self.assertIn("needs a GPU", self.refusal("--settings", "graph-nhwc-fused-keep"))
        self.assertIn("needs a GPU and a fused", self.refusal("--device", "cuda", "--settings", "graph-nhwc-plain-keep"))
        for setting in ("eager", "eager-nhwc-fused", "eager-nhwc-fused-keep-x", "fast-nhwc-fused-keep"):
            self.assertIn(f"'{setting}' is not", self.refusal("--settings", setting))
        self.assertIn("no folder no/such", self.refusal("--out", "no/such/pair.json"))
        for words in (["0.5"], ["0"], ["nan"], ["0.1", "--precision", "bf16"]):
            self.assertIn("--tolerance", self.refusal("--tolerance", *words))
        self.assertIn("no program", self.refusal("--peer-cmd", "./no_such --threads 2"))

    def test_tolerances_follow_the_precision(self):
        found = [pytorch_step.tolerance(precision) for precision in ("fp32", "tf32", "fp16", "bf16")]
        self.assertEqual(found[0], 1e-4)
        self.assertAlmostEqual(found[1], 4 * 10**0.5 / 1024)
        self.assertEqual(found[1], found[2])
        self.assertAlmostEqual(found[3], 8 * found[2])


class Losses(unittest.TestCase):
    def side(self, *losses, name="a"):
        return types.SimpleNamespace(name=name, losses=list(losses))

    def test_the_first_is_compared_tightly(self):
        self.assertAlmostEqual(alternate.first_difference(self.side(2.0, 1.0), self.side(2.002, 9.0), 1e-2), 1e-3)
        for wrong in (2.1, float("nan"), float("inf")):
            with self.assertRaisesRegex(SystemExit, "first losses differ"):
                alternate.first_difference(self.side(2.0), self.side(wrong), 1e-2)

    def test_later_ones_by_how_far_equal_programs_are_apart(self):
        torch = [self.side(2.0, 1.8, 1.5), self.side(2.0, 1.9, 1.4)]
        self.assertAlmostEqual(alternate.check_losses(self.side(2.0, 1.75, 1.2), torch, 1e-2), 0.2 / 1.4)
        for wrong in (1.0, float("nan"), float("inf")):
            with self.assertRaisesRegex(SystemExit, "losses part at step 2"):
                alternate.check_losses(self.side(2.0, 1.8, wrong), torch, 1e-2)
        with self.assertRaisesRegex(SystemExit, "losses part at step 1"):
            alternate.check_losses(self.side(2.0, 1.85), [self.side(2.0, 1.8)] * 2, 1e-2)

    def test_a_single_other_is_no_scale(self):
        self.assertAlmostEqual(alternate.check_losses(self.side(2.0, 1.2), [self.side(2.0, 1.5)], 1e-2), 0.2)
        with self.assertRaises(SystemExit):
            alternate.check_losses(self.side(2.0, float("nan")), [self.side(2.0, 1.5)], 1e-2)


# Speaks the protocol; a step takes MS milliseconds, or the first one for ever.
PEER = """
import json, sys, time
if "--hang" in sys.argv: time.sleep(60)
ms = 2 if "--slow" in sys.argv else 1
if "--broken" in sys.argv: sys.exit("no such switch")
for line in sys.stdin:
    if line.split()[0] == "quit": break
    count = int(line.split()[1])
    begin = time.perf_counter()
    time.sleep(count * ms / 1000)
    print(json.dumps({"seconds": time.perf_counter() - begin, "losses": [2.0] * count}), flush=True)
"""


class Times(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.peer, self.out = pathlib.Path(folder.name) / "peer.py", pathlib.Path(folder.name) / "out.json"
        self.peer.write_text(PEER)
        self.command = [sys.executable, "-IS", str(self.peer)]

    def test_windows_by_time(self):
        runner = alternate.Runner("peer", self.command)
        runner.warm_up(10)
        alternate.alternate([runner], 2, None, pause_s=0, seconds=0.04)
        report = runner.quit()
        self.assertEqual(report["step_ms"]["n"], 2)
        self.assertGreater(len(runner.losses) - 11, 30)
        self.assertLess(len(runner.losses) - 11, 90)

    def test_switches(self):
        words = ["--peer-cmd", " ".join(self.command), "--seconds", "0.3", "--window", "0.02", "--out", str(self.out)]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            with mock.patch.object(alternate, "Runner", wraps=alternate.Runner) as started:
                step_switches.main([*words, "--switch=--slow", "--switch=--broken", "--switch=--deterministic"])
        self.assertEqual([call.args[0] for call in started.call_args_list],
                         ["without", "--slow", "--broken", "--deterministic"], "one side without for all switches")
        result = json.loads(self.out.read_text())
        self.assertEqual([pair["switch"] for pair in result["pairs"]], ["--slow", "--deterministic"])
        self.assertGreater(result["pairs"][0]["ratio"]["median"], 1.5)
        self.assertIn("no such switch", result["failed"]["--broken"])
        self.assertIn("--slow: ", printed.getvalue())

    def test_a_side_that_died_is_started_again(self):
        words = ["--peer-cmd", " ".join(self.command), "--seconds", "0.2", "--window", "0.02", "--out", str(self.out)]
        report = alternate.Runner.report

        def last_report(side):
            found = report(side)
            if side.name == "without":
                side.process.kill()
                side.process.wait()
            return found

        with contextlib.redirect_stdout(io.StringIO()), mock.patch.object(alternate.Runner, "report", last_report), \
                mock.patch.object(alternate, "Runner", wraps=alternate.Runner) as started:
            step_switches.main([*words, "--switch=--slow", "--switch=--deterministic"])
        self.assertEqual([call.args[0] for call in started.call_args_list], ["without", "--slow", "without", "--deterministic"])
        self.assertEqual(len(json.loads(self.out.read_text())["pairs"]), 2)

    def test_what_is_late_is_said_to_be(self):
        with self.assertRaisesRegex(alternate.TimeOver, r"peer: the time was over: its first step was not done after 0\.3 s, and "
                                                        r"it was killed$"):
            alternate.Runner("peer", [*self.command, "--hang"], limit_s=0.3)
        with self.assertRaisesRegex(SystemExit, r"(?s)peer ended or answered badly.*no such switch") as crash:
            alternate.Runner("peer", [*self.command, "--broken"], limit_s=20)
        self.assertNotIsInstance(crash.exception, alternate.TimeOver)
        runner = alternate.Runner("peer", self.command)
        runner.limit_s = 0.2
        with self.assertRaisesRegex(alternate.TimeOver, "a window of 5000 steps was not done after 0.2 s"):
            runner.warm_up(5000)

    def limited(self, *words, limit=8.0):
        args = pytorch_step.parse(["--limit", str(limit), "--window-seconds", "0.02", *words])
        args.steps = None
        return args

    def test_a_limit_leaves_out_what_is_late(self):
        args, clocks = self.limited(), types.SimpleNamespace(windows=[])
        with self.assertRaisesRegex(pytorch_step.TooLate, "late: the time was over: it was not started, as 3 s were left"):
            pytorch_step.start(args, "late", self.command, {}, 3)
        with mock.patch.object(pytorch_step, "LEAST_S", 0.1), \
                self.assertRaisesRegex(pytorch_step.TooLate, r"late: the time was over: its first step was not done after 0\.5 s, and it "
                                                             r"was killed \(its share of --limit 8\)"):
            pytorch_step.start(args, "late", [*self.command, "--hang"], {}, 0.5)
        runner = pytorch_step.start(args, "peer", self.command, {})
        args.end = time.monotonic()
        pytorch_step.alternate_windows(args, [runner], 20, clocks)
        self.assertEqual((runner.quit()["step_ms"]["n"], clocks.windows), (1, runner.spans))

    def shares(self, args, seconds):
        """What each setting may take, if it takes so many seconds in turn; the runners, and what is printed."""
        now, given, takes = [args.end - args.limit], {}, iter(seconds)

        def start_torch(_, setting, cache, allowed_s):
            given[setting.split("-")[0]], took = round(allowed_s), next(takes)
            now[0] += max(0, min(took, allowed_s))
            if took > allowed_s:
                raise pytorch_step.TooLate(f"{setting}: the time was over")
            return types.SimpleNamespace(name=setting, first_step_s=took)

        printed = io.StringIO()
        with contextlib.redirect_stderr(printed), mock.patch.object(pytorch_step, "start_torch", start_torch), \
                mock.patch.object(pytorch_step, "time", types.SimpleNamespace(monotonic=lambda: now[0])):
            try:
                runners, left_out = pytorch_step.start_settings(args, "cache")
            except SystemExit as error:
                return given, str(error), printed.getvalue()
        self.assertEqual({*left_out, *(runner.name for runner in runners)}, set(args.settings.split(",")))
        self.assertEqual(list(left_out.values()), [f"{setting}: the time was over" for setting in left_out])
        return given, [runner.name.split("-")[0] for runner in runners], printed.getvalue()

    def test_a_limit_is_shared(self):
        """A hundred seconds: 30 for the pair, 1 for windows; the first setting may take the other 69."""
        words = ["--device", "cuda", "--survey-windows", "5", "--peer-cmd", sys.executable, "--settings",
                 "graph-nhwc-fused-glibc,eager-nhwc-fused-glibc,compile-nhwc-fused-glibc"]
        args = self.limited(*words, limit=100)
        given, runners, _ = self.shares(args, [29, 8, 40])
        self.assertEqual((given, runners), ({"graph": 69, "eager": 20, "compile": 32}, ["graph", "eager"]))
        given, runners, printed = self.shares(args, [40, 20, 10])
        self.assertEqual((given, runners), ({"graph": 69, "eager": 15, "compile": 15}, ["graph", "compile"]))
        self.assertIn("left out: eager-nhwc-fused-glibc: the time was over", printed)
        given, error, _ = self.shares(args, [100, 20, 10])
        self.assertEqual(given, {"graph": 69, "eager": 0, "compile": 0})
        self.assertRegex(error, r"(?s)no setting of PyTorch was ready:.*graph-nhwc.*eager-nhwc.*compile-nhwc")
        without_a_peer = self.limited(*words[:4], *words[6:], limit=100)
        self.assertEqual(self.shares(without_a_peer, [29, 8, 10])[0]["graph"], 99)

    def test_the_best_setting_continues_on_a_gpu(self):
        """A start takes 10 to 30 s there; on a CPU, where it does not, a new process makes the pair."""
        for device, layout, again in (("cuda", "glibc", []), ("cpu", "keep", ["eager-nhwc-fused-keep"])):
            settings = [f"{mode}-nhwc-fused-{layout}" for mode in ("compile", "eager")]
            args = self.limited("--device", device, "--settings", ",".join(settings), "--peer-cmd", shlex.join(self.command), limit=30)
            started, clocks = [], [types.SimpleNamespace(windows=[]) for _ in range(2)]

            def start_torch(args, setting, cache, allowed_s=30):
                started.append(setting)
                slow = ["--slow"] * setting.startswith("compile")
                return pytorch_step.start(args, setting, self.command + slow, {}, allowed_s)

            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), \
                    mock.patch.object(pytorch_step, "start_torch", start_torch):
                reports, best, left_out = pytorch_step.survey(args, "cache", clocks[0])
                args.windows = 3
                pair = pytorch_step.against(args, best, "cache", reports, clocks[1])
            self.assertEqual((started, left_out), ([*settings, *again], {}))
            result = {"date": "", "commit": "", "machine": "", "pair": pair, "left_out": {"tune-a": "late", "graph-b": "late"}}
            self.assertIn("; not timed: tune-a, graph-b", pytorch_step.row(args, result))
            self.assertNotIn("not timed", pytorch_step.row(args, {**result, "left_out": {}}))
            self.assertEqual([report["name"] for report in reports], settings[::-1])
            self.assertEqual((pair["torch"]["name"], pair["torch"]["step_ms"]["n"], pair["peer"]["step_ms"]["n"]), (settings[1], 3, 3))
            self.assertEqual([len(each.windows) for each in clocks], [2 * args.survey_windows, 6])
            self.assertTrue(all(begin < end for each in clocks for begin, end in each.windows))

    def test_every_start_compiles(self):
        """The pair's start on a CPU, too, finds no cache of the survey's."""
        words = ["pytorch_step.py", "--settings", "compile-nhwc-fused-keep", "--survey-windows", "1", "--windows", "1", "--steps", "1",
                 "--peer-cmd", shlex.join(self.command), "--out", str(self.out)]
        caches = []

        def start_torch(args, setting, cache, allowed_s=30):
            caches.append(os.listdir(cache))
            (pathlib.Path(cache) / "compiled").touch()
            return pytorch_step.start(args, setting, self.command, {}, allowed_s)

        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), \
                mock.patch.object(pytorch_step, "start_torch", start_torch), mock.patch.object(sys, "argv", words):
            pytorch_step.main()
        self.assertEqual(caches, [[], []])
        self.assertIn("pair", json.loads(self.out.read_text()))

    def test_a_run_is_no_scale_for_itself(self):
        """The setting of the pair is in the survey, too: alone, it says nothing about how far equal programs part."""
        parted = pathlib.Path(self.peer.parent) / "parted.py"
        parted.write_text(PEER.replace("[2.0] * count", "[2.0 if not i and begin - start < 1 else 1.5 for i in range(count)]")
                          .replace("ms = 2", "start = time.perf_counter()\nms = 2"))
        for device in ("cuda", "cpu"):
            args = self.limited("--device", device, "--settings", "eager-nhwc-fused-glibc", "--peer-cmd", sys.executable, limit=30)
            best = pytorch_step.start(args, "eager-nhwc-fused-glibc", self.command, {})
            best.window(1)
            reports = [best.report()]
            args.peer_cmd, args.windows = shlex.join([sys.executable, "-IS", str(parted)]), 1
            with mock.patch.object(pytorch_step, "start_torch", lambda args, setting, cache: pytorch_step.start(args, setting, self.command, {})):
                pair = pytorch_step.against(args, best, "cache", reports, types.SimpleNamespace(windows=[]))
            self.assertEqual((pair["losses_of_settings_apart"], pair["largest_loss_difference"]), (0, 0.25), device)


class Gpu(unittest.TestCase):
    def line(self, second, rest):
        return time.strftime("%Y/%m/%d %H:%M:", time.localtime(0)) + f"{second:06.3f}, {rest}\n"

    def test_summary(self):
        lines = [self.line(i, rest) for i, rest in enumerate(["1980, 600.5", "1975, 610.5", "[N/A], 5", "19"])]
        steady = gpu.summary([*lines, "1970/", "never, 1200, 400"])
        self.assertEqual(steady["sm_mhz"], {"min": 1975, "median": 1977.5, "max": 1980})
        self.assertEqual((steady["samples"], steady["power_w"], steady["steady"]), (2, 605.5, True))
        self.assertFalse(gpu.summary([self.line(i, "1980, 600") for i in range(8)] + [self.line(9, "1200, 400")] * 2)["steady"])
        self.assertIsNone(gpu.summary([]))

    def test_clocks_are_those_of_the_windows(self):
        """While programs start, the GPU is idle."""
        idle = [self.line(i / 5, "345, 80") for i in range(100)]
        busy = [self.line(20 + i / 5, "1980, 600") for i in range(50)]
        found = gpu.summary(idle + busy, [(20.5, 22.1), (23.1, 25)])
        self.assertEqual(found["sm_mhz"], {"min": 1980, "median": 1980, "max": 1980})
        self.assertTrue(found["steady"])
        self.assertEqual(found["samples"] + found["outside"], 150)
        self.assertFalse(gpu.summary(idle + busy, [(19, 22)])["steady"])
        self.assertEqual(gpu.summary(idle, [(50, 51)]), {"samples": 0, "outside": 100, "steady": None})
        said = [pytorch_step.disturbance(types.SimpleNamespace(device="cuda"), {"pair_clocks": clocks})
                for clocks in (found, None, gpu.summary(idle, [(50, 51)]), gpu.summary(idle + busy, [(19, 22)]))]
        self.assertEqual(said, ["", "", "; no clock was read in its windows", "; THE CLOCK DROPPED, measure again"])

    def test_none(self):
        self.assertIsNone(gpu.describe("cpu"))
        with mock.patch("shutil.which", return_value=None):
            self.assertIsNone(gpu.describe("cuda"))
            with gpu.Sampler("cuda") as sampler:
                pass
        self.assertIsNone(sampler.found)

    def test_number_is_of_all_gpus(self):
        for visible, numbers in ((None, ["0", "1"]), ("2, 5", ["2", "5"]), ("GPU-8a-1,0", ["GPU-8a-1", "0"]), ("3", ["3", "1"])):
            with mock.patch.dict("os.environ", {"CUDA_VISIBLE_DEVICES": visible or ""}):
                if visible is None:
                    del os.environ["CUDA_VISIBLE_DEVICES"]
                self.assertEqual([gpu.number_of(device) for device in ("cuda", "cuda:1")], numbers)


def children_of(process):
    """The ids of its threads' children."""
    return [int(child) for path in pathlib.Path(f"/proc/{process.pid}/task").glob("*/children") for child in path.read_text().split()]


class Killed(unittest.TestCase):
    """What a program that is killed has started ends with it."""

    def assert_nothing_left(self, code, count, **env):
        program = subprocess.Popen([sys.executable, "-B", "-c", "import sys, time\nsys.path[:0] = sys.argv[1:]\n" + code
                                    + "    print(flush=True)\n    time.sleep(60)", str(HERE), str(HERE.parent)],
                                   env={**os.environ, **env}, stdout=subprocess.PIPE)
        with program:
            program.stdout.readline()
            left = children_of(program)
            program.kill()
        self.assertEqual(len(left), count)
        end = time.monotonic() + 20
        while left and time.monotonic() < end:
            time.sleep(0.01)
            left = [child for child in left if self.is_alive(child)]
        for child in left:
            os.kill(child, signal.SIGKILL)
        self.assertEqual(left, [])

    @staticmethod
    def is_alive(process):
        try:
            return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def test_other_programs_of_a_plant(self):
        self.assert_nothing_left("import planted_bottlenecks\nwith planted_bottlenecks.busy(2):\n", 2)
        self.assert_nothing_left("import planted_bottlenecks\nwith planted_bottlenecks.neighbour():\n", 1)

    def test_nvidia_smi(self):
        with tempfile.TemporaryDirectory() as folder:
            smi = pathlib.Path(folder) / "nvidia-smi"
            smi.write_text('#!/bin/sh\ncase "$*" in *-lms*) exec sleep 60;; esac\necho A, 1, 2, 3, 4, 5\n')
            smi.chmod(0o755)
            self.assert_nothing_left('import gpu\nwith gpu.Sampler("cuda"):\n', 1, PATH=f"{folder}:{os.environ['PATH']}")


class Loaders(unittest.TestCase):
    def test_a_set_that_was_cut_is_made_again(self):
        try:
            import loader_data
        except ImportError as error:
            self.skipTest(str(error))
        with tempfile.TemporaryDirectory() as folder:
            half = pathlib.Path(folder) / "photos.new" / "train"
            half.mkdir(parents=True)
            sets = loader_data.Sets.__new__(loader_data.Sets)
            sets.folder = folder
            self.assertEqual(sets._once("photos", lambda out: os.makedirs(f"{out}/train")), f"{folder}/photos")
            self.assertEqual(os.listdir(folder), ["photos"])

    def test_memory_is_of_equal_work(self):
        try:
            import loader_cases
        except ImportError as error:
            self.skipTest(str(error))
        sets, options = types.SimpleNamespace(many="many", many_packed="packed"), types.SimpleNamespace(bin="bin")
        for _, ours, theirs in loader_cases.memory(sets, options):
            def value(side, option):
                return side.command[side.command.index(option) + 1]
            for option in ("--batch", "--workers"):
                self.assertEqual(value(ours, option), value(theirs, option))
            self.assertEqual((value(ours, "--transforms"), value(ours, "--normalize")), (loader_cases.TRAINING, "cpu"))
            self.assertEqual(value(theirs, "--transforms"), "optimised")

    def test_a_survey_is_of_the_files_too(self):
        try:
            import loader_cases
            import loader_peers
        except ImportError as error:
            self.skipTest(str(error))
        png, other, jpeg = (loader_cases.Case(name, None, loader_cases.settings("spdl", name[:4], 32, "none"), None)
                            for name in ("PNG", "PNG", "JPEG"))
        self.assertEqual(png.peers[0].name, jpeg.peers[0].name)
        self.assertEqual(loader_peers.surveyed(png), loader_peers.surveyed(other))
        self.assertNotEqual(loader_peers.surveyed(png), loader_peers.surveyed(jpeg))


class Ranks(unittest.TestCase):
    def test_pytorch_keeps_its_memory(self):
        """Its ranks alone: ours run as users start them."""
        seen = []

        class Rank:
            exitcode = None

            def __init__(self, **_):
                pass

            def start(self):
                seen.append({name: os.environ.get(name) for name in pytorch_step.KEEP})

            def join(self, _):
                pass

            def is_alive(self):
                return False

        queue = types.SimpleNamespace(get=lambda timeout: (10, 20))
        processes = types.SimpleNamespace(get_context=lambda _: types.SimpleNamespace(Queue=lambda: queue, Process=Rank))
        torch = types.SimpleNamespace(multiprocessing=processes)
        with mock.patch.dict(sys.modules, {"torch": torch, "torch.multiprocessing": processes}):
            self.assertEqual(data_parallel.pytorch(None, 0), (10, 20))
        self.assertEqual(seen, [pytorch_step.KEEP] * 2)
        self.assertFalse(set(pytorch_step.KEEP) & set(os.environ))


class FakeCuda:
    """Writes down what a captured step asks of torch.cuda."""

    def __init__(self):
        self.log, self.graphs = [], 0

    def graph_pool_handle(self):
        return "pool"

    def CUDAGraph(self):
        self.graphs += 1
        number = self.graphs
        return types.SimpleNamespace(number=number, replay=lambda: self.log.append(f"replay {number}"))

    @contextlib.contextmanager
    def graph(self, graph, pool):
        assert pool == "pool"
        self.log.append(f"capture {graph.number}")
        yield
        self.log.append("captured")

    def Stream(self):
        return types.SimpleNamespace(wait_stream=lambda other: self.log.append("side waits"))

    def current_stream(self):
        return types.SimpleNamespace(wait_stream=lambda other: self.log.append("main waits"))

    @contextlib.contextmanager
    def stream(self, _):
        self.log.append("side")
        yield


class Capture(unittest.TestCase):
    def test_every_step_trains_once(self):
        """Eager steps train; a capture trains nothing, its replay does: no step is run twice or left out."""
        cuda = FakeCuda()

        def step(x, _):
            cuda.log.append(f"step {x}")
            return types.SimpleNamespace(clone=lambda: f"loss of {x}")

        captured = pytorch_child.Captured(cuda, step)
        losses = [captured(s % 2, (s % 2, None)) for s in range(6)]
        eager = ["side waits", "side", None, "main waits"]
        expected = []
        for s in range(3):
            expected += [word or f"step {s % 2}" for word in eager]
        expected += ["capture 1", "step 1", "captured", "replay 1", "capture 2", "step 0", "captured", "replay 2",
                     "replay 1"]
        self.assertEqual(cuda.log, expected)
        self.assertEqual(losses[3:], ["loss of 1", "loss of 0", "loss of 1"])


class Paths(unittest.TestCase):
    def made(self, setting, precision, device, sequence=0):
        torch, model = mock.MagicMock(name="torch"), mock.MagicMock(name="model")
        model.parameters.return_value = [types.SimpleNamespace(dim=lambda rank=rank: rank) for rank in (2, 1, 2)]
        args = types.SimpleNamespace(setting=setting, precision=precision, device=device, threads=2, sequence=sequence)
        step = pytorch_child.Step(torch, args, model, "memory")
        pytorch_child.set_up(torch, args)
        loss = step("x", "label")
        return torch, step, loss

    def test_autocast_and_the_scaler(self):
        for precision, dtype, scaled in (("fp32", None, False), ("tf32", None, False), ("bf16", "bfloat16", False),
                                         ("fp16", "float16", True)):
            torch, step, _ = self.made("eager-nhwc-fused-glibc", precision, "cuda")
            if dtype:
                torch.autocast.assert_called_once_with("cuda", dtype=getattr(torch, dtype))
            else:
                torch.autocast.assert_not_called()
            self.assertEqual(torch.amp.GradScaler.called, scaled)
            if scaled:
                step.scaler.step.assert_called_once_with(step.optimizer)
                step.scaler.update.assert_called_once_with()
            else:
                step.optimizer.step.assert_called_once_with()
            self.assertEqual(torch.backends.cudnn.allow_tf32, precision == "tf32")
            torch.set_float32_matmul_precision.assert_called_once_with("high" if precision == "tf32" else "highest")
            torch.compile.assert_not_called()

    def test_modes(self):
        for mode, compiled in (("eager", None), ("compile", "default"), ("tune", "max-autotune"), ("graph", None)):
            torch, _, loss = self.made(f"{mode}-nhwc-fused-glibc", "fp32", "cuda:1")
            self.assertEqual(torch.compile.called, compiled is not None)
            if compiled:
                self.assertEqual(torch.compile.call_args.kwargs["mode"], compiled)
            adam = torch.optim.Adam.call_args.kwargs
            self.assertEqual((adam["fused"], adam["capturable"]), (True, mode == "graph"))
            # A loss in a graph's memory must be copied out before the next step is begun.
            self.assertEqual(torch.compiler.cudagraph_mark_step_begin.called, mode == "tune")
            self.assertEqual("clone" in repr(loss), mode == "tune")

    def test_text(self):
        """AdamW decays matrices alone, and gradients are clipped, unscaled, before its step."""
        for precision in ("fp32", "fp16"):
            torch, step, _ = self.made("graph-rows-fused-glibc", precision, "cuda", sequence=64)
            torch.optim.Adam.assert_not_called()
            groups, options = torch.optim.AdamW.call_args.args[0], torch.optim.AdamW.call_args.kwargs
            self.assertEqual([(len(group["params"]), group["weight_decay"]) for group in groups], [(2, 0.1), (1, 0.0)])
            self.assertEqual((options["betas"], options["fused"], options["capturable"]), ((0.9, 0.95), True, True))
            clip = torch.nn.utils.clip_grad_norm_
            self.assertEqual([len(call.args[0]) for call in clip.call_args_list], [3])
            calls = [call[0] for call in torch.mock_calls]
            self.assertEqual(precision == "fp16", any(call.endswith("unscale_") for call in calls))
            if precision == "fp16":
                before = [i for i, call in enumerate(calls) if call.endswith("unscale_")]
                self.assertLess(before[0], calls.index("nn.utils.clip_grad_norm_"))
            self.assertEqual(torch.nn.functional.cross_entropy.call_args.kwargs, {"ignore_index": -1})
            # 16-bit steps take images as such, but tokens as they are.
            for floats, dtype in ((True, torch.float16 if precision == "fp16" else "own"), (False, "own")):
                x = mock.MagicMock(dtype="own", is_floating_point=lambda floats=floats: floats)
                step.input(x, "cuda")
                x.to.assert_called_once_with(device="cuda", dtype=dtype)

    def test_a_cpu_has_no_graphs(self):
        torch, _, loss = self.made("tune-nhwc-fused-keep", "fp32", "cpu")
        torch.compiler.cudagraph_mark_step_begin.assert_not_called()
        self.assertNotIn("clone", repr(loss))


if __name__ == "__main__":
    unittest.main(verbosity=2)
