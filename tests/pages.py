#!/usr/bin/env python3
"""Runs the commands that README.md and docs/*.md print, in order, and compares what a page says a command prints.

    pages.py --build build/release [--jobs N] [--keep] [--verbose] [PAGE ...]
    pages.py --examples        also the commands that the tier example runs otherwise
    pages.py --list            which commands are not run, and why
    pages.py --self-test       planted faults are found

Each page runs in a new folder with links to docs/, tools/, tests/, bench/ and the build, and with `warpstep` on PATH. A
block of a page (a paragraph of indented or fenced code) is

    commands    if it begins with a program of PROGRAMS, an assignment or `$ `; a `\\` at its end continues a line
    output      otherwise: what the commands of the block above print
    code        ```cpp, ```cmake: lines of a file that is compiled, which `<!-- run: from FILE -->` names
    text        ```text: neither, a layout or a synopsis
    Python      ```python and `>>> `: run in one interpreter per page, if it has the packages

Output agrees if the program printed it in this order, white space and masked numbers apart; `...` stands for anything.
MASKS says which numbers are masked. Lines of HTML comments, which no reader sees, change how a page runs:

    <!-- run: before COMMAND -->    runs COMMAND first
    <!-- run: beside COMMAND -->    runs COMMAND until the page ends; $JOB is its process
    <!-- run: instead s|A|B| -->    commands and expected output from here on have B for A (a regular expression)
    <!-- run: mask REGEX -->        masks more in the rest of the page
    <!-- run: numbers vary -->      masks every number of the next output
    <!-- run: fails -->             the next command must fail
    <!-- run: from FILE ... -->     the next block's lines are in these files, in this order; `...` for a gap
    <!-- run: measured REGEX -->    the next output shows figures of one machine: the program must print a line like REGEX

SKIPPED lists the commands that are not run, with the reason.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# docs/python.md needs the package: python/tests/wheel.py runs it.
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md") if page.name != "python.md")]
PROGRAMS = ("warpstep", "build/", "./tools/", "tools/", "cmake", "ctest", "cpack", "ninja", "pip", "python", "python3", "mpirun",
            "torchrun", "srun", "tensorboard", "wandb", "apt-get", "nsys", "source", "rm", "export", "docker", "sha256sum", "tar")
SECONDS = 120  # for one command

EXAMPLE = "tier example runs it"  # and --examples
# Commands that do not run here, with the reason. Every pattern must match a command of a page.
SKIPPED = [
    (r"^(\./)?tools/(quickstart|check|setup|gpu_check)\b", "sets up the machine; tools/check itself is what runs this"),
    (r"^cmake --preset|^cmake --build --preset|^cmake --build build/release|^ninja -C build", "builds the tree, which is built"),
    (r"^docker\b", "needs Docker"),
    (r"^cmake (--install|-S|-G Ninja|--build) |^ctest |^build/(example|custom_op|naive_loss|cpp)/", EXAMPLE),
    (r"^tools/install\b", "tier example runs it, in a prefix of its own"),
    (r"^(pip|apt-get|source /etc)", "installs packages from a network"),
    (r"^./tools/profile_ladder", "needs an idle machine for half a minute"),
    (r"^srun|^torchrun|^wandb|^nsys|--to wandb|^MLFLOW|tune[.]py", "needs a program that check does not install"),
    (r"^python3 -c 'import torch", "needs PyTorch"),
    (r"--merges vocab[.]bpe", "needs GPT-2's merges, which are not in the repository"),
    (r"^(OMP_WAIT_POLICY=passive )?python3 tests/", "half an hour; the tier cpu runs a part of it"),
    (r"^build/stage/", "needs a GPU"),
    (r"--device cuda|--assume|--plans\b", "needs CUDA"),
]
# Page-wide rules of pages that may not be longer.
RULES = {"README.md": [
    "before warpstep data make DIR --train 256 --test 64",
    "before for i in $(seq 400); do echo $i times to be, or not to be; done > text; warpstep data tokenize text TOKENS --tokenizer char",
    "before warpstep train mlp --data DIR --steps 16 --batch 32 --profile spans --out runs/other",
    "before warpstep weights convert runs/other/best.safetensors FILE --drop-optimizer",
    "beside warpstep train mlp --data DIR --epochs 100000 --out runs/job",
    "before until warpstep profile --list | grep -qw $JOB; do sleep 0.1; done",
    "instead s/train cifar10cnn/train mlp/",
    "instead s|--weights FILE|--weights FILE --out runs/weights|",
    "instead s/--epochs 8/--epochs 1/",
    "instead s/--epochs 12/--epochs 2/",
    "instead s/TOKENS/TOKENS --batch 4 --steps 2/",
    "instead s/airbench --data DIR --epochs 10/airbench --data DIR --epochs 1 --batch 32 --limit-batches 1/",
    "instead s/--steps 60/--steps 16 --batch 32/",
    "instead s/--workers 2/--workers 2 --starts 1 --turns 4 --turn-seconds 0.3/",
    "instead s/profile PID/profile $JOB/",
    "instead s/--train 512 --test 64/--train 64 --test 32/",
    "instead s/--steps 20/--steps 2/",
]}
NUMBER = r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
UNITS = (r"(?:ns|us|ms|s|min|h|MHz|GHz|W|%|x|images/s|tokens/s|[KMG]iB/s|[KMG]B/s|[KMGT]?FLOP/s)(?![\w/])")
MASKS = [  # numbers that differ from machine to machine and from run to run
    (r"AVX-512|AVX2|SSE4[.]1|NEON|AVX(?=…|$)", "ISA"),
    (rf"{NUMBER} ?{UNITS}", "# UNIT"),
    (rf"(?<=loss ){NUMBER}", "#"),
    (rf"(?<=perplexity ){NUMBER}", "#"),
]


@dataclasses.dataclass
class Block:
    line: int
    kind: str  # "cpp", "cmake", "python", "" (indented or without a language)
    lines: list
    rules: list  # the directives before it


def blocks_of(text):
    """The paragraphs of code of a page, and the directives before each."""
    blocks, rules, fence, current = [], [], None, None

    def end():
        nonlocal current
        while current and current.lines and not current.lines[-1]:
            current.lines.pop()
        if current and current.lines:
            margin = min(len(line) - len(line.lstrip()) for line in current.lines if line.strip())
            current.lines = [line[margin:] for line in current.lines]
            blocks.append(current)
        current = None

    before_blank = True
    for number, line in enumerate(text.splitlines(), 1):
        directive = re.fullmatch(r"\s*<!-- run: (.*?) -->", line)
        if fence is None and directive:
            end()
            rules.append(directive[1])
            continue
        mark = re.match(r"\s*```(\w*)\s*$", line)
        if mark:
            end()
            fence = (mark[1] or "sh") if fence is None else None
            if fence:
                current = Block(number + 1, fence, [], rules)
                rules = []
            before_blank = True
            continue
        if fence is not None:
            current.lines.append(line)
            continue
        if current is not None and not line.strip():
            current.lines.append("")  # its end, unless more of it follows
        elif line.startswith("    ") and (current is not None or before_blank):
            if current is None:
                current = Block(number, "", [], rules)
                rules = []
            current.lines.append(line)
        else:
            end()
        before_blank = not line.strip() or bool(current)
    end()
    if rules:
        raise SystemExit(f"pages: directives without a block: {rules}")
    return blocks


# Runs pieces of Python, one per line of JSON; each answer ends with END and the exception, if there was one.
END = "<<pages: end>>"
INTERPRETER = f"""
import json, sys
names = dict(__name__="__main__")
for line in sys.stdin:
    text, mode = json.loads(line)
    failure = ""
    try:
        exec(compile(text, "page", mode), names)
    except BaseException as error:
        failure = type(error).__name__ + ": " + str(error).replace(chr(10), " ")
    print({END!r}, failure, flush=True)
