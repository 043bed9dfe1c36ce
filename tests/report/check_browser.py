#!/usr/bin/env python3
"""Looks at the pages of `cflux report` in headless Chromium: no complaints in the console, no requests,
nothing wider than a phone, curves where the log's numbers belong (linear and on a log scale), values
under the pointer and by keyboard, pixels of samples, contrast in both colour schemes.

Usage: check_browser.py CFLUX [FOLDER for pictures of the pages]
"""
import base64
import math
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import run_logs as logs
from browser import Browser, Missing
from check_report import Reports, check, counts, document, two_logs

LEAST_CHECKED = 4000
WIDTHS = (1280, 360)

# Elements that end right of the window and are not inside a box that scrolls.
TOO_WIDE = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.wide') || e.matches('.wide'))
    .filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80))"""

# Texts whose contrast with their background is below 4.5, curves below 3 (WCAG 2, AA).
POOR_CONTRAST = """(() => {
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const behind = (e) => {
        if (!e) return [255, 255, 255];
        const [r, g, b, a = 1] = parts(getComputedStyle(e).backgroundColor);
        return a === 1 ? [r, g, b] : a === 0 ? behind(e.parentElement)
            : behind(e.parentElement).map((under, i) => a * [r, g, b][i] + (1 - a) * under);
    };
    const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
    const looked = [...document.querySelectorAll('body *')].filter((e) => !e.matches('script, noscript')).flatMap((e) => {
        const style = getComputedStyle(e), own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
        if (own) return [[e, ratio(parts(e.matches('text') ? style.fill : style.color), behind(e)), 4.5]];
        return e.matches('.curve') ? [[e, ratio(parts(style.stroke), behind(e)), 3]] : [];
    });
    return { looked: looked.length, poor: looked.filter(([, is, least]) => is < least)
        .map(([e, is]) => e.outerHTML.slice(0, 80) + ' ' + is.toFixed(2)) };
})()"""


def address(path):
    return "file://" + path


def quiet(page, name):
    check(page.complaints == [], f"{name}: {page.complaints}")
    check(all(r.startswith("file:") for r in page.requests) and len(page.requests) == 1, f"{name}: {page.requests}")


def check_layout(browser, path, name, pictures):
    for width in WIDTHS:
        for dark in (False, True):
            page = browser.open(address(path), width=width, dark=dark)
            where = f"{name} at {width}, {'dark' if dark else 'light'}"
            quiet(page, where)
            check(page.value("document.documentElement.scrollWidth") <= width, f"{where}: wider than the window")
            check(page.value(TOO_WIDE) == [], f"{where}: {page.value(TOO_WIDE)}")
            contrast = page.value(POOR_CONTRAST)
            check(contrast["looked"] > 20 and contrast["poor"] == [], f"{where}: {contrast}")
            if pictures:
                page.picture(os.path.join(pictures, f"{name}-{width}{'-dark' if dark else ''}.png"))
            page.close()


def check_structure(page, title, *sections):
    headings = page.value("[...document.querySelectorAll('h1, h2')].map(e => e.localName + ' ' + e.textContent)")
    check(headings == ["h1 " + title] + ["h2 " + name for name in sections], headings)
    check(page.value("[...document.querySelectorAll('tbody tr')].every(r => r.firstChild.matches('th[scope=row]'))"), "rows have headers")
    check(page.value("[...document.querySelectorAll('thead th')].every(h => h.scope === 'col')"), "columns have headers")
    check(page.value("[...document.querySelectorAll('canvas, svg')].every(e => e.getAttribute('aria-label').length > 5)"), "images have texts")
    check(page.value("[...document.querySelectorAll('input')].every(e => e.labels.length === 1)"), "boxes have labels")
    check(page.value("document.title") == title, "title")


def check_paper(browser, path):
    """Printed by a reader whose screen is dark."""
    page = browser.open(address(path), width=718)
    page.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    contrast = page.value(POOR_CONTRAST)
    check(contrast["looked"] > 20 and contrast["poor"] == [], f"on paper: {contrast}")
    check(page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "paper is white")
    check(page.value("[...document.querySelectorAll('input, output, details')].every(e => !e.checkVisibility())"), "nothing to click on paper")
    check(page.value(TOO_WIDE) == [], page.value(TOO_WIDE))
    paper = base64.b64decode(page.call("Page.printToPDF")["data"])
    check(paper.startswith(b"%PDF") and len(paper) > 5000, "it prints")
    page.close()


# ---- curves -----------------------------------------------------------------------------------------------

def figure(page, number):
    """The frame of a figure and the numbers in the paths of its series."""
    frame = page.value(f"({{...document.querySelectorAll('svg')[{number}].dataset}})")
    paths = page.value(f"Object.fromEntries([...document.querySelectorAll('svg')[{number}].querySelectorAll('g')]"
                       ".map(g => [g.dataset.series, [...g.querySelectorAll('path')].map(p => p.getAttribute('d'))]))")
    return {k: v == "true" if k == "log" else float(v) for k, v in frame.items()}, paths


def pixel(frame, x, y):
    """Where a point belongs, by the frame's own account of its bounds."""
    scale = math.log10 if frame["log"] else float
    across = (x - frame["first"]) / (frame["final"] - frame["first"])
    up = (scale(y) - scale(frame["low"])) / (scale(frame["high"]) - scale(frame["low"]))
    return (frame["left"] + (frame["right"] - frame["left"]) * across, frame["bottom"] - (frame["bottom"] - frame["top"]) * up)


