#!/usr/bin/env python3
"""The reference of the C++ interface (docs/reference) is made of the headers without a warning, with their comments in it."""
import html
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import source_tree
from source_tree import Finding

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSIONS = ("1.9.4", "1.9.8")  # of Debian 12 and Ubuntu 24.04; 1.9.1 and 1.15 warn of other comments
FOLDERS = ("engine/", "models/", "data/", "profiler/")
# A comment before a member, one at a line's end with the line that continues it, and one that begins a file.
SENTENCES = {
    "classwarpstep_1_1Trainer.html": "Runs to the end, or until *stop",
    "structwarpstep_1_1StepTimes.html": "this thread enqueued the step and notified observers",
    "structwarpstep_1_1LoadOptions.html": "Loads the tensors that fit by name and shape and leaves the others unchanged",
    "trainer_8h.html": "The training loop: steps, evaluations and checkpoints over a source of batches",
}


def text_of(page):
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", page.read_text(errors="replace"))))


def findings_of(root, paths):
    headers = [path for path in paths if path.startswith(FOLDERS) and path.endswith(".h") and "_testing" not in path]
    whole = "engine/run/trainer.h" in headers
    if not headers:
        return []
    with tempfile.TemporaryDirectory() as folder:
        settings = (ROOT / "docs/reference/Doxyfile").read_text() + f"OUTPUT_DIRECTORY = {folder}\n"
        settings += f'INPUT_FILTER = "awk -f {ROOT}/docs/reference/comments.awk"\n'
        if not whole:
            settings += f"INPUT = {' '.join(headers)}\n"
        ran = subprocess.run(["doxygen", "-"], cwd=root, input=settings, text=True, capture_output=True, check=False)
        findings = []
        for path, line, what in sorted(set(re.findall(r"^(\S+?):(\d+): warning: (.*)$", ran.stderr, re.M))):
            name = path.removeprefix(f"{root.resolve()}/")
            findings.append(Finding(name, int(line), f"doxygen warns: {what}", "word the comment otherwise"))
        if ran.returncode != 0 and not findings:
            findings.append(Finding(headers[0], 1, f"doxygen ended with {ran.returncode}: {ran.stderr[-300:]}", "see above"))
        for page, sentence in SENTENCES.items() if whole else ():
            if sentence not in text_of(pathlib.Path(folder) / "html" / page):
                findings.append(Finding("docs/reference/comments.awk", 1, f"{page} lacks '{sentence}'", "mend the filter"))
    return findings


PLANTED = [("engine/a.h", "/** Adds \\nonsense. */\nint add();\n", "doxygen warns: Found unknown command")]
CLEAN = [("engine/a.h", "// A file.\n#pragma once\n\n// Adds `a.b` and \\x of <T> at @1 & #2, 5 % each.\nint add();  // of both\n"
                        "                                                    // sides\n"),
         ("tools/a.h", "/** \\nonsense */\n")]

if __name__ == "__main__":
    if not shutil.which("doxygen"):
        print("SKIPPED: doxygen is not installed (tools/setup --check installs it)")
        sys.exit(77)
    version = subprocess.run(["doxygen", "--version"], capture_output=True, text=True, check=True).stdout.split()[0]
    if version not in VERSIONS:
        print(f"SKIPPED: doxygen {' or '.join(VERSIONS)} is not installed; {version} warns of other comments")
        sys.exit(77)
    source_tree.run(findings_of, PLANTED, CLEAN)