"""
# Becomes a shell that runs a command and is killed when this program ends, however that ends. (No preexec_fn: pages run in threads.)
BESIDE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execvp("bash", ["bash", "-c", "exec " + sys.argv[2]])
"""
MISSING = [("mpirun", "Open MPI is not installed")]  # skipped where this program is missing


def is_command(line):
    line = re.sub(r"^\$ ", "", line)
    first = re.sub(r"^([A-Z_]+=\S+ )+", "", line).split(" ")[0]
    return line != first and "=" in line.split(" ")[0] and line.split(" ")[0].split("=")[0].isupper() or any(
        first == program or program.endswith("/") and first.startswith(program) for program in PROGRAMS)


def parts_of(block):
    """A block's commands and outputs, in order: (is a command, line number, text)."""
    parts, session = [], any(line.startswith("$ ") for line in block.lines)
    continued = False
    for number, line in enumerate(block.lines, block.line):
        if continued:
            parts[-1][2] += "\n" + line
        elif line.startswith(">>> "):
            parts.append(["python", number, line[4:]])
        elif (line.startswith("$ ") if session else is_command(line)):
            parts.append([True, number, line.removeprefix("$ ")])
        elif parts and not parts[-1][0]:
            parts[-1][2] += "\n" + line
        elif line:
            parts.append([False, number, line])
        continued = parts[-1][0] and line.split(" # ")[0].rstrip().endswith("\\")
    return parts


