#!/usr/bin/env python3
"""tools/install: the command, its completion and man pages in a prefix, and an uninstall that leaves nothing.

    tool_test.py --build BUILD --work DIR
"""
import argparse
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def output(*command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def completed(prefix, line):
    """What bash offers at the end of this line."""
    words = line.split(" ")
    script = (f"source '{prefix}/share/bash-completion/completions/warpstep'\n"
              f"COMP_WORDS=({' '.join(repr(word) for word in words)}) COMP_CWORD={len(words) - 1}\n"
              "_warpstep\nprintf '%s\\n' \"${COMPREPLY[@]}\"")
    return output("bash", "-eu", "-c", script).split()


def check(condition, what):
    if not condition:
        raise SystemExit(f"tool_test: {what}")


def check_completion(prefix):
    for line, expected in (("warpstep tra", ["train"]), ("warpstep train --label-s", ["--label-smoothing"]),
                           ("warpstep train --optimizer ad", ["adam", "adamw"]), ("warpstep train cifar", ["cifar10cnn"]),
                           ("warpstep data ver", ["verify"]), ("warpstep data make --form", ["--format"]),
                           ("warpstep train --lr ", [])):
        found = completed(prefix, line)
        check(found == expected, f"bash completes '{line}' to {found}, not {expected}")
    for shell, file in (("zsh", "zsh/site-functions/_warpstep"), ("fish", "fish/vendor_completions.d/warpstep.fish")):
        path = prefix / "share" / file
        check("label-smoothing" in path.read_text(), f"{path} has no --label-smoothing")
        if shutil.which(shell):
            output(shell, "-n", str(path))


def check_pages(prefix):
    pages = sorted(page.name for page in (prefix / "share/man/man1").iterdir())
    check({"warpstep.1", "warpstep-train.1", "warpstep-data-make.1"} <= set(pages), f"man pages: {pages}")
    if not shutil.which("groff"):
        return
    for page in pages:
        ran = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", str(prefix / "share/man/man1" / page)], check=True,
                             text=True, stderr=subprocess.PIPE)
        check(not ran.stderr, f"{page}: {ran.stderr}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.work, ignore_errors=True)
    prefix = arguments.work / "a prefix"
    tool = [str(ROOT / "tools/install"), "--prefix", str(prefix)]
    said = output(*tool, "--build", arguments.build)
    check("not on PATH" in said and f"export PATH={prefix}/bin" in said, said)
    environment = {**os.environ, "PATH": f"{prefix}/bin:{os.environ['PATH']}"}
    environment.pop("LD_LIBRARY_PATH", None)
    check(output("warpstep", "--version", env=environment).startswith("warpstep "), "the command does not run")
    check_completion(prefix)
    check_pages(prefix)
    (prefix / "share/mine").write_text("kept")
    output(*tool, "--uninstall")
    left = [str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()]
    check(left == ["share/mine"], f"after --uninstall there is {left}")


if __name__ == "__main__":
    main()
