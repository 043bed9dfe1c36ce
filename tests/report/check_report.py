#!/usr/bin/env python3
"""Checks the pages that `cflux report` makes: parsed as HTML, their document compared with the log number
by number; thinning, smoothing and times computed again here; size; what is refused.

Usage: check_report.py CFLUX
"""
import base64
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from html.parser import HTMLParser

import run_logs as logs

LARGEST = 300 * 1000
LEAST_CHECKED = 20000
STRETCHES, WINDOW_PART = 750, 50
VOID = {"meta", "link", "br", "img", "input"}
counts = {"checked": 0}


def check(good, what):
    counts["checked"] += 1
    if not good:
        raise AssertionError(what)


def near(a, b, what):
    """Returns whether both are equal to the six digits that a page has; None means NaN."""
    if a is None or b is None or math.isnan(b):
        check(a is None and (b is None or math.isnan(b)), f"{what}: {a}, expected {b}")
    else:
        check(abs(a - b) <= 6e-6 * abs(b) + 1e-300, f"{what}: {a}, expected {b}")


class Outline(HTMLParser):
    """The elements of a page in their order, the text of its scripts, and whether every element is closed."""
    def __init__(self, text):
        super().__init__(convert_charrefs=False)
        self.open, self.elements, self.scripts, self.attributes = [], [], [], []
        self.feed(text)
        self.close()
        check(not self.open, f"elements that are not closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        self.elements.append(tag)
        self.attributes += attributes
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        check(self.open and self.open.pop() == tag, f"</{tag}> closes nothing")

    def handle_data(self, text):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += text


class Reports:
    def __init__(self, cflux, folder):
        self.cflux, self.folder = cflux, folder

    def run(self, *arguments, text=None):
        return subprocess.run([self.cflux, "report", *arguments], input=text, capture_output=True, text=True, cwd=self.folder)

    def make(self, log, name="run"):
        """The path of the page of a log."""
        source, page = (os.path.join(self.folder, name + end) for end in (".jsonl", ".html"))
        with open(source, "w", encoding="utf-8") as f:
            f.write(log)
        ran = self.run(source, "-o", page)
        check(ran.returncode == 0 and ran.stdout == "", f"{name}: exit status {ran.returncode}: {ran.stderr}")
        return page


def read(page):
    with open(page, encoding="utf-8") as f:
        return f.read()


def document(page):
    outline = Outline(read(page))
    check(len(outline.scripts) == 2, "a page has two scripts")
    return json.loads(outline.scripts[0]), outline


def events(log, kind):
    return [e for e in map(json.loads, log.splitlines()) if e["event"] == kind]


# ---- what the log says, computed here -----------------------------------------------------------------

def extremes(lines):
    """The numbers of the lines that a thinned curve shows."""
    n, shown = len(lines), {0, len(lines) - 1}
    low = [l.get("least", l["loss"]) for l in lines]
    high = [l.get("most", l["loss"]) for l in lines]
    for s in range(STRETCHES):
        stretch = range(n * s // STRETCHES, n * (s + 1) // STRETCHES)
        for column in (low, high):
            shown |= {min(stretch, key=column.__getitem__), max(stretch, key=column.__getitem__)}
    return sorted(shown)


def check_steps(steps, lines, thinned):
    shown = extremes(lines) if thinned else range(len(lines))
    check(steps["logged"] == len(lines) and steps["drawn"] == len(shown), "counts of lines")
    widest = len(lines) // WINDOW_PART // 2 + 1
    for k, i in enumerate(shown):
        event, where = lines[i], f"line of step {lines[i]['step']}"
        check(steps["step"][k] == event["step"] and steps["epoch"][k] == event["epoch"], where)
        for name in ["loss", "seconds"] + (["least", "most"] if "least" in event else []):
            near(steps[name][k], event[name], f"{where}, {name}")
        half = min(widest, i, len(lines) - 1 - i)
        window = lines[i - half:i + half + 1]
        weights = [l.get("steps", 1) for l in window]
        near(steps["smooth"][k], sum(l["loss"] * w for l, w in zip(window, weights)) / sum(weights), f"{where}, smooth")
    for name in ["epoch", "seconds", "loss", "smooth"]:
        check(len(steps[name]) == len(steps["step"]), f"length of {name}")
    check(steps["window"] == 2 * widest + 1, "window")


def check_epochs(epochs, lines):
    check(epochs["logged"] == epochs["drawn"] == len(lines) == len(epochs["epoch"]), "every epoch is there")
    check([m["name"] for m in epochs["metrics"]] == ["loss", "validation_loss", "accuracy"], "metrics")
    for i, event in enumerate(lines):
        check(epochs["epoch"][i] == event["epoch"] and epochs["step"][i] == event["step"], f"epoch {i}")
        for m in epochs["metrics"]:
            near(m["values"][i], event[m["name"]], f"epoch {i}, {m['name']}")


def check_times(times, lines):
    each = []
    for before, event in zip(lines, lines[1:]):
        if before["epoch"] == event["epoch"]:
            steps = event.get("steps", 1)
            each += [(event["seconds"] - before["seconds"]) / steps] * steps
    each.sort()
    for name, part in [("median", 0.5), ("p95", 0.95), ("greatest", 1)]:
        near(times[name], each[math.ceil(part * len(each)) - 1], name)


# ---- the checks -----------------------------------------------------------------------------------------

def check_curves(reports):
    for count, shared, thinned in [(25, 1, False), (400, 4, False), (10000, 1, True), (10000, 7, True)]:
        log = logs.start() + logs.steps(count, epochs=5, shared=shared) + logs.end()
        made, _ = document(reports.make(log))
        lines = events(log, "step")
        check_steps(made["steps"], lines, thinned)
        check_epochs(made["epochs"], events(log, "epoch"))
        check_times(made["times"], lines)
        check(made["warnings"] == [], "no warnings")
    log = logs.start() + logs.steps(5000, epochs=5000)
    made, _ = document(reports.make(log))
    epochs, values = made["epochs"], [e["accuracy"] for e in events(log, "epoch")]
    check(epochs["logged"] == 5000 and 450 < epochs["drawn"] < 1600, "many epochs are thinned")
    for at, value in [(0, values[0]), (-1, values[-1])]:
        near(epochs["metrics"][2]["values"][at], value, "the first and the last epoch")


def check_end(reports):
    """The contents of the end of a log: matrix, layers, samples."""
    colour = {**logs.sample(1, 20, 3), "output": [0.2, 0.8], "target": 0}
    large = {**logs.sample(2, 100), "output": [0.9, 0.1], "target": 1}
    rows = {"input": list(range(40)), "shape": [40], "target": [1.5, 2.5], "output": [1.25, -3]}
    names = ["cat", "dog"]
    numbers = {"input": [1, 2, 3], "shape": [3], "target": 1}
    scored = [{**numbers, "scores": [1.5, -0.25], "guess": 0}, {**numbers, "scores": [0.75], "guess": 1},
              {**numbers, "scores": [0.75], "guess": 7}]
    log = logs.start() + logs.steps(3) + logs.end(classes=names, samples=[colour, large, rows, 17, {}], confusion=[[3, 1], [0, 4]])
    made, _ = document(reports.make(log))
    check(made["confusion"] == [[3, 1], [0, 4]] and made["classes"] == names, "confusion matrix")
    check([l["output"] for l in made["layers"]] == [[6, 6, 4, 32], [3, 3, 4, 32], [[5, 32], [7, 32]], [10, 32]], "layers")
    check("smooth" not in made["steps"], "three lines are not smoothed")
    check("pairs" not in made and "scores" not in made and "columns" not in made, "nothing else")
    first, second, third, empty = made["samples"]
    low, high = min(colour["input"]), max(colour["input"])
    pixels = [math.floor(255 * (x - low) / (high - low) + 0.5) for x in colour["input"]]
    check(list(base64.b64decode(first["pixels"])) == pixels, "pixels")
    check((first["width"], first["height"], first["channels"]) == (20, 20, 3), "size of an image")
    check((first["target"], first["guess"], first["chance"], first["right"]) == ("cat", "dog", 0.8, False), "guess")
    means = [[sum(large["input"][(2 * r + i) * 100 + 2 * c + j] for i in (0, 1) for j in (0, 1)) / 4
              for c in range(50)] for r in range(50)]
    low, high = min(map(min, means)), max(map(max, means))
    small = base64.b64decode(second["pixels"])
    check((second["width"], second["height"]) == (50, 50), "a large image is made smaller")
    for r in range(50):
        for c in range(50):
            check(abs(small[50 * r + c] - 255 * (means[r][c] - low) / (high - low)) <= 0.501, "a pixel of the smaller image")
    check(third["input"] == list(range(16)) and third["length"] == 40, "numbers")
    check(third["target"] == [1.5, 2.5] and third["guess"] == [1.25, -3] and "right" not in third, "a regression")
    check(empty["input"] == [] and empty["length"] == 0, "a sample without anything")
    made, _ = document(reports.make(logs.start() + logs.steps(3) + logs.end(classes=names, samples=scored)))
    first, second, third = made["samples"]
    check((first["guess"], first["score"], first["right"]) == ("cat", 1.5, False), "scores of two classes")
    check((second["guess"], second["score"], second["right"]) == ("dog", 0.75, True), "one score")
    check(third["target"] == [1] and third["guess"] == [0.75], "a guess that is not a class")
    check(not any("chance" in s for s in made["samples"]), "scores are not probabilities")
    wrong = [{**numbers, "output": [5], "worst": True}, {**numbers, "output": [2]}]
    made, _ = document(reports.make(logs.start() + logs.steps(3) + logs.end(
        samples=wrong, columns=["a", "b", "c"], scores={"mae": 0.5, "r2": -1.25}, pairs=[[1, 2.5], [3, None], "x", [4, -5, 6]] * 2)))
    check([s.get("worst") for s in made["samples"]] == [True, None], "the worst mistake")
    check(made["columns"] == ["a", "b", "c"] and made["scores"] == {"mae": 0.5, "r2": -1.25}, "columns and scores")
    check(made["pairs"] == [[1, 2.5], [4, -5]] * 2, "pairs of numbers")
    made, _ = document(reports.make(logs.start() + logs.steps(3) + logs.end(pairs=[[i, i] for i in range(3000)])))
    check(len(made["pairs"]) == 1000, "the number of pairs is limited")


def two_logs():
    """Logs of two runs that differ in the model, the batch size, the path of the data and their lengths."""
    short = logs.start(batchsize=16) + logs.steps(40, epochs=4) + logs.end(step=40, scores={"mean_f1": 0.75})
    data = {"path": "other/letters.csv", "kind": "csv", "observations": 1797, "target": "digit"}
    longer = logs.start(model="Dense(64 => 10)", data=data) + logs.steps(300, epochs=6, seed=2) + logs.end(step=300, why="interrupted")
    return short, longer


def check_two(reports):
    """The page of two logs has both runs: each as on its own page."""
    first, second = two_logs()
    pages = reports.make(first, "first"), reports.make(second, "second")
    page = os.path.join(reports.folder, "two.html")
    inputs = [p.replace(".html", ".jsonl") for p in pages]
    ran = reports.run(*inputs, "-o", page)
    check(ran.returncode == 0 and ran.stdout == ran.stderr == "", f"two logs: {ran}")
    made, outline = document(page)
    _, alone = document(pages[0])
    check(outline.elements == alone.elements and outline.scripts[1] == alone.scripts[1], "the page of two runs has the same script")
    other = made.pop("other")
    for got, path, log in zip((made, {"cflux": made["cflux"], **other}), pages, (first, second)):
        want, _ = document(path)
        check(got == want, f"{path}: the page of two runs has other numbers")
        check_steps(got["steps"], events(log, "step"), False)
        check_epochs(got["epochs"], events(log, "epoch"))
    check(other["warnings"] and not made["warnings"], "the interrupted run has the warning")
    os.remove(page)
    for arguments, words in [
            ([inputs[0], inputs[1]], "--output is missing: the page of two runs needs a name"),
            ([inputs[0], "-", "-o", page], "only the first log can be standard input"),
            ([inputs[0], "nowhere.jsonl", "-o", page], "cannot read nowhere.jsonl"),
            ([inputs[0], pages[1], "-o", page], "is not the log of a training run"),
            ([*inputs, "-o", inputs[1]], "is also an input file"), ([*inputs, inputs[0], "-o", page], "")]:
        ran = reports.run(*arguments, text=first)
        check(ran.returncode == 2 and words in ran.stderr and not os.path.exists(page), f"{arguments}: {ran}")
    check(read(inputs[1]) == second, "the second log is unchanged")
    made = json.loads(Outline(reports.run("-", inputs[1], "-o", "-", text=first).stdout).scripts[0])
    check((made["log"], made["other"]["log"]) == ("standard input", inputs[1]), "the first log from standard input")


def check_size(reports):
    longer = {"samples": [logs.sample(i, 64) for i in range(24)]}
    for shared, epochs in ((1, 200), (7, 200), (7, 1500), (7, 10000)):
        longer = longer if epochs == 200 else {"samples": [logs.sample(i, 28) for i in range(12)]}
        log = logs.start() + logs.steps(10000, epochs=epochs, shared=shared) + logs.end(**longer)
        page = reports.make(log)
        check(os.path.getsize(page) <= LARGEST, f"{os.path.getsize(page)} bytes for 10,000 lines of steps")
        print(f"10,000 lines of steps, each of {shared}, {epochs} epochs: {os.path.getsize(page)} bytes")
    # Any text in a log leaves the page valid.
    wild = logs.start(model="x" * 10**6, data={"classes": ["y" * 10**5] * 1000}, more=[[[[[[[1]]]]]]] * 1000)
    wild += logs.steps(3) + logs.end(confusion=[[1] * 300] * 300, samples=[logs.sample(i, 90, 3) for i in range(60)])
    page = reports.make(wild)
    check(os.path.getsize(page) < 2 * 10**6, f"{os.path.getsize(page)} bytes")
    made, _ = document(page)
    check(len(made["start"]["model"]) == 4001 and made["start"]["model"].endswith("…"), "a long text is cut")
    check("confusion" not in made and "more than 100 classes" in made["warnings"][0], "a large matrix is left out")
    check(len(made["samples"]) == 32, "samples are bounded")


def check_nothing_breaks_out(reports):
    plain, plain_outline = document(reports.make(logs.start() + logs.steps(3)))
    made, outline = document(reports.make(logs.nasty(), "nasty"))
    check(outline.elements == plain_outline.elements, "texts of a log became elements")
    check(outline.scripts[1] == plain_outline.scripts[1], "texts of a log changed the script")
    check(made["start"]["model"] == logs.NASTY and made["start"]["data"]["path"] == logs.NASTY, "texts are as they were")
    check(made["start"][logs.NASTY] == [logs.NASTY, {logs.NASTY: logs.NASTY}], "names are as they were")
    check(made["classes"][0] == logs.NASTY + "0" and made["samples"][1]["guess"] == logs.NASTY + "1", "classes")
    check(made["epochs"]["metrics"][-1]["name"] == logs.NASTY, "metrics")
    check(any(logs.NASTY[:30] in w for w in made["warnings"]), "an event of another kind is named")
    text = read(reports.make(logs.start() + logs.steps(3)))
    check("http" not in text.replace("http://www.w3.org/1999/xhtml", "").replace("http://www.w3.org/2000/svg", "")
          .replace('http-equiv="Content-Security-Policy"', ""), "a page names no address")
    for name, value in plain_outline.attributes:
        check(name not in ("src", "href") and "://" not in value, f"a page loads nothing: {name}={value}")


def check_broken(reports):
    """Incomplete logs give pages with warnings; files that are not logs are refused."""
    whole = logs.start() + logs.steps(30)
    for name, log, warning in [
            ("cut", whole + '{"event":"ste', "last line of the log is damaged"),
            ("killed", whole, "no end"),
            ("nan", whole + logs.line(event="step", step=31, epoch=21, loss=None, seconds=9), "not a finite number at training step 31"),
            ("resumed", whole + logs.start(resumed_at_step=10) + logs.steps(11), "checkpoint of training step 10"),
            ("interrupted", whole + logs.end(why="interrupted"), "run was interrupted before its end"),
            ("failed", whole + logs.end(why="error", message="train: loss is Inf"), "The run failed: train: loss is Inf"),
            ("headless", logs.steps(30), "no start")]:
        made, _ = document(reports.make(log, name))
        check(any(warning in w for w in made["warnings"]), f"{name}: {made['warnings']}")
    for name, text in [("empty", ""), ("table", "a,b\n1,2\n"), ("page", read(reports.make(whole)))]:
        path, page = (os.path.join(reports.folder, name + end) for end in (".txt", ".out"))
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        ran = reports.run(path, "-o", page)
        check(ran.returncode == 2 and path in ran.stderr and not os.path.exists(page), f"{name}: {ran}")


def check_damaged(reports):
    """Bytes changed, lines lost, doubled and cut: a page that parses, or exit status 2."""
    stream = random.Random(3)
    whole = (logs.nasty() + logs.steps(30) + logs.end()).encode()
    path, page = (os.path.join(reports.folder, "damaged" + end) for end in (".jsonl", ".html"))
    made = 0
    for _ in range(60):
        lines = whole.split(b"\n")
        for _ in range(stream.randrange(4)):
            i, j = stream.randrange(len(lines)), stream.randrange(len(lines))
            lines[i] = [b"", lines[j], lines[i][:stream.randrange(len(lines[i]) + 1)]][stream.randrange(3)]
        damaged = bytearray(b"\n".join(lines))
        for _ in range(stream.choice([0, 1, 5, 200])):
            damaged[stream.randrange(len(damaged))] = stream.choice(b'\0\xff{}[]",:0e-<') if stream.random() < 0.7 else stream.randrange(256)
        with open(path, "wb") as f:
            f.write(damaged)
        ran = reports.run(path, "-o", page)
        check(ran.returncode in (0, 2), f"exit status {ran.returncode}: {ran.stderr}")
        made += ran.returncode == 0 and "cflux" in document(page)[0]
    check(made >= 40, f"pages of {made} damaged logs")


def check_command(reports):
    log = logs.start() + logs.steps(30) + logs.end()
    page = reports.make(log, "named")
    for arguments, status, words in [
            (["nowhere.jsonl"], 2, "cannot read nowhere.jsonl"),
            (["."], 2, "directory"),
            ([], 2, ""), (["named.jsonl", "second"], 2, ""),
            (["named.jsonl", "-o", "nowhere/page.html"], 2, "nowhere/page.html: there is no folder nowhere/"),
            (["named.jsonl", "-o", "/dev/full"], 1, "No space left"),
            (["-"], 2, "--output")]:
        ran = reports.run(*arguments, text="")
        check(ran.returncode == status and words in ran.stderr and ran.stdout == "", f"{arguments}: {ran}")
        check(ran.stderr.count("\n") == 1 or not words, f"one line: {ran.stderr}")
    link = os.path.join(reports.folder, "link")
    os.symlink("through.html", link)
    check(reports.run("named.jsonl", "-o", "link").returncode == 0 and os.path.islink(link), "a link stays")
    check(len(read(os.path.join(reports.folder, "through.html"))) > 1000, "and is written through")
    check(reports.run("-", "-o", "-", text=log).stdout == read(page).replace(os.path.join(reports.folder, "named.jsonl"),
                                                                             "standard input"), "- and -")
    check(reports.run("named.jsonl").returncode == 0, "without a name")
    check(read(os.path.join(reports.folder, "named.jsonl.html")).count("named.jsonl") == 1, "the page beside the log")
    with open(page, "w", encoding="utf-8") as f:
        f.write("old")
    os.chmod(page, 0o600)
    check(reports.run("named.jsonl", "-o", page).returncode == 0 and len(read(page)) > 1000, "an old page is replaced")
    left = [n for n in os.listdir(reports.folder) if n.count(".") > 1 and n != "named.jsonl.html"]
    check(not left, f"temporary files are left: {left}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        reports = Reports(os.path.abspath(sys.argv[1]), folder)
        for part in [check_curves, check_end, check_two, check_size, check_nothing_breaks_out, check_broken, check_damaged, check_command]:
            part(reports)
            print(f"{part.__name__}: ok")
    print(f"{counts['checked']} things checked")
    if counts["checked"] < LEAST_CHECKED:
        sys.exit(f"expected at least {LEAST_CHECKED}")


if __name__ == "__main__":
    main()
