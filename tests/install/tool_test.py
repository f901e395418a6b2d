#!/usr/bin/env python3
"""tools/install: the command, its completion and man pages in a prefix, one installation over another, and an uninstall that
leaves nothing.

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


def stand_in(folder, time, files):
    """A build folder that installs these files, made at a time: CMake leaves a file alone that has the same one."""
    folder.mkdir(parents=True)
    lines = []
    for number, path in enumerate(files):
        source = folder / f"{number}" / pathlib.Path(path).name
        source.parent.mkdir()
        source.write_text(f"{path} of {folder.name}")
        os.utime(source, (time, time))
        lines.append(f'file(INSTALL DESTINATION "${{CMAKE_INSTALL_PREFIX}}/{pathlib.Path(path).parent}" TYPE FILE '
                     f'FILES "{source}")')
    lines += [r'string(REPLACE ";" "\n" names "${CMAKE_INSTALL_MANIFEST_FILES}")',
              f'file(WRITE "{folder / "install_manifest.txt"}" "${{names}}")']
    (folder / "cmake_install.cmake").write_text("\n".join(lines))
    return folder


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def check_one_over_another(work):
    """Files of the earlier installation alone are removed, others stay; the prefix is no pattern."""
    prefix, listed = work / "in[1]st.a|b", "share/warpstep/installed"
    kept = ["bin/warpstep", "lib/libwarpstep_engine.so.0.2.0"]
    first = stand_in(work / "first", 10, ["bin/warpstep", "lib/libwarpstep_cuda.so", "lib/libwarpstep_engine.so.0.1.0",
                                          "share/old/page/a page"])
    second = stand_in(work / "second", 20, kept)
    tool = [str(ROOT / "tools/install"), "--prefix", str(prefix)]
    said = output(*tool, "--build", str(first))
    check("installed 4 files" in said, said)
    (prefix / "lib/mine").write_text("kept")
    (work / "outside").write_text("kept")
    with open(prefix / listed, "a", encoding="utf-8") as file:
        file.write("../outside\n")
    (second / "cmake_install.cmake").rename(second / "later")
    failed = subprocess.run([*tool, "--build", str(second)], check=False, capture_output=True, text=True)
    check(failed.returncode != 0 and len(files_in(prefix)) == 6, f"a failed installation removed files: {files_in(prefix)}")
    (second / "later").rename(second / "cmake_install.cmake")
    said = output(*tool, "--build", str(second))
    check("removed 3 files of the earlier installation" in said and "installed 2 files" in said, said)
    check(files_in(prefix) == sorted([*kept, "lib/mine", listed]), f"one over another: {files_in(prefix)}")
    check((prefix / "bin/warpstep").read_text() == "bin/warpstep of second", "the command is the earlier one")
    check(not (prefix / "share/old").exists(), "empty folders of the earlier installation stay")
    check("earlier" not in output(*tool, "--build", str(second)), "the same again removes files")
    output(*tool, "--uninstall")
    check(files_in(prefix) == ["lib/mine"] and (work / "outside").exists(), f"after --uninstall: {files_in(prefix)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.work, ignore_errors=True)
    prefix = arguments.work / "a prefix"
    tool = [str(ROOT / "tools/install"), "--prefix", str(prefix)]
    refused = subprocess.run([*tool, "--build", arguments.build], env={**os.environ, "DESTDIR": str(arguments.work / "dest")},
                             check=False, capture_output=True, text=True)
    check(refused.returncode == 2 and "DESTDIR is set" in refused.stderr, f"with DESTDIR: {refused}")
    gone = pathlib.Path(arguments.build) / "tools/share/man/man1/warpstep-gone.1"  # of a command that an earlier build had
    gone.parent.mkdir(parents=True, exist_ok=True)
    gone.touch()
    said = output(*tool, "--build", arguments.build)
    check(not (prefix / "share/man/man1" / gone.name).exists(), "the man page of a command that was removed is installed")
    check("not on PATH" in said, said)
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    ran = output("bash", "-euc", f"{said.splitlines()[-1]}\ncommand -v warpstep; warpstep --version", env=environment)
    check(ran.startswith(f"{prefix}/bin/warpstep\nwarpstep "), f"as the last line says, the command does not run: {said}{ran}")
    check_completion(prefix)
    check_pages(prefix)
    (prefix / "share/mine").write_text("kept")
    output("bash", "-euc", said.splitlines()[0].partition("remove them with: ")[2], cwd=ROOT)
    left = files_in(prefix)
    check(left == ["share/mine"], f"after --uninstall there is {left}")
    check_one_over_another(arguments.work)


if __name__ == "__main__":
    main()
