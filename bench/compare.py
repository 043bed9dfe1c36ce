#!/usr/bin/env python3
"""Compares two result files case by case: medians, minima, and the ratio of the medians.

If a file has several variants of a case, as files of peers do, the variant with the lowest median is
used. Cases that only one file contains are listed below the table; a case whose units differ is left
out. A ratio above 1 means that B is slower (or larger) than A. A star marks a row that other programs
disturbed.

Usage: compare.py A.jsonl B.jsonl
"""
import json
import sys


def best_rows(rows):
    """Returns the row with the lowest median of each case, in the order of the rows."""
    found = {}
    for row in rows:
        if row["row"] == "case" and row["median"] < found.get(row["case"], {"median": float("inf")})["median"]:
            found[row["case"]] = row
    return found


def read(path):
    """Returns the last header of a file, and its best rows."""
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    return next((row for row in reversed(rows) if row["row"] == "header"), {}), best_rows(rows)


def quantity(value, unit):
    """Returns a value as text, with three significant digits and a suitable unit."""
    if unit == "us":
        for limit, factor, name in ((1e3, 1, "µs"), (1e6, 1e-3, "ms"), (float("inf"), 1e-6, "s")):
            if value < limit:
                return f"{value * factor:.3g} {name}"
    if unit == "bytes":
        return f"{value / 1e6:.2f} MB"
    return f"{value:.3g} {unit}"


def shown(row, key="median"):
    return quantity(row[key], row["unit"]) + ("*" if row.get("contended") else "")


def name_of(header, path):
    return f"{header.get('program', path)} {header.get('version', '')}".strip()


def table(a, b, title_a, title_b):
    lines = [f"| case | {title_a} | {title_b} | ratio | minima |", "|---|---:|---:|---:|---:|"]
    for case, x in a.items():
        y = b.get(case)
        if y is None or y["unit"] != x["unit"]:
            continue
        ratio = f"{y['median'] / x['median']:.2f}" if x["median"] > 0 else "–"
        variant = "" if y["variant"] in ("cflux", "eager") else f" ({y['variant']})"
        lines.append(f"| {case} | {shown(x)} | {shown(y)}{variant} | {ratio} "
                     f"| {shown(x, 'min')}, {shown(y, 'min')} |")
    return lines


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    (head_a, a), (head_b, b) = read(sys.argv[1]), read(sys.argv[2])
    print("\n".join(table(a, b, name_of(head_a, "A"), name_of(head_b, "B"))))
    for rows, others, title in ((a, b, "A"), (b, a, "B")):
        alone = [f"{case} {shown(row)}" for case, row in rows.items() if case not in others]
        if alone:
            print(f"\nonly in {title}: " + "; ".join(alone))
    return 0


if __name__ == "__main__":
    sys.exit(main())
