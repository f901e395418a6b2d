#!/usr/bin/env python3
"""Write the pickles that data/formats/pickle_test.cpp reads: what Python itself makes of labels, and what must be refused.

    make_pickles.py OUT    (data/testdata)
"""
import os
import pathlib
import pickle
import sys

LABELS = {"a.png": 0, "b \\ 'quoted' \"name\".png": 1, "bild-\u00e4\u00f6.png": 255, "\u732b.png": 256, "f\u00fcnf\n.png": 65535}
# 70 names: more items than one batch would hide, memo entries of their own, and labels shared through the memo.
MANY = {f"{i:05d}.png": ["cat", "dog", "ship"][i % 3] for i in range(70)}


class Runs:
    def __reduce__(self):
        return os.system, ("touch /tmp/warpstep-pickle-was-executed",)


class Built:
    def __init__(self):
        self.a = 1


def files():
    for protocol in range(6):
        yield f"labels_{protocol}", LABELS, protocol
        yield f"many_{protocol}", MANY, protocol
        yield f"numbers_{protocol}", {0: 3, 1: -1, 2: 2**31, 3: -(2**40), 4: True + 1}, protocol
        yield f"reduce_{protocol}", {"a.png": Runs()}, protocol
    for protocol in (3, 5):
        yield f"bytes_{protocol}", {b"a.png": 0, b"\xff.png": 1}, protocol
    yield "bytes_2", {b"a.png": 0}, 2
    yield "built_2", {"a.png": Built()}, 2
    yield "list_2", ["a.png", 0], 2
    yield "nested_2", {"a.png": {"label": 0}}, 2
    yield "huge_2", {"a.png": 2**70}, 2
    yield "float_2", {"a.png": 1.0}, 2
    yield "bool_0", {"a.png": True}, 0
    yield "none_4", {"a.png": None}, 4
    yield "empty_2", {}, 2


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, value, protocol in files():
        (out / f"{name}.pkl").write_bytes(pickle.dumps(value, protocol=protocol))
    # What Python 2's cPickle wrote for {'a.png': 0, 'b.png': 1L}: str as SHORT_BINSTRING and STRING.
    (out / "python2_2.pkl").write_bytes(b"\x80\x02}q\x01(U\x05a.pngK\x00U\x05b.png\x8a\x01\x01u.")
    (out / "python2_0.pkl").write_bytes(b"(dp1\nS'a.png'\np2\nI0\nsS'b\\x41\\n.png'\np3\nL1L\ns.")


if __name__ == "__main__":
    main()
