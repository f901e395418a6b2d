#!/usr/bin/env python3
"""The peers' own logic, without PyTorch and without a GPU: arguments, tolerances, which path a setting takes."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import alternate  # noqa: E402
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
        self.assertEqual(pytorch_step.parse(["--tolerance", "0.5", "--steps", "7"]).tolerance, 0.5)

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
            step_switches.main([*words, "--switch=--slow", "--switch=--broken", "--switch=--deterministic"])
        result = json.loads(self.out.read_text())
        self.assertEqual([pair["switch"] for pair in result["pairs"]], ["--slow", "--deterministic"])
        self.assertGreater(result["pairs"][0]["ratio"]["median"], 1.5)
        self.assertIn("no such switch", result["failed"]["--broken"])
        self.assertIn("--slow: ", printed.getvalue())

    def test_a_limit_leaves_out_what_is_late(self):
        args = pytorch_step.parse(["--limit", "0"])
        args.limit, args.end = 8, time.monotonic() + 6
        with self.assertRaises(pytorch_step.TooLate):
            pytorch_step.start(args, "late", self.command, {}, until=3)
        runner = pytorch_step.start(args, "peer", self.command, {})
        args.end, args.steps, args.window_seconds = time.monotonic(), None, 0.02
        pytorch_step.alternate_windows(args, [runner], 20)
        self.assertEqual(runner.quit()["step_ms"]["n"], 1)


class Gpu(unittest.TestCase):
    def test_summary(self):
        steady = gpu.summary(["1980, 600.5\n", "1975, 610.5\n", "[N/A], 5\n", "19"])
        self.assertEqual(steady["sm_mhz"], {"min": 1975, "median": 1977.5, "max": 1980})
        self.assertEqual((steady["samples"], steady["power_w"], steady["steady"]), (2, 605.5, True))
        self.assertFalse(gpu.summary(["1980, 600"] * 8 + ["1200, 400"] * 2)["steady"])
        self.assertIsNone(gpu.summary([]))

    def test_none(self):
        self.assertIsNone(gpu.describe("cpu"))
        with mock.patch("shutil.which", return_value=None):
            self.assertIsNone(gpu.describe("cuda"))
            with gpu.Sampler("cuda") as sampler:
                pass
        self.assertIsNone(sampler.found)
        self.assertEqual([gpu.number_of(device) for device in ("cuda", "cuda:3")], ["0", "3"])


class Loaders(unittest.TestCase):
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
