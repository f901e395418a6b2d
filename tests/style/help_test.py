#!/usr/bin/env python3
"""Every script of tools/ prints its help on --help and refuses unknown options, before it does anything else.

Each runs in a copy of the scripts, with fake package managers and build tools that only record that they were started.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile

import source_tree
from source_tree import Finding

MARKING = ("apt-get", "dpkg-query", "sudo", "pip", "cmake", "ninja", "clang++")  # programs that must not run
QUESTIONS = {"--version"}  # with these arguments they may


def scripts(root, paths):
    for path in paths:
        if path.startswith("tools/") and path.count("/") == 1 and (root / path).read_bytes().startswith(b"#!"):
            yield path


def copy(root, paths, to):
    for path in paths:
        if path.startswith(("tools/", "tests/fuzz/")):
            (to / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path, to / path)


def mark(folder, name, marks):
    questions = " | ".join(sorted(QUESTIONS))
    program = folder / name
    program.write_text(f"#!/bin/sh\ncase $1 in {questions}) echo {name} version 99.0 ;; *) touch {marks}/{name} ;; esac\n")
    program.chmod(0o755)


def problem(script, argument, code, environment, tree, marks):
    """The fault in this script's answer, or None."""
    before = sorted(tree.rglob("*"))
    script.chmod(0o755)
    try:
        ran = subprocess.run([script, argument], cwd=tree, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "does not end"
    made = [str(p.relative_to(tree)) for p in sorted(tree.rglob("*")) if p not in before]
    started = sorted(p.name for p in marks.iterdir())
    for name in started:
        (marks / name).unlink()
    if made or started:
        return f"creates or starts {', '.join(made + started)}"
    if ran.returncode != code:
        return f"exits with {ran.returncode}, not {code}"
    if not (ran.stdout if code == 0 else ran.stderr).strip():
        return "prints nothing"
    return None


def findings_of(root, paths):
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        tree, programs, marks = (pathlib.Path(folder) / name for name in ("tree", "programs", "marks"))
        for each in (tree, programs, marks):
            each.mkdir()
        copy(root, paths, tree)
        for name in MARKING:
            mark(programs, name, marks)
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tree)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # most users have not set it
        for path in scripts(root, paths):
            for argument, code in (("--help", 0), ("--no-such-option", 2)):
                wrong = problem(tree / path, argument, code, environment, tree, marks)
                if wrong:
                    findings.append(Finding(path, 1, f"with {argument} it {wrong}",
                                            "check the arguments before doing anything else"))
    return findings


GOOD = '#!/bin/sh\ncase $1 in --help) echo help ;; *) echo unknown >&2; exit 2 ;; esac\n'
PLANTED = [
    ("tools/a", GOOD.replace("echo help", "echo help; mkdir build"), "with --help it creates or starts build"),
    ("tools/a", GOOD.replace("echo unknown", "apt-get install x; echo unknown"), "it creates or starts apt-get"),
    ("tools/a", GOOD.replace("exit 2", "exit 1"), "with --no-such-option it exits with 1"),
    ("tools/a", GOOD.replace("echo help", ":"), "with --help it prints nothing"),
]
CLEAN = [("tools/a", GOOD), ("tools/environment.sh", "touch x\n"), ("tools/gpu/a.py", "#!/bin/sh\ntouch x\n")]

if __name__ == "__main__":
    source_tree.run(findings_of, PLANTED, CLEAN)
