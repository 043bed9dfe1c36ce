#!/usr/bin/env python3
"""tests/unit/test_lists.c has a row for every list of every public function that is given a number of elements.

A list is a pointer to pointers or numbers beside a parameter `n` or `ndims`; memory is a pointer beside a parameter
`size`, `bytes`, `capacity` or `count`. Functions whose pointer is something else are listed in NO_LIST with the reason.
Usage: check_lists.py [root]
"""
import collections
import glob
import os
import re
import sys

from check_shared_trees import declarations

LEAST = 65
NO_LIST = {
    "calls fx_tokenizer_encode_texts with the list": "fx_predict_texts",
    "calls fx_tokenizer_decode with the memory": "fx_predicted_text",
}
INTEGER = r"(?:int|int32_t|int64_t|size_t)"
LIST = r"(?:\*(?:const )?\*\w+|^const (?:int64_t|double|size_t) \*\w+)$"
MEMORY = r"^(?:(?:const )?char|const void) \*\w+$|^void \*dst$"
OUT = r"\*out_(?!gradients)\w+$"


def parameters(text):
    """The parameters of a declaration, split at the commas outside of parentheses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def lists_of(text):
    """The number of rows that a function with these parameters needs."""
    parts = parameters(text)
    if any(re.fullmatch(INTEGER + r" (?:n|ndims)", p) for p in parts):
        return sum(bool(re.search(LIST, p)) and not re.search(OUT, p) for p in parts)
    numbers = [i for i, p in enumerate(parts) if re.fullmatch(INTEGER + r" (?:size|bytes|capacity|count)", p)]
    return sum(bool(re.search(MEMORY, p)) for i in numbers for p in parts[max(i - 1, 0):i])


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", ".."))
    needed = {}
    for path in sorted(glob.glob(os.path.join(root, "include", "cflux", "*.h"))):
        with open(path, encoding="utf-8") as f:
            needed.update((name, lists_of(p)) for name, p in declarations(f.read()))
    with open(os.path.join(root, "tests", "unit", "test_lists.c"), encoding="utf-8") as f:
        test = f.read()
    rows = collections.Counter(re.findall(r'(?:\bROW\(|\bOF\(\w+, |\{")(fxi?_\w+)', test))
    exempt = {name for names in NO_LIST.values() for name in names.split()}
    errors = [f"{name} is given {n} lists and has {rows[name]} rows in test_lists.c"
              for name, n in sorted(needed.items()) if n > rows[name] and name not in exempt]
    errors += [f"{name} has a row, but no header declares it" for name in sorted(set(rows) - set(needed))]
    errors += [f"{name} is in NO_LIST, but needs no row" for name in sorted(exempt) if not needed.get(name)]
    count = sum(n > 0 for n in needed.values())
    if count < LEAST:
        errors.append(f"found {count} functions only, expected at least {LEAST}")
    for e in errors:
        print(e, file=sys.stderr)
    print(f"{count} functions are given lists, {len(rows)} have rows, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
