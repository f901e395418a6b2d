"""Shared by the style tests: the files of the tree, findings, and running a test and its self-test."""
import argparse
import dataclasses
import pathlib
import subprocess
import sys
import tempfile

CPP = {".h", ".cpp", ".cu", ".cuh"}


@dataclasses.dataclass(frozen=True)
class Finding:
    path: str
    line: int
    rule: str
    fix: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}; {self.fix}"


def files(root):
    """Relative paths of the source files: tracked or untracked but not ignored by git; without git, all files."""
    git = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (root / ".git").exists():
        listed = subprocess.run(git, capture_output=True, check=False)
        if listed.returncode == 0:
            names = listed.stdout.decode().split("\0")
            return sorted({n for n in names if n and (root / n).is_file()})
    found = (p.relative_to(root) for p in root.rglob("*") if p.is_file())
    skipped = {"runs", ".cache", ".git", "data-small", "__pycache__"}
    return sorted(str(p) for p in found if not (skipped & set(p.parts)) and not p.parts[0].startswith("build"))


def read_lines(root, path):
    """Lines of a text file; None for a binary one."""
    content = (root / path).read_bytes()
    if b"\0" in content[:4096]:
        return None
    return content.decode("utf-8", errors="replace").splitlines()


def suffix(path):
    return pathlib.PurePath(path).suffix


def run(findings_of, planted, clean):
    """Checks the tree; with --self-test checks that planted faults are found and clean files have no findings.

    planted: a list of (path, content, text that the finding must contain); clean: a list of (path, content).
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        sys.exit(self_test(findings_of, planted, clean))
    paths = files(arguments.root)
    if len(paths) < 10:
        sys.exit(f"{arguments.root} has only {len(paths)} source files: not the source tree")
    findings = findings_of(arguments.root, paths)
    for finding in findings:
        print(finding)
    print(f"{len(paths)} files, {len(findings)} findings")
    sys.exit(1 if findings else 0)


def self_test(findings_of, planted, clean):
    failures = 0
    for path, content, words in planted + [(p, c, None) for p, c in clean]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content)
            findings = [str(f) for f in findings_of(root, [path])]
        good = len(findings) == 0 if words is None else len(findings) == 1 and words in findings[0]
        if not good:
            failures += 1
            print(f"{path} with {content[:60]!r}: expected {words or 'nothing'}, found {findings or 'nothing'}")
    print(f"{len(planted)} planted faults, {len(clean)} clean files, {failures} wrong")
    return 1 if failures or not planted or not clean else 0
