#!/usr/bin/env python3
"""The repository mentions only itself (no tickets, no private paths, no notes to self), in plain English."""
import re

import source_tree
from source_tree import Finding

TEXT = source_tree.CPP | {".py", ".sh", ".cmake", ".in", ".md", ".txt", ".toml", ".cff"}
SELF = "tests/style/words_test.py"
FORGET = "give the reason in the text itself, or delete it"
RULES = [  # pattern, rule, fix, where it holds (None: everywhere)
    (r"\b(issues?|PR|pull request) #?\d+\b", "mentions a numbered ticket", FORGET, None),
    (r"(?<![\w&/#(])#\d{1,4}\b(?![\w-])", "mentions a numbered ticket", FORGET, r".*\.md$"),
    (r"\b(sub-?agents?|AI (agents?|assistants?)|(agent|helper|earlier|previous) sessions?)\b",
     "mentions who wrote it", FORGET, None),
    (r"(?<![\w.$}~/-])/(work|root|home/\w+)/", "names a path of one machine",
     "use a path from the root of the repository", None),
    (r"(?<![\w.$}-])/tmp/\w", "names a temporary path of one machine", "use runs/ or a path of the reader's choice",
     r".*\.md$"),
    (r"\b(TODO|FIXME|XXX|HACK)\b", "is a note to self", "do it, or document the limitation for users", None),
]
# Turns that readers stumble at, with the plain wording; docs/glossary.md has more.
EACH = (r"an? (step|call|sample|image|row|line|file|thread|channel|layer|element|span|epoch|batch|block|worker|"
        r"backend|folder)\b(?!')")
FOREIGN = [
    (r"\bto be had\b", "cannot allocate; not available; possible"),
    (r"\bbe meant\b", "invalid"),
    (r"(?<![A-Za-z])told(?![A-Za-z])(?! (\w+ )?apart)", "reported, recorded, notified, passed to"),
    (r"\b(tells?|telling) of\b", "reports, describes"),
    (r"\banew\b", "again, from scratch, once more"),
    (r"\b(by|for) nobody\b", "never; without a reader"),
    (r"\bneeds? not be there\b", "is optional; is not installed"),
    (r"\bbeside each other\b", "next to each other; in parallel; compared"),
    (r"\bstumbles? over\b", "fails on, rejects"),
    (r"\bgoes on\b", "continues"),
    (r"\bwhoever\b", "the caller, anyone who"),
    (r"(?<!')\b(ns|us|ms|s|bytes|[KMG]i?B|images|G?FLOPs?) " + EACH, "per"),
    (r"\b(a|one) (byte|f32|file|float|kernel|launch|line|number|pass|row|sentence|thread|warp|word) " + EACH,
     "one ... per ..."),
]
GLOSSARY = r"(?!docs/glossary\.md).*"  # it names what not to say
RULES += [(pattern, "is not plain English", f"say: {plain}", GLOSSARY) for pattern, plain in FOREIGN]
COMPILED = [(re.compile(p), rule, fix, where and re.compile(where)) for p, rule, fix, where in RULES]


def findings_of(root, paths):
    findings = []
    for path in paths:
        name = path.rsplit("/", 1)[-1]
        script = path.startswith(("tools/", ".ci/")) and "." not in name
        if path == SELF or not (source_tree.suffix(path) in TEXT or script):
            continue
        for number, line in enumerate(source_tree.read_lines(root, path) or [], 1):
            for pattern, rule, fix, where in COMPILED:
                match = pattern.search(line)
                if match and (where is None or where.match(path)):
                    findings.append(Finding(path, number, f"'{match[0]}' {rule}", fix))
    return findings


PLANTED = [
    ("engine/a.cpp", "// see issue 12\n", "numbered ticket"),
    ("engine/a.cpp", "// fixes issue #12\n", "numbered ticket"),
    ("docs/a.md", "as in #12.\n", "numbered ticket"),
    ("docs/a.md", "the previous session found\n", "who wrote it"),
    ("tools/check", "cd /work/main\n", "path of one machine"),
    ("docs/a.md", "look in `/root/x`\n", "path of one machine"),
    ("docs/a.md", "\nwarpstep train --out /tmp/run\n", "a.md:2: '/tmp/r' names a temporary path"),
    ("data/a.h", "// TODO: later\n", "note to self"),
    ("kernels/a.cpp", 'fail("{} bytes are not to be had", n);\n', "say: cannot allocate"),
    ("data/a.h", "// Throws for options that cannot be meant.\n", "say: invalid"),
    ("profiler/a.h", "// The recorder is told of each step.\n", "'told' is not plain English"),
    ("tools/a.h", "void told_step();\n", "'told' is not plain English"),
    ("data/a.h", "// What a loader tells of itself.\n", "say: reports"),
    ("data/a.cpp", '"remove the file and it is made anew"\n', "say: again"),
    ("data/a.h", "// Looked at by nobody.\n", "say: never"),
    ("docs/a.md", "on a GPU that need not be there\n", "say: is optional"),
    ("tools/a.cpp", '"the processes of one job beside each other"\n', "say: next to"),
    ("profiler/a.h", "// What readers stumble over.\n", "say: fails on"),
    ("docs/a.md", "The run goes on.\n", "say: continues"),
    ("data/a.h", "// Made by whoever comes first.\n", "say: the caller"),
    ("docs/a.md", "70.20 ms a step\n", "'ms a step' is not plain English"),
    ("kernels/a.cu", "// workspace: a float a row\n", "say: one ... per ..."),
]
CLEAN = [
    ("docs/a.md", "# Heading\nsee [the loader](#2-loader), the session file and `build/work/x`; 3 issues are left\n"),
    ("profiler/a.cpp", 'const char* colour = "#123456";  // the session file\n'),
    ("tests/a_test.cpp", 'std::string path = "/tmp/x";\n'),
    ("docs/glossary.md", "| reports | is told |\n"),
    ("docs/a.md", "Two threads can be told apart; a step has a line per call; it tells offline readers to go on.\n"),
]

if __name__ == "__main__":
    source_tree.run(findings_of, PLANTED, CLEAN)