def check_path(path, frame, xs, ys, what):
    found = [tuple(map(float, p.split())) for p in re.split("[MLZ]", path) if p]
    points = [(x, y) for x, y in zip(xs, ys) if y is not None and (y > 0 or not frame["log"])]
    check(len(found) == len(points) > 0, f"{what}: {len(found)} points, expected {len(points)}")
    for (x, y), got in zip(points, found):
        want = pixel(frame, x, y)
        check(abs(got[0] - want[0]) < 0.01 and abs(got[1] - want[1]) < 0.01, f"{what} at {x}, {y}: {got}, expected {want}")


def check_loss(page, made, what):
    frame, paths = figure(page, 0)
    steps, epochs = made["steps"], made["epochs"]
    values = {m["name"]: m["values"] for m in epochs["metrics"]}
    band, loss = paths["loss"] if "least" in steps else [None] + paths["loss"]
    check_path(loss, frame, steps["step"], steps["loss"], what + ", loss")
    if band:
        check_path(band, frame, steps["step"] + steps["step"][::-1], steps["most"] + steps["least"][::-1], what + ", band")
    check_path(paths["smoothed"][0], frame, steps["step"], steps["smooth"], what + ", smoothed")
    check_path(paths["mean of the epoch"][0], frame, epochs["step"], values["loss"], what + ", epochs")
    check_path(paths["validation loss"][0], frame, epochs["step"], values["validation_loss"], what + ", validation")
    check(frame["low"] <= min(steps["loss"]) and frame["high"] >= max(steps["loss"]), what + ": bounds")
    return frame


def check_curves(browser, path, name):
    made, _ = document(path)
    page = browser.open(address(path))
    check(not check_loss(page, made, name)["log"], "linear at first")
    page.value("document.querySelector('.keys label:last-child input').click()")
    check(check_loss(page, made, name + ", log scale")["log"], "log scale")
    page.value("document.querySelector('.keys label:last-child input').click()")
    frame, paths = figure(page, 1)
    accuracy = next(m["values"] for m in made["epochs"]["metrics"] if m["name"] == "accuracy")
    check_path(paths["accuracy"][0], frame, made["epochs"]["step"], accuracy, name + ", accuracy")
    page.value("document.querySelector('.keys input').click()")
    check(set(figure(page, 0)[1]) == {"smoothed", "mean of the epoch", "validation loss"}, "a series can be hidden")
    quiet(page, name)
    page.close()


