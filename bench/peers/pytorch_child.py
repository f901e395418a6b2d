"""PyTorch's training step under the protocol of alternate.py; pytorch_step.py starts it, once per setting.

A setting is MODE-LAYOUT-ADAM-MALLOC, see pytorch_step.py; the malloc is the environment's.
"""
import argparse
import contextlib
import json
import pathlib
import platform
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCHES = 8  # step s trains on batch s % 8 of tests/golden/philox.py
TEXT_OPTIMIZER = {"lr": 1e-4, "betas": (0.9, 0.95)}  # AdamW; with gradients clipped, as GPT-2 is trained
WEIGHT_DECAY, CLIP_NORM = 0.1, 1.0
EAGER_STEPS = 3  # of a captured step, before its capture: libraries load and tune, Adam makes its moments


class Step:
    """One training step: what every mode runs, eagerly, compiled or captured."""

    def __init__(self, torch, args, model, memory):
        self.torch = torch
        self.half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(args.precision)
        self.kind = args.device.split(":")[0]
        mode, _, adam, _ = args.setting.split("-")
        self.copies = mode == "tune" and self.kind == "cuda"  # its outputs live in a graph's memory
        is_text = args.sequence > 0
        self.clipped = list(model.parameters()) if is_text else []
        self.optimizer = self.make_optimizer(model, is_text, fused=adam == "fused" or None,
                                             foreach=adam == "foreach" if adam != "fused" else None,
                                             capturable=mode == "graph")
        # With a fused Adam the scale and what overflowed stay on the device: step() and update() wait for nothing.
        self.scaler = torch.amp.GradScaler(self.kind) if args.precision == "fp16" else None
        self.loss_of = self.compiled(mode, model)
        self.memory = memory

    def make_optimizer(self, model, is_text, **how):
        if not is_text:
            return self.torch.optim.Adam(model.parameters(), lr=1e-4, **how)
        groups = [{"params": [p for p in model.parameters() if (p.dim() > 1) == decays], "weight_decay": decay}
                  for decays, decay in ((True, WEIGHT_DECAY), (False, 0.0))]
        return self.torch.optim.AdamW(groups, **TEXT_OPTIMIZER, **how)

    def compiled(self, mode, model):
        torch = self.torch

        def loss_of(x, label):
            with torch.autocast(self.kind, dtype=self.half) if self.half else contextlib.nullcontext():
                return torch.nn.functional.cross_entropy(model(x), label, ignore_index=-1)

        if mode in ("eager", "graph"):
            return loss_of
        return torch.compile(loss_of, fullgraph=True, dynamic=False,
                             mode="max-autotune" if mode == "tune" else "default")

    def input(self, x, device):
        """What is copied to the device before the clock starts: 16-bit where the step computes so."""
        dtype = self.half if self.half and x.is_floating_point() else x.dtype
        return x.to(device=device, dtype=dtype).to(memory_format=self.memory)

    def clip(self):
        if self.clipped:
            self.torch.nn.utils.clip_grad_norm_(self.clipped, CLIP_NORM)

    def __call__(self, x, label):
        if self.copies:
            self.torch.compiler.cudagraph_mark_step_begin()
        loss = self.loss_of(x, label)
        self.optimizer.zero_grad(set_to_none=True)
        if self.scaler:
            self.scaler.scale(loss).backward()
            if self.clipped:
                self.scaler.unscale_(self.optimizer)
            self.clip()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            self.clip()
            self.optimizer.step()
        return loss.detach().clone() if self.copies else loss.detach()


class Captured:
    """A step replayed from a CUDA graph, one for each batch in one pool of memory.

    The first steps run eagerly beside the default stream, as capturing wants it, and train like all others.
    """

    def __init__(self, cuda, step):
        self.cuda, self.step = cuda, step
        self.pool = cuda.graph_pool_handle()
        self.graphs = {}  # batch -> graph, loss
        self.eager = EAGER_STEPS

    def __call__(self, number, batch):
        if self.eager:
            self.eager -= 1
            return self.beside(*batch)
        if number not in self.graphs:
            graph = self.cuda.CUDAGraph()
            with self.cuda.graph(graph, pool=self.pool):
                loss = self.step(*batch)
            self.graphs[number] = graph, loss
        graph, loss = self.graphs[number]
        graph.replay()
        return loss.clone()  # the next graph may use its memory

    def beside(self, x, label):
        side = self.cuda.Stream()
        side.wait_stream(self.cuda.current_stream())
        with self.cuda.stream(side):
            loss = self.step(x, label)
        self.cuda.current_stream().wait_stream(side)
        return loss


def set_up(torch, args):
    """Threads, denormals, and what f32 products may be rounded to."""
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = args.precision == "tf32"  # on unless said otherwise
    torch.set_float32_matmul_precision("high" if args.precision == "tf32" else "highest")


def build_step(torch, models, args):
    """A function step(s) -> loss that is left on the device."""
    mode, layout = args.setting.split("-")[:2]
    device = torch.device(args.device)
    memory = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    model = models.build(args.model, args.seed, args.model_option).to(device).to(memory_format=memory)
    if args.sequence:
        model.sequence = args.sequence
    else:
        model.image = (args.image, args.image, model.image[2])
    step = Step(torch, args, model, memory)
    batches = []
    for number in range(BATCHES):
        x, label = models.batch(model, args.seed, number, args.batch)
        batches.append((step.input(x, device), label.to(device)))
    if mode == "graph":
        captured = Captured(torch.cuda, step)
        return lambda number: captured(number % BATCHES, batches[number % BATCHES])
    return lambda number: step(*batches[number % BATCHES])


def about(torch, args):
    found = {"torch": torch.__version__, "threads": torch.get_num_threads(), "python": platform.python_version(),
             "precision": args.precision}
    if args.device == "cpu":
        return found | {"capability": torch.backends.cpu.get_cpu_capability()}
    return found | {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda,
                    "cudnn": torch.backends.cudnn.version()}


def serve(torch, models, args):
    on_gpu = args.device != "cpu"
    if on_gpu:
        torch.cuda.set_device(int(args.device.partition(":")[2] or 0))  # "cuda" alone is refused
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    step, done = build_step(torch, models, args), 0
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["quit"]:
            return
        count = int(words[1])
        wait()
        begin = time.perf_counter()
        losses = [step(done + i) for i in range(count)]
        wait()
        seconds = time.perf_counter() - begin
        done += count
        answer = {"seconds": seconds, "losses": torch.stack(losses).tolist()} | about(torch, args)
        if on_gpu:
            answer["device_peak_mb"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
        print(json.dumps(answer), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting")
    for option, kind in (("model", str), ("batch", int), ("image", int), ("sequence", int), ("seed", int),
                         ("threads", int), ("device", str), ("precision", str)):
        parser.add_argument(f"--{option}", type=kind, required=True)
    parser.add_argument("--model-option", nargs="*", default=[])
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests" / "golden"))
    import models
    import torch

    set_up(torch, args)
    serve(torch, models, args)


if __name__ == "__main__":
    main()
