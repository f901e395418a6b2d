#!/usr/bin/env python3
"""Runs a program that must fail with a given report: expect_report.py WORDS COMMAND...

Succeeds if COMMAND exits with a code other than 0 and its stderr contains each of the WORDS, separated by '|'.
Without WORDS ('') it must succeed and print nothing on stderr.
"""
import subprocess
import sys


def problem(words, command):
    ran = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    report = f"exit code {ran.returncode}, stderr:\n{ran.stderr}"
    if not words:
        return report if ran.returncode != 0 or ran.stderr else None
    missing = [word for word in words if word not in ran.stderr]
    if ran.returncode == 0:
        return f"it succeeded, and was to be found out; {report}"
    return f"the report lacks {missing}; {report}" if missing else None


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    found = problem([word for word in sys.argv[1].split("|") if word], sys.argv[2:])
    if found:
        sys.exit(f"{' '.join(sys.argv[2:])}: {found}")


if __name__ == "__main__":
    main()