def check_pointing(browser, path):
    made, _ = document(path)
    steps, page = made["steps"], browser.open(address(path))
    frame, _ = figure(page, 0)
    said = "document.querySelector('output').textContent"
    at = page.value("(r => [r.left, r.top])(document.querySelector('svg').getBoundingClientRect())")
    for i in (0, 7, len(steps["step"]) // 2, len(steps["step"]) - 1):
        x, y = pixel(frame, steps["step"][i], steps["loss"][i])
        page.move(at[0] + x, at[1] + y)
        words = page.value(said)
        check(words.startswith(f"training step {steps['step'][i]} · epoch {steps['epoch'][i]} · "), words)
        check("loss " + format(float(format(steps["loss"][i], ".4g")), "g") in words, words)
    page.value("document.querySelector('svg').focus()")
    page.press("Home")
    page.press("ArrowRight")
    check(page.value(said).startswith(f"training step {steps['step'][1]} ·"), page.value(said))
    page.press("End")
    check(page.value(said).startswith(f"training step {steps['step'][-1]} ·"), page.value(said))
    page.close()


# ---- the rest ---------------------------------------------------------------------------------------------

def check_tables(browser, path):
    made, _ = document(path)
    page = browser.open(address(path))
    check_structure(page, "Training on digits.csv.gz", "Loss", "Accuracy", "Confusion matrix", "Sample predictions", "Model", "Settings", "Epochs")
    cells = page.value("[...document.querySelectorAll('.heat tbody tr')].map(r => [...r.querySelectorAll('td')].map(c => c.textContent))")
    for row, counted in zip(cells, made["confusion"], strict=True):
        check(list(map(int, row[:-1])) == counted, f"confusion matrix: {row}")
    pixels = page.value("[...document.querySelectorAll('canvas')].map(c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data])")
    for got, sample in zip(pixels, made["samples"], strict=True):
        grey = base64.b64decode(sample["pixels"])
        check(got == [v for g in grey for v in (g, g, g, 255)], "pixels of a sample")
    check(page.value("document.querySelectorAll('.wrong').length") == sum(not s["right"] for s in made["samples"]) == 1, "wrong guesses")
    sizes = page.value("[...document.querySelectorAll('tbody tr')].map(r => [...r.children].map(c => c.textContent)).find(r => r[0].startsWith('Pairwise'))[1]")
    check(sizes == "5 × 32, 7 × 32", f"sizes of a tuple: {sizes}")
    page.value("document.querySelector('details').open = true")
    page.value("new Promise(done => setTimeout(done, 50))")
    check(page.value("document.querySelectorAll('details tbody tr').length") == made["epochs"]["logged"], "every epoch as numbers")
    quiet(page, "tables")
    page.close()


def check_two(browser, reports):
    """Two runs side by side: their curves in one figure, their scores, the settings that differ."""
    names = ["first.jsonl", "second.jsonl"]
    inputs = [reports.make(log, name).replace(".html", ".jsonl") for log, name in zip(two_logs(), ("first", "second"))]
    path = os.path.join(reports.folder, "two.html")
    check(reports.run(*inputs, "-o", path).returncode == 0, "a page of two logs")
    made, _ = document(path)
    page = browser.open(address(path), width=360)
    check_structure(page, "Two training runs on digits.csv.gz and letters.csv", "Scores", "Warnings", "Loss", "Accuracy", "Settings that differ",
                    "Settings", *("Confusion matrix: " + name for name in names), *("Epochs: " + name for name in names))
    check(page.value(TOO_WIDE) == [], page.value(TOO_WIDE))
    frame, paths = figure(page, 0)
    accuracy_frame, accuracy = figure(page, 1)
    for run, name in zip([made, made["other"]], names, strict=True):
        steps, epochs = run["steps"], run["epochs"]
        values = {m["name"]: m["values"] for m in epochs["metrics"]}
        check_path(paths[name + ", smoothed"][0], frame, steps["step"], steps["smooth"], name)
        check_path(paths[name + ", mean of the epoch"][0], frame, epochs["step"], values["loss"], name)
        check_path(paths[name + ", validation loss"][0], frame, epochs["step"], values["validation_loss"], name)
        check_path(accuracy[name + ", accuracy"][0], accuracy_frame, epochs["step"], values["accuracy"], name)
    rows = page.value("Object.fromEntries([...document.querySelectorAll('section')].map(s => [s.querySelector('h2').textContent,"
                      " [...s.querySelectorAll('tr')].map(r => [...r.children].map(c => c.firstChild ? c.firstChild.textContent : ''))]))")
    scores = {r[0]: r[1:] for r in rows["Scores"]}
    check(scores[""] == names and scores["Training steps"] == ["40", "300"], f"scores: {scores}")
    check(scores["Run"] == ["finished", "interrupted"] and scores["Mean F1"] == ["0.75", "–"], f"scores: {scores}")
    differ = {r[0]: r[1:] for r in rows["Settings that differ"]}
    check(set(differ) == {"", "model", "batchsize", "path", "train", "validation", "classes"}, f"settings: {sorted(differ)}")
    check(differ["batchsize"] == ["16", "32"] and differ["train"] == ["1438", "–"], f"settings: {differ}")
    equal = {r[0] for r in rows["Settings"]}
    check({"loss", "optimiser", "seed", "epochs", "parameters", "target"} <= equal and not equal & set(differ), f"settings: {equal}")
    page.value("document.querySelector('svg').focus()")
    page.press("End")
    words = page.value("document.querySelector('output').textContent")
    check(words.startswith("training step 300 · second.jsonl, smoothed") and "first" not in words, words)
    quiet(page, "two runs")
    page.close()


def check_nasty(browser, path):
    page = browser.open(address(path), width=360)
    quiet(page, "nasty")
    check(page.value("window.broken === undefined && document.scripts.length === 2"), "a text of the log was run")
    check(page.value("document.querySelectorAll('img, main script').length") == 0, "a text of the log became an element")
    check(page.value("document.querySelector('pre').textContent") == logs.NASTY, "a text of the log is shown as it is")
    check(page.value(TOO_WIDE) == [], page.value(TOO_WIDE))
    page.close()


def check_odd(browser, reports):
    """Logs with little in them."""
    one = logs.line(event="step", step=1, epoch=1, loss=2, seconds=1)
    nothing = logs.line(event="step", step=1, epoch=1, loss=None, seconds=None)
    for name, log in [("start", logs.start()), ("one", one), ("nan", logs.start() + nothing * 30), ("end", logs.end(samples=[])),
                      ("epochs", logs.line(event="epoch", epoch=1, step=9, accuracy=0.5) * 2),
                      ("constant", logs.start() + one * 30), ("huge", one.replace("2", "1e308") + one.replace("2", "-1e308"))]:
        page = browser.open(address(reports.make(log, name)))
        quiet(page, name)
        check(page.value("document.querySelectorAll('.tiles div').length") > 1, f"{name}: the page is drawn")
        check(page.value("!/NaN|Infinity|undefined|null/.test(document.getElementById('main').innerHTML)"),
              f"{name}: {page.value('document.getElementById(`main`).innerHTML')}")
        page.close()


def main():
    pictures = sys.argv[2] if len(sys.argv) > 2 else None
    try:
        browser = Browser()
    except Missing as why:
        print(f"skipped: reports in a browser: {why}")
        return
    with tempfile.TemporaryDirectory() as folder, browser:
        reports = Reports(os.path.abspath(sys.argv[1]), folder)
        few = reports.make(logs.start() + logs.steps(400) + logs.end(), "few")
        many = reports.make(logs.start() + logs.steps(10000, epochs=50, shared=7) + logs.end(24, 28), "many")
        nasty = reports.make(logs.nasty(), "nasty")
        for path, name in [(few, "few"), (many, "many"), (nasty, "nasty")]:
            check_layout(browser, path, name, pictures)
        for path, name in [(few, "few"), (many, "many")]:
            check_curves(browser, path, name)
        check_pointing(browser, few)
        check_tables(browser, few)
        check_paper(browser, few)
        check_two(browser, reports)
        check_nasty(browser, nasty)
        check_odd(browser, reports)
    print(f"{counts['checked']} things checked")
    if counts["checked"] < LEAST_CHECKED:
        sys.exit(f"expected at least {LEAST_CHECKED}")


if __name__ == "__main__":
    main()
