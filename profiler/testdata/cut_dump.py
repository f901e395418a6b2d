#!/usr/bin/env python3
"""Cut some milliseconds out of a file of --profile-raw, as a small fixture for tests.

Keeps the buffers in their order, and of each the records whose host call began within the given
time; device records follow the call that launched them, so that no launch is left without work.
Those without a recorded call are kept by their own time.
"""

import argparse
import struct
import sys
import zlib
from pathlib import Path

HEADER = struct.Struct("<IIIIQQII")  # ChunkHeader in profiler/session/session_file.h
MAGIC = 0x44435057
LAYOUT, TEXTS, BUFFER, CLOCKS, NODES, NOTE, END = range(1, 8)
# Bytes of a record by kind, as in cupti_parse.cpp (longer ones: see layout()), and where its start and correlation are.
COPY, SET, RUNTIME, KERNEL, OVERHEAD, SYNC = 1, 2, 5, 10, 17, 38
BYTES = {COPY: 96, SET: 88, RUNTIME: 40, KERNEL: 216, OVERHEAD: 56, SYNC: 56}
START = {COPY: 16, SET: 16, RUNTIME: 8, KERNEL: 16, OVERHEAD: 20, SYNC: 8}
CORRELATION = {COPY: 44, SET: 44, RUNTIME: 32, KERNEL: 92, SYNC: 24}
KERNEL_NAME = 104


def chunks(data: bytes):
    at = 0
    while at < len(data):
        magic, kind, _, _, _, size, _, _ = HEADER.unpack_from(data, at)
        if magic != MAGIC:
            sys.exit(f"no chunk of a dump at byte {at}")
        yield kind, data[at + HEADER.size : at + HEADER.size + size]
        at += HEADER.size + size


def records(buffer: bytes):
    at = 0
    while at < len(buffer):
        kind = struct.unpack_from("<I", buffer, at)[0]
        if kind not in BYTES:
            sys.exit(f"a record of kind {kind}, which this script does not know")
        yield kind, buffer[at : at + BYTES[kind]]
        at += BYTES[kind]


def layout(payload: bytes) -> None:  # DumpLayout in cupti_dump.h
    _, _, BYTES[KERNEL], BYTES[COPY], _, BYTES[SET], BYTES[RUNTIME], BYTES[SYNC], BYTES[OVERHEAD], _ = struct.unpack(
        "<10I", payload
    )


def number(record: bytes, at: int, form: str = "<Q") -> int:
    return struct.unpack_from(form, record, at)[0]


def correlation(kind: int, record: bytes) -> int:
    return number(record, CORRELATION[kind], "<I")


def texts(payload: bytes):
    at = 0
    while at < len(payload):
        key, of, size = struct.unpack_from("<QII", payload, at)
        yield (of, key), payload[at : at + 16 + size]
        at += 16 + size


def chunk(kind: int, index: int, payload: bytes) -> bytes:
    head = struct.pack("<IIIIQQI", MAGIC, kind, index, 1, len(payload), len(payload), zlib.crc32(payload))
    return head + struct.pack("<I", zlib.crc32(head)) + payload


def cut(data: bytes, begin: int, end: int) -> bytes:
    calls = {}  # by correlation: begin
    for kind, payload in chunks(data):
        if kind == LAYOUT:
            layout(payload)
        if kind == BUFFER:
            calls |= {correlation(k, r): number(r, START[k]) for k, r in records(payload) if k == RUNTIME}

    def is_kept(kind: int, record: bytes) -> bool:
        own = number(record, START[kind])
        at = own if kind == OVERHEAD else calls.get(correlation(kind, record), own)
        return begin <= at < end

    out, used = [], set()
    for kind, payload in chunks(data):
        if kind == BUFFER:
            kept = [(k, r) for k, r in records(payload) if is_kept(k, r)]
            used |= {(0, number(r, KERNEL_NAME)) for k, r in kept if k == KERNEL}
            used |= {(1, number(r, 4, "<I")) for k, r in kept if k == RUNTIME}
            payload = b"".join(r for _, r in kept)
        if payload or kind not in (BUFFER, TEXTS):
            out.append((kind, payload))
    out = [(k, b"".join(t for key, t in texts(p) if key in used) if k == TEXTS else p) for k, p in out]
    return b"".join(chunk(k, i, p) for i, (k, p) in enumerate(out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path, help="file of --profile-raw, of one window")
    parser.add_argument("out", type=Path, help="fixture to write")
    parser.add_argument("begin_ns", type=int, help="on the clock of the records")
    parser.add_argument("end_ns", type=int)
    args = parser.parse_args()
    args.out.write_bytes(cut(args.dump.read_bytes(), args.begin_ns, args.end_ns))


if __name__ == "__main__":
    main()