def nearest(piece, text):
    """The place of the text that has the most of the piece's beginning."""
    least, most = 0, len(piece)
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if piece[:middle] in text else (least, middle - 1)
    at = text.find(piece[:least])
    return text[at : at + len(piece) + 80] if least > 3 else text[-1500:]


def is_expression(pattern, other=""):
    """Whether it is a regular expression, and `other` what may replace it."""
    try:
        re.sub(f"{pattern}|", other, "")
    except (re.error, IndexError):
        return False
    return True


def collapsed(text):
    return " ".join(text.split())


class Page:
    def __init__(self, name, text, build=ROOT, keep=False, verbose=False, python=sys.executable):
        self.name, self.text, self.build, self.verbose = name, text, build, verbose
        self.folder, self.job = None, None
        self.keep, self.python = keep, python
        self.instead, self.masks, self.lacks = [], list(MASKS), None
        self.said, self.problems, self.skipped = None, [], []
        self.ran, self.interpreter, self.examples = 0, None, False

    def make_folder(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"page-{pathlib.Path(self.name).stem}-"))
        (self.folder / "build").mkdir()
        (self.folder / "build/release").symlink_to(self.build)
        for link in ("docs", "tools", "tests", "bench"):
            (self.folder / link).symlink_to(ROOT / link)

    def environment(self):
        path = f"{self.build}/bin:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        kept = {key: value for key, value in os.environ.items() if key[:8] != "WARPSTEP" or key == "WARPSTEP_CPU_ISA"}
        return {**kept, "PATH": path, "HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / ".cache"),
                "CUDA_VISIBLE_DEVICES": "",  # the pages' outputs are those of a machine without a GPU
                "JOB": str(self.job.pid if self.job else ""), "OMP_WAIT_POLICY": "passive", "LC_ALL": "C.UTF-8", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
                "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}

    def problem(self, line, text):
        self.problems.append(f"{self.name}:{line}: {text}")

    def shell(self, command):
        began = time.monotonic()
        try:
            ran = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                 timeout=SECONDS, check=False)
            code, said = ran.returncode, ran.stdout
        except subprocess.TimeoutExpired as late:
            code, said = 124, (late.stdout or b"").decode(errors="replace") + f"\npages: not done after {SECONDS} s"
        if self.verbose:
            print(f"$ {command}\n{said}  [{code}, {time.monotonic() - began:.1f} s]", flush=True)
        return code, said

    def replaced(self, text):
        for rule in self.instead:
            text, count = re.subn(rule[1], rule[2], text)
            rule[3] += count
        return text

    def masked(self, text, masks):
        text = collapsed(text)
        for pattern, mask in masks:
            text = re.sub(pattern, mask, text)
        return text

    def not_run(self, line, command):
        """Notes the command if it does not run here."""
        absent = [(f"^{name}", why) for name, why in MISSING if not shutil.which(name)]
        for pattern, reason in SKIPPED + absent:
            if self.examples and reason == EXAMPLE:
                continue
            if re.search(pattern, command):
                self.skipped.append((pattern, f"{self.name}:{line}: {command.splitlines()[0]}", reason))
                self.said = None
                return True
        return False

    def run_command(self, line, command, fails):
        if self.not_run(line, command):
            return
        code, said = self.shell(self.replaced(command))
        self.ran += 1
        self.said = (self.said or "") + said
        if (code != 0) != fails:
            self.problem(line, f"ended with {code}: {self.replaced(command)}\n{said[-2000:]}")

    def run_python(self, line, text, fenced):
        """In an interpreter that lasts as long as the page."""
        if self.interpreter is None:
            self.interpreter = subprocess.Popen([self.python, "-u", "-c", INTERPRETER], cwd=self.folder, text=True,
                                                env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                stderr=subprocess.STDOUT)
        self.interpreter.stdin.write(json.dumps([text, "exec" if fenced else "single"]) + "\n")
        self.interpreter.stdin.flush()
        said = []
        for answer in self.interpreter.stdout:
            if answer.startswith(END):
                break
            said.append(answer)
        else:
            answer = "the interpreter ended"
        self.said, failure = "".join(said), answer.removeprefix(END).strip()
        if self.verbose:
            print(f">>> {text}\n{self.said}  [{failure or 'good'}]", flush=True)
        lacking = re.match(r"ModuleNotFoundError: No module named '(?!warpstep)(\w+)", failure)
        unmade = self.lacks and re.match(r"NameError: name '(\w+)' is not defined", failure)
        if lacking or unmade:
            self.lacks = self.lacks or lacking[1]
            self.skipped.append(("python", f"{self.name}:{line}: {text.splitlines()[0]}", f"no Python here has {self.lacks}"))
            self.said = None
        elif failure:
            self.problem(line, f"{failure} in\n{text}\n{self.said[-1500:]}")
        else:
            self.ran += 1

    def compare(self, line, text, rules):
        if self.said is None:  # of a command that is not run
            return
        measured = [rule.removeprefix("measured ") for rule in rules if rule.startswith("measured ")]
        for pattern in measured:
            if not re.search(pattern, self.said, re.M):
                self.problem(line, f"no line like '{pattern}' in\n{self.said[-800:]}")
        if measured:
            return
        masks = self.masks + ([(NUMBER, "#"), (r"# UNIT|# ?%", "#")] if "numbers vary" in rules else [])
        found, at = self.masked(self.said, masks), 0
        for piece in re.split(r"\s*(?:\.\.\.|…)\s*", self.replaced(text)):
            piece = self.masked(piece, masks)
            place = found.find(piece, at)
            if place < 0:
                self.problem(line, f"the page says\n    {piece}\nthe program printed\n    {nearest(piece, found)}")
                return
            at = place + len(piece)

    def compare_code(self, block, rules):
        files = [name for rule in rules if rule.startswith("from ") for name in rule.removeprefix("from ").split()]
        if not files:
            self.problem(block.line, "code without <!-- run: from FILE -->: name the compiled file that has it")
            return
        have = [collapsed(line) for name in files for line in (ROOT / name).read_text().splitlines()]
        at = 0
        for number, line in enumerate(block.lines, block.line):
            wanted = collapsed(re.sub(r"\s+(//|#) .*$", "", line))
            if not wanted or wanted == "...":
                continue
            while at < len(have) and not have[at].startswith(wanted):
                at += 1
            if at == len(have):
                self.problem(number, f"{' '.join(files)} has no such line after those before it: {line}")
                return
            at += 1

    def apply(self, rules, line):
        for rule in rules:
            if rule.startswith("before "):
                code, said = self.shell(rule.removeprefix("before "))
                if code:
                    self.problem(line, f"set-up ended with {code}: {rule}\n{said[-2000:]}")
            elif rule.startswith("beside "):
                self.end_job()
                self.job = subprocess.Popen([sys.executable, "-c", BESIDE, str(os.getpid()), rule.removeprefix("beside ")],
                                            cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            elif rule.startswith("instead "):
                parts = rule[8:].split(rule[9:10] or None)
                if len(parts) != 4 or parts[0] != "s" or parts[3] or not is_expression(parts[1], parts[2]):
                    self.problem(line, f"not of the form 'instead s/A/B/', A a regular expression: {rule}")
                    continue
                self.instead.append([line, parts[1], parts[2], 0])
            elif rule.startswith("mask "):
                if not is_expression(rule.removeprefix("mask ")):
                    self.problem(line, f"no regular expression: {rule}")
                    continue
                self.masks.append((rule.removeprefix("mask "), "#"))

    def list_commands(self):
        for block in blocks_of(self.text):
            for command, line, text in parts_of(block) if block.kind in ("", "sh") else ():
                if command is True:
                    self.not_run(line, text)

    def end_job(self):
        if self.job is not None:
            self.job.kill()
            self.job.wait()

    def run(self):
        began = time.monotonic()
        self.make_folder()
        try:
            self.run_blocks()
        finally:
            self.end_job()
            if self.interpreter is not None:
                self.interpreter.stdin.close()
                self.interpreter.wait()
            if not self.keep:
                shutil.rmtree(self.folder, ignore_errors=True)
        for line, pattern, _, count in self.instead:
            if not count:
                self.problem(line, f"nothing is like '{pattern}' any more: remove the rule")
        return time.monotonic() - began

    def run_blocks(self):
        self.apply(RULES.get(self.name, []), 1)
        for block in blocks_of(self.text):
            self.apply(block.rules, block.line)
            if block.kind == "text":
                continue
            if block.kind in ("cpp", "cmake"):
                self.compare_code(block, block.rules)
            elif block.kind == "python":
                self.run_python(block.line, "\n".join(block.lines) + "\n", True)
            else:
                fails = "fails" in block.rules
                parts = parts_of(block)
                if parts[0][0] and not block.lines[0].startswith("$ "):
                    self.said = None
                for command, line, text in parts:
                    if command == "python":
                        self.run_python(line, text, False)
                    elif command:
                        if block.lines[0].startswith("$ "):
                            self.said = None
                        self.run_command(line, text, fails)
                    elif self.said is None and not self.skipped and not self.ran:
                        self.problem(line, f"neither a command nor its output: {text.splitlines()[0]}")
                    else:
                        self.compare(line, text, block.rules)


def run_pages(pages, jobs):
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for page, seconds in zip(pages, pool.map(Page.run, pages)):
            print(f"{page.name:<34} {page.ran:3} commands, {len(page.skipped):2} not run, {seconds:5.1f} s"
                  + (f", {len(page.problems)} problems" if page.problems else "")
                  + (f", in {page.folder}" if page.keep else ""), flush=True)
            for problem in page.problems:
                print(problem, flush=True)
            failed += bool(page.problems)
    return failed


def skipped_of(pages):
    skipped = {}
    for page in pages:
        for pattern, where, reason in page.skipped:
            skipped.setdefault((pattern, reason), []).append(where)
    return skipped


def list_skipped(pages):
    for page in pages:
        page.list_commands()
    skipped = skipped_of(pages)
    for (_, reason), where in sorted(skipped.items(), key=lambda item: item[0][1]):
        print(f"{reason}:")
        print("\n".join("    " + command for command in where))
    idle = [rule for rule in SKIPPED if rule not in skipped]
    for pattern, reason in idle:
        print(f"pages: no command is like '{pattern}' ({reason}): remove it from SKIPPED")
    return 1 if idle or not skipped else 0


SAYS = "    $ python3 -c 'print(\"a 5 ms, b 7\")'\n"
PLANTED = [
    ("    python3 -c 'exit(3)'\n", "ended with 3"),
    ("<!-- run: fails -->\n\n    python3 -c 'exit(0)'\n", "ended with 0"),
    (SAYS + "    a 6 ms, b 8\n", "the page says"),
    (SAYS + "    b 7\n    a 5 ms\n", "the page says"),
    ("<!-- run: instead s/b 7/b 8/ -->\n\n" + SAYS + "\nText.\n\n    b 7\n", None),
    ("<!-- run: instead s/no such/text/ -->\n\n" + SAYS, "nothing is like"),
    ("<!-- run: instead s/b 7/b 8 -->\n\n" + SAYS, "docs/planted.md:3: not of the form"),
    ("<!-- run: instead s/b/7/8/ -->\n\n" + SAYS, "not of the form"),
    ("<!-- run: instead /b 7/b 8/ -->\n\n" + SAYS, "not of the form"),
    ("<!-- run: instead s -->\n\n" + SAYS, "not of the form"),
    ("<!-- run: instead s/b (7/b 8/ -->\n\n" + SAYS, "not of the form"),
    ("<!-- run: instead s/b (7)/\\2/ -->\n\n" + SAYS, "not of the form"),
    ("<!-- run: instead s|b (7)|b/\\1| -->\n\n" + SAYS + "\nText.\n\n    b 7\n", None),
    ("<!-- run: mask b( -->\n\n" + SAYS, "no regular expression"),
    ("<!-- run: measured ^c -->\n\n" + SAYS + "    a 5 ms, b 7\n", "no line like"),
    ("    words without a command\n", "neither a command nor its output"),
    ("```cpp\nint x;\n```\n", "code without"),
    ("<!-- run: from docs/example/main.cpp -->\n\n```cpp\nint main() {\nGraph graph;\nint y;\n```\n", "no such line"),
    ("```python\nx = 1\n```\n\n    >>> x + 1\n    3\n", "the page says"),
    ("```python\nraise OSError(5)\n```\n", "OSError: 5"),
    (SAYS + "    a 9 ms, ... 7\n", None),
    ("<!-- run: numbers vary -->\n\n" + SAYS + "    a 6 ms,\n    b 8\n", None),
    ("```text\nneither\n```\n\n```python\nx = 1\n```\n\n    >>> x + 1\n    2\n", None),
    ("<!-- run: from docs/example/main.cpp -->\n\n```cpp\nint main() {\n...\n  fmt::print(\"{}\", explain(step));  // all\n```\n", None),
]


def is_running(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


# The page ends by an error, the program by a signal.
ENDINGS = [("raise OSError(5)", "ended"), ("os.kill(os.getpid(), 9)", "")]
ENDING = """
import os, sys
sys.path.insert(0, sys.argv[1])
import pages
page = pages.Page("docs/planted.md", "<!-- run: beside sleep 1000 -->\\n\\n    python3 -c 1\\n")
def run_command(*_):
    name = ""
    while name != "sleep":  # the job has become what it is to be
        name = open(f"/proc/{page.job.pid}/comm").read().strip()
    print(page.job.pid, flush=True)
    exec(sys.argv[2])
page.run_command = run_command
try:
    page.run()
except OSError:
    print("running" if page.job.returncode is None else "ended")
"""


def left_running():
    """After which of ENDINGS the job beside a page runs on."""
    left = []
    for ending, words in ENDINGS:
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run([sys.executable, "-c", ENDING, str(ROOT / "tests"), ending], stdin=subprocess.DEVNULL,
                                 env={**os.environ, "TMPDIR": folder}, capture_output=True, text=True, timeout=SECONDS,
                                 check=False)
        job, *said = ran.stdout.split() or [""]
        until = time.monotonic() + 10  # a killed process ends soon
        while job and is_running(job) and time.monotonic() < until:
            time.sleep(0.01)
        if not job or is_running(job) or words not in " ".join(said):
            left.append(f"the job beside a page runs on after {ending}: {ran.stdout}{ran.stderr}")
    return left


def self_test():
    left = left_running()
    print("\n".join(left), end="\n" if left else "")
    wrong = len(left)
    for text, words in PLANTED:
        page = Page("docs/planted.md", text)
        page.run()
        good = not page.problems if words is None else len(page.problems) == 1 and words in page.problems[0]
        if not good:
            wrong += 1
            print(f"{text}expected {words or 'nothing'}, found {page.problems or 'nothing'}")
    print(f"{len(PLANTED)} planted pages and {len(ENDINGS)} planted ends, {wrong} wrong")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="README.md, docs/training.md, ...; default: all")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="the build whose program runs")
    parser.add_argument("--list", action="store_true", help="list the commands that are not run, and run nothing")
    parser.add_argument("--self-test", action="store_true", help="check that planted faults are found")
    parser.add_argument("--jobs", type=int, default=1, help="pages at a time")
    parser.add_argument("--python", default=sys.executable, help="runs the Python of the pages; has the package warpstep")
    parser.add_argument("--examples", action="store_true", help="also what the tier example runs: minutes")
    parser.add_argument("--keep", action="store_true", help="keep the folders in which pages ran")
    parser.add_argument("--verbose", action="store_true", help="print each command with its output")
    arguments = parser.parse_args()
    if arguments.self_test:
        sys.exit(self_test())
    names = arguments.pages or PAGES + ["docs/python.md"] * arguments.list
    pages = [Page(name, (ROOT / name).read_text(), arguments.build.resolve(), arguments.keep, arguments.verbose, arguments.python)
             for name in names]
    for page in pages:
        page.examples = arguments.examples
    if arguments.list:
        sys.exit(list_skipped(pages))
    failed = run_pages(pages, arguments.jobs)
    for (_, reason), where in sorted(skipped_of(pages).items()):
        print(f"not run: {where[0]}" + (f" and {len(where) - 1} more" if len(where) > 1 else "") + f": {reason}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
