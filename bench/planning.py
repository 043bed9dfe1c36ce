#!/usr/bin/env python3
"""Draws the figure about planning of docs/performance.md: planning.py bench/results/2026-11-23-planning.jsonl >docs/planning.svg

Both axes are logarithmic, so a line of slope 1 is a time proportional to the number of nodes. The rows are those of the page's
table, in the format of bench_runner.
"""
import json
import math
import sys

COLORS = {"elementwise chain": "#0072B2", "sums of one array": "#D55E00", "softmax layers": "#009E73", "normalisation layers": "#CC79A7",
          "independent results": "#E69F00", "Dense layers": "#000000"}
LEFT, TOP, WIDTH, HEIGHT = 60, 20, 480, 320  # the area of the lines, in a picture of 720 × 400
NODES, MILLISECONDS = (2.7, 5.2), (-1, 2.6)  # decades of the axes
GOAL = 1e5, 200                              # nodes, milliseconds


def at(nodes, ms):
    x = LEFT + WIDTH * (math.log10(nodes) - NODES[0]) / (NODES[1] - NODES[0])
    y = TOP + HEIGHT * (MILLISECONDS[1] - math.log10(ms)) / (MILLISECONDS[1] - MILLISECONDS[0])
    return round(x, 1), round(y, 1)


def text(x, y, words, anchor="middle", color="#333"):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}">{words}</text>'


def axes():
    for decade in range(math.ceil(NODES[0]), math.floor(NODES[1]) + 1):
        x, _ = at(10 ** decade, 1)
        yield f'<path d="M{x} {TOP}V{TOP + HEIGHT}" stroke="#ddd"/>' + text(x, TOP + HEIGHT + 18, f"{10 ** decade:,}")
    for decade in range(math.ceil(MILLISECONDS[0]), math.floor(MILLISECONDS[1]) + 1):
        _, y = at(1, 10 ** decade)
        yield f'<path d="M{LEFT} {y}H{LEFT + WIDTH}" stroke="#ddd"/>' + text(LEFT - 8, y + 4, f"{10.0 ** decade:g}", "end")
    yield text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, "nodes of the graph")
    yield text(LEFT + 4, TOP + 12, "milliseconds to make its plan", "start")


def apart(labels, least=15):
    """Moves labels that are less than `least` below the previous one down."""
    previous = -least
    for y, name in sorted(labels):
        previous = max(y, previous + least)
        yield previous, name


def plot(path):
    lines = {}
    with open(path, encoding="utf-8") as f:
        for row in map(json.loads, f):
            if row["row"] == "case":
                lines.setdefault(row["case"].split("/")[1], []).append((row["nodes"], row["median"]))
    print('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 400" font-family="sans-serif" font-size="12">')
    print('<rect width="720" height="400" fill="#fff"/>')
    print("\n".join(axes()))
    for name, points in lines.items():
        path = "L".join(f"{x} {y}" for x, y in (at(*p) for p in sorted(points)))
        print(f'<path d="M{path}" fill="none" stroke="{COLORS[name]}" stroke-width="2"/>')
    ends = [(at(*max(points))[1], name) for name, points in lines.items()]
    for y, name in apart(ends):
        print(text(LEFT + WIDTH + 8, round(y + 4, 1), name, "start", COLORS[name]))
    x, y = at(*GOAL)
    print(f'<circle cx="{x}" cy="{y}" r="4" fill="none" stroke="#333"/>' + text(x - 10, y + 4, "goal: at most 0.2 s", "end"))
    print("</svg>")


if __name__ == "__main__":
    plot(sys.argv[1])
