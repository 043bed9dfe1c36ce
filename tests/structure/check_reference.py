#!/usr/bin/env python3
"""Every public name of the headers has a comment that documents it.

Public are functions and types fx_…, macros fx_… and FX_…, and constants FX_…. A name is documented by a
comment directly above it, at the end of its line, or above the unbroken group of declarations to which it belongs; a constant also by the comment of its enum; a macro also by that of the function that it calls.
The reference of the site is made of the same comments (docs/tools/reference.py).
Usage: check_reference.py [root]
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST = 600


def undocumented(root):
    """(number of names, the names without a comment)."""
    sys.path.insert(0, os.path.join(HERE, "..", "..", "docs", "tools"))
    import headers
    found = headers.symbols(root)
    return len(found), sorted((s.header, s.line, s.name) for s in found.values() if not s.documented)


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", ".."))
    count, missing = undocumented(root)
    for header, line, name in missing:
        print(f"include/cflux/{header}:{line}: {name} has no comment", file=sys.stderr)
    if count < LEAST:
        print(f"found {count} names only, expected at least {LEAST}", file=sys.stderr)
    print(f"{count} public names, {len(missing)} without a comment")
    return 1 if missing or count < LEAST else 0


if __name__ == "__main__":
    sys.exit(main())
