#!/usr/bin/env python3
"""The repository mentions only itself: no tickets, no private paths, no notes to self."""
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
]
CLEAN = [
    ("docs/a.md", "# Heading\nsee [the loader](#2-loader), the session file and `build/work/x`; 3 issues are left\n"),
    ("profiler/a.cpp", 'const char* colour = "#123456";  // the session file\n'),
    ("tests/a_test.cpp", 'std::string path = "/tmp/x";\n'),
]

if __name__ == "__main__":
    source_tree.run(findings_of, PLANTED, CLEAN)
