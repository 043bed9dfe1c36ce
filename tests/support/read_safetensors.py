#!/usr/bin/env python3
"""Prints the entries of a safetensors file, one a line. Follows the description of the format, with the
standard library only, and fails if the file differs from it."""
import json
import struct
import sys

CODES = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "U8": "B", "BOOL": "?"}


def values(dtype, data):
    if dtype == "BF16":
        return tuple(struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2))
    return tuple(v[0] for v in struct.iter_unpack("<" + CODES[dtype], data))


def main():
    sys.stdout.reconfigure(encoding="utf-8")
    with open(sys.argv[1], "rb") as f:
        data = f.read()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n].decode("utf-8"))
    assert n % 8 == 0 and data[8:9] == b"{"
    body = data[8 + n:]
    for key, text in header.pop("__metadata__", {}).items():
        print("metadata", key, repr(text))
    at = 0
    for begin, end in sorted(e["data_offsets"] for e in header.values()):
        assert begin == at
        at = end
    assert at == len(body)
    for name, e in header.items():
        begin, end = e["data_offsets"]
        v = values(e["dtype"], body[begin:end])
        count = 1
        for size in e["shape"]:
            count *= size
        assert count == len(v)
        print(name, e["dtype"], e["shape"], v)


main()
