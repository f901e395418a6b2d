"""The program `warpstep` inside the package."""
import os
import sys
from pathlib import Path

PATH = Path(__file__).resolve().parent / "bin" / "warpstep"


def main() -> None:
    """The command `warpstep`: becomes the program."""
    os.execv(PATH, [str(PATH), *sys.argv[1:]])
