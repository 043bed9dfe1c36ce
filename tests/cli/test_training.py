#!/usr/bin/env python3
"""cflux train, eval and predict: computes their results again from the input and output files, and tests stopped and
killed runs, full disks and bad requests. Usage: test_training.py PROGRAM"""
import csv
import glob
import gzip
import io
import itertools
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import statistics
import subprocess
import time
import unittest

import cli
import formats

NETWORK = "Chain(Dense(64 => 32, relu), Dense(32 => 10))"


def digits():
    with gzip.open(cli.DIGITS, "rt") as f:
        return [[float(v) for v in line.split(",")] for line in f]


def numbers(item):
    """The numbers of a member of a log, in which a single number has no brackets."""
    return item if isinstance(item, list) else [item]


def rows_of(text):
    return list(csv.reader(io.StringIO(text)))


def events(text, kind=None):
    """The parsed lines of a log, each of which must be complete."""
    lines = [json.loads(line) for line in text.decode().splitlines()]
    return [e for e in lines if kind in (None, e["event"])]


class Training(cli.Cli):
    def near(self, a, b, relative=1e-5):
        self.assertLessEqual(abs(a - b), relative * max(1e-6, abs(a), abs(b)), (a, b))

    def table(self, name, rows, header):
        return self.write(name, "\n".join([header, *(",".join(map(str, r)) for r in rows)]) + "\n")

    def line(self, n=200, noise=0.0):
        """a, b and y = 2a − 3b + 1."""
        r = random.Random(1)
        rows = []
        for _ in range(n):
            a, b = r.uniform(-1, 1), r.uniform(5, 9)
            rows.append((f"{a:.5f}", f"{b:.5f}", f"{2 * a - 3 * b + 1 + noise * r.gauss(0, 1):.5f}"))
        return rows

    def animals(self, name="animals.csv", columns=("legs", "weight", "kind"), n=120):
        r = random.Random(2)
        kinds = {"cat": (4, 4), "bird": (2, 1), "big, wild": (4, 90)}
        rows = []
        for i in range(n):
            kind = list(kinds)[i % 3]
            legs, weight = kinds[kind]
            values = {"legs": legs, "weight": round(weight * r.uniform(0.8, 1.2), 3),
                      "kind": f'"{kind}"'}
            rows.append([values[c] for c in columns])
        self.table(name, rows, ",".join(columns))
        return [row[columns.index("kind")].strip('"') if "kind" in columns else None for row in rows]

    def start(self, *arguments, **more):
        return subprocess.Popen([cli.program, *arguments], cwd=self.folder, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.environment(), **more)

    def wait_for(self, name, text):
        end = time.monotonic() + cli.SECONDS
        while time.monotonic() < end:
            if os.path.exists(self.path(name)) and text in self.read(name):
                return
            time.sleep(0.01)
        self.fail(f"{name} never held {text}")


class Learning(Training):
    def test_several_files(self):
        """Two files with different orders of columns and labels give the same results as one file."""
        r = random.Random(5)
        def rows(kinds):
            return [(k, r.uniform(0, 1) + 2 * len(k), r.uniform(3, 4)) for k in kinds]
        first, second = rows(["dog", "bear"] * 30), rows(["ant", "dog", "cow"] * 15)
        write = lambda name, rows: self.table(name, rows, "kind,size,age")
        write("all.csv", first + second)
        write("one.csv", first)
        self.table("two.csv", [(a, s, k) for k, s, a in second], "age,size,kind")
        network = "Chain(Dense(2 => 8, relu), Dense(8 => 4))"
        for name, files in (("a", ["all.csv"]), ("b", ["one.csv", "two.csv"])):
            self.fine("train", "--data", *files, "--target", "kind", "--model", network, "--epochs", "6",
                      "--seed", "3", "--save", f"{name}.safetensors", "--quiet")
            self.fine("predict", f"{name}.safetensors", "--data", *files, "--target", "kind", "--out", f"{name}.csv")
            ended = self.fine("eval", f"{name}.safetensors", "--data", *files, "--target", "kind", "--json")
            self.assertEqual(ended.json()["observations"], 105)
            self.assertEqual(ended.json()["data"], files[0] + (" and 1 more" if files[1:] else ""))
        self.assertEqual(self.read("a.safetensors"), self.read("b.safetensors"))
        self.assertEqual(self.read("a.csv"), self.read("b.csv"))
        self.assertEqual({row[0] for row in rows_of(self.read("a.csv").decode())[1:]} - {"ant", "bear", "cow", "dog"}, set())
        self.table("numbers.csv", [(1, 2.5, 3.5)] * 3, "kind,size,age")
        self.refused("train", "--data", "one.csv", "numbers.csv", "--target", "kind", "--model", network,
                     words=["the target of one.csv is text, but that of numbers.csv is numbers"])

    def test_digits(self):
        ended = self.fine("train", "--data", cli.DIGITS, "--model", NETWORK, "--validation", "0.2",
                          "--epochs", "8", "--save", "d.bson", "--log", "d.log", "--report", "d.html",
                          "--json")
        self.assertIn("1438 observations of 64, 359 for validation; 10 classes", ended.err)
        self.assertNotIn("\r", ended.err)
        result = ended.json()
        self.assertGreater(result["accuracy"], 0.88)
        self.assertEqual((result["why"], result["epochs"], result["steps"]), ("finished", 8, 8 * 45))
        # The accuracy of eval, from predictions and the file's own labels.
        truth = [int(row[64]) for row in digits()]
        guesses = rows_of(self.fine("predict", "d.bson", "--data", cli.DIGITS).out)
        self.assertEqual(guesses[0], ["prediction"])
        guesses = [int(row[0]) for row in guesses[1:]]
        self.assertEqual(len(guesses), 1797)
        measured = self.fine("eval", "d.bson", "--data", cli.DIGITS, "--json").json()
        right = sum(g == t for g, t in zip(guesses, truth))
        self.assertEqual(measured["accuracy"], right / 1797)
        self.assertEqual(measured["classes"], [str(i) for i in range(10)])
        counts = [[0] * 10 for _ in range(10)]
        for g, t in zip(guesses, truth):
            counts[t][g] += 1
        self.assertEqual(measured["confusion"], counts)
        # The loss, from probabilities.
        chances = rows_of(self.fine("predict", "d.bson", "--data", cli.DIGITS, "--probabilities").out)
        self.assertEqual(chances[0], ["prediction", *(f"class_{i}" for i in range(10))])
        self.assertEqual([int(row[0]) for row in chances[1:]], guesses)
        chances = [[float(v) for v in row[1:]] for row in chances[1:]]
        self.near(measured["loss"], statistics.fmean(-math.log(c[t]) for c, t in zip(chances, truth)), 1e-4)
        for c, g in zip(chances, guesses):
            self.near(sum(c), 1)
            self.assertEqual(c.index(max(c)), g)
        text = self.fine("eval", "d.bson", "--data", cli.DIGITS).out
        self.assertIn(f"accuracy {100 * right / 1797:.2f} % ({right} of 1797)", text)
        # The log and the report.
        log = events(self.read("d.log"))
        self.assertEqual([log[0]["event"], log[-1]["event"]], ["start", "end"])
        start, last = log[0], log[-1]
        self.assertEqual((start["data"]["train"], start["data"]["validation"]), (1438, 359))
        self.assertEqual((start["parameters"], start["loss"]), (2410, "logitcrossentropy"))
        steps = [e for e in log if e["event"] == "step"]
        self.assertEqual(sum(e.get("steps", 1) for e in steps), 8 * 45)
        epochs = [e for e in log if e["event"] == "epoch"]
        self.assertEqual([e["epoch"] for e in epochs], list(range(1, 9)))
        for e in epochs:
            mine = [s for s in steps if s["epoch"] == e["epoch"]]
            mean = sum(s["loss"] * s.get("steps", 1) for s in mine) / 45
            self.near(e["loss"], mean)
        self.near(epochs[-1]["accuracy"], result["accuracy"])
        self.assertEqual(sum(map(sum, last["confusion"])), 359)
        self.near(sum(last["confusion"][i][i] for i in range(10)) / 359, result["accuracy"])
        self.assertEqual([layer["parameters"] for layer in last["layers"]], [2080, 330])
        originals = {tuple(row[:64]): int(row[64]) for row in digits()}
        wrong = [s for s in last["samples"] if s.get("worst")]
        self.assertEqual(len(last["samples"]), 12 + len(wrong))
        for sample in wrong: # by how much the wrong class is more likely, the largest first
            self.assertNotEqual(max(range(10), key=sample["output"].__getitem__), sample["target"])
        gaps = [max(s["output"]) - s["output"][s["target"]] for s in wrong]
        self.assertEqual((gaps, len(wrong) > 1), (sorted(gaps, reverse=True), True))
        self.assertEqual(list(last["scores"]), ["mean_f1"])
        for sample in last["samples"]: # unscaled, as in the file
            self.assertEqual(originals[tuple(round(v, 3) for v in sample["input"])], sample["target"])
        self.assertIn(b"<html", self.read("d.html"))
        self.assertLess(len(self.read("d.html")), 300_000)

    def test_training_steps_are_repeated(self):
        """Five epochs of four batches: the first two training steps are built, the others repeat a recording."""
        self.table("line.csv", self.line(80), "a,b,y")
        ended = self.fine("train", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "5", "-b", "20",
                          FX_TRACE="repeat")
        self.assertGreaterEqual(ended.err.count("repeat: evaluation"), 18)
        self.assertIn("train.c:", ended.err)

    def test_same_seed_same_bits(self):
        files = []
        for name, seed in (("a", 3), ("b", 3), ("c", 4)):
            self.fine("train", "-q", "-d", cli.DIGITS, "-m", NETWORK, "-e", "1", "-s", seed, "-v", "0.3",
                      "-S", name + ".bson")
            files.append(self.read(name + ".bson"))
        self.assertEqual(files[0], files[1])
        self.assertNotEqual(files[0], files[2])

    def test_files_do_not_change_the_numbers(self):
        """Saving the model, the checkpoint, the log or the report leaves every loss as it is."""
        network = "Chain(Dense(64 => 16, relu), Dropout(0.2), Dense(16 => 10))"
        losses = []
        for files in ((), ("-S", "m.safetensors"), ("-S", "m.bson"),
                      ("-S", "n.safetensors", "-c", "c.safetensors", "-L", "l.jsonl", "-r", "r.html")):
            told = self.fine("train", "-q", "-d", cli.DIGITS, "-m", network, "-e", "2", "-s", 3, "-v", "0.3", "--json",
                             *files).json()
            losses.append((told["loss"], told["measured_loss"], told["accuracy"]))
        self.assertEqual(len(set(losses)), 1, losses)

    def test_the_scale_is_that_of_the_data(self):
        rows = self.line()
        self.table("line.csv", rows, "a,b,y")
        ended = self.fine("train", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "300", "-o", "Adam(0.1)",
                          "-S", "m.safetensors")
        self.assertIn("numbers; loss mse", ended.err)
        texts, arrays = formats.read_safetensors(self.read("m.safetensors"))
        self.assertEqual(texts["notation.model"], "Dense(2 => 1)")
        self.assertEqual([texts["text.columns.0"], texts["text.columns.1"]], ["a", "b"])
        columns = [[float(r[k]) for r in rows] for k in range(3)]
        mean, std = arrays["mean"][1], arrays["std"][1]
        for k in range(2):
            self.near(mean[k], statistics.fmean(columns[k]))
            self.near(std[k], statistics.stdev(columns[k]))
        weight, bias = arrays["model.weight"][1], arrays["model.bias"][1][0]
        # For unscaled inputs the weights are those of the line that made the data.
        self.near(weight[0] / std[0], 2, 1e-3)
        self.near(weight[1] / std[1], -3, 1e-3)
        predicted = rows_of(self.fine("predict", "m.safetensors", "-d", "line.csv").out)
        self.assertEqual(predicted[0], ["y"])
        predicted = [float(r[0]) for r in predicted[1:]]
        for i in range(200):
            by_hand = bias + sum(weight[k] * (columns[k][i] - mean[k]) / std[k] for k in range(2))
            self.near(predicted[i], by_hand, 1e-4)
        measured = self.fine("eval", "m.safetensors", "-d", "line.csv", "--json").json()
        error = statistics.fmean((p - y) ** 2 for p, y in zip(predicted, columns[2]))
        self.assertLess(abs(measured["loss"] - error), 1e-5 + 1e-3 * error)
        self.assertNotIn("accuracy", measured)

    def test_the_scale_of_very_large_and_small_numbers(self):
        """The squares of the numbers exceed Float32's range; the scale of a constant column is 1."""
        scales = (1e20, 1e-30, 3e37, 1e-39)
        rows = [(*(f"{float(b) * s:.9e}" for s in scales), "0.1", y) for _, b, y in self.line()]
        self.table("wide.csv", rows, "a,b,c,d,e,y")
        self.fine("train", "-q", "-d", "wide.csv", "-m", "Dense(5 => 1)", "-e", "20", "-S", "m.safetensors")
        arrays = formats.read_safetensors(self.read("m.safetensors"))[1]
        columns = [[formats.float32(float(r[k])) for r in rows] for k in range(5)]
        for k in range(4):
            self.assertLess(abs(arrays["mean"][1][k] / statistics.fmean(columns[k]) - 1), 1e-6, k)
            self.assertLess(abs(arrays["std"][1][k] / statistics.stdev(columns[k]) - 1), 1e-6, k)
        self.assertEqual((arrays["mean"][1][4], arrays["std"][1][4]), (columns[4][0], 1))
        # The model's inputs have mean 0 and standard deviation 1.
        weight, bias = arrays["model.weight"][1], arrays["model.bias"][1][0]
        scaled = [[(v - arrays["mean"][1][k]) / arrays["std"][1][k] for v in columns[k]] for k in range(5)]
        predicted = rows_of(self.fine("predict", "m.safetensors", "-d", "wide.csv").out)[1:]
        self.assertEqual(len(predicted), 200)
        for i, row in enumerate(predicted):
            self.near(float(row[0]), bias + sum(weight[k] * scaled[k][i] for k in range(5)), 1e-4)

    def test_without_a_scale(self):
        self.table("line.csv", self.line(), "a,b,y")
        self.fine("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "--normalise", "none", "-S",
                  "m.safetensors")
        self.assertNotIn("mean", formats.read_safetensors(self.read("m.safetensors"))[1])

    def test_names_of_classes_and_columns(self):
        truth = self.animals()
        self.fine("train", "-q", "-d", "animals.csv", "-m", "Chain(Dense(2 => 8, tanh), Dense(8 => 3))",
                  "-e", "40", "-o", "Adam(0.03)", "-S", "m.bson")
        first = rows_of(self.fine("predict", "m.bson", "-d", "animals.csv").out)
        self.assertEqual(first[0], ["kind"])
        self.assertGreater(sum(r[0] == t for r, t in zip(first[1:], truth)), 110)
        self.assertEqual({r[0] for r in first[1:]}, {"cat", "bird", "big, wild"})
        chances = rows_of(self.fine("predict", "m.bson", "-d", "animals.csv", "-P").out)
        self.assertEqual(chances[0], ["kind", "big, wild", "bird", "cat"])
        self.assertEqual([row[:1] for row in chances], first)
        # Files with another order of columns, or without the target, give the same predictions.
        self.animals("other.csv", ("weight", "kind", "legs"))
        self.animals("bare.csv", ("weight", "legs"))
        for name in ("other.csv", "bare.csv"):
            self.assertEqual(rows_of(self.fine("predict", "m.bson", "-d", name).out), first, name)
        self.assertEqual(self.fine("eval", "m.bson", "-d", "other.csv", "--json").json()["accuracy"],
                         sum(r[0] == t for r, t in zip(first[1:], truth)) / 120)
        self.table("lacks.csv", [(1, "cat")] * 3, "wait,kind")
        self.refused("predict", "m.bson", "-d", "lacks.csv", words=['no column "'])
        self.table("new.csv", [(4, 4, "dog")] * 3, "legs,weight,kind")
        known = 'column "kind": class "dog" is not one of the 3 known, from "big, wild" to "cat"'
        self.refused("eval", "m.bson", "-d", "new.csv", words=f"new.csv: line 2, {known}")
        # Blank lines, line breaks in quotes, lines that are skipped or left out, several files.
        self.write("new.csv", 'made today\nlegs,weight,kind\n4,4,"cat"\n\n4,4,cat\n2,1,dog\n')
        self.refused("eval", "m.bson", "-d", "new.csv", "--skip", 1, words=f"new.csv: line 6, {known}")
        self.write("new.csv", 'legs,weight,note,kind\n4,4,"a\nb",cat\n4,4,c,cat\n4,4,c,dog\n')
        self.refused("eval", "m.bson", "-d", "new.csv", words=f"new.csv: line 5, {known}")
        self.refused("eval", "m.bson", "-d", "animals.csv", "new.csv", words=f"new.csv: line 5, {known}")
        self.refused("train", "-d", "animals.csv", "-v", "new.csv", "-m", "Dense(2 => 3)", "-S", "x.bson", words="new.csv")
        self.write("new.csv", "legs,weight,kind\n4,,cat\n4,4,NA\n4,4,cat\n4,4,dog\n")
        self.fine("train", "-d", "animals.csv", "-m", "Dense(2 => 3)", "-e", 1, "-q", "--missing", "mean", "--save", "mean.bson")
        ended = self.run_cli("eval", "mean.bson", "-d", "new.csv")
        self.assertIn(f"new.csv: line 5, {known}", ended.err)
        self.assertEqual(ended.status, 2)

    def test_two_classes_with_one_output(self):
        rows = [(f"{x / 50 - 1:.3f}", int(x > 40)) for x in range(100)]
        self.table("two.csv", rows, "x,y")
        for loss, least in (("logitbinarycrossentropy", 0.95), ("hinge_loss", 0.95), ("mse", None)):
            self.fine("train", "-q", "-d", "two.csv", "-m", "Dense(1 => 1)", "-l", loss, "-e", "100",
                      "-o", "Adam(0.1)", "-S", "m.bson")
            measured = self.fine("eval", "m.bson", "-d", "two.csv", "--json").json()
            if least is None:
                self.assertNotIn("accuracy", measured)
                continue
            guesses = [r[0] for r in rows_of(self.fine("predict", "m.bson", "-d", "two.csv").out)[1:]]
            right = sum(int(g) == y for g, (_, y) in zip(guesses, rows))
            self.assertEqual(measured["accuracy"], right / 100)
            self.assertGreaterEqual(right / 100, least)

    def arrays(self, path):
        """The arrays of a model, by name, from its safetensors form."""
        self.fine("convert", path, path + ".safetensors")
        return formats.read_safetensors(self.read(path + ".safetensors"))[1]

    def test_weights_of_a_saved_model(self):
        """Matching arrays are copied, frozen layers do not change, and the scale is that of the saved model."""
        self.table("old.csv", [(i % 7, i % 11, i % 5, (i % 7) * 2 + i % 11) for i in range(77)], "a,b,c,y")
        self.table("new.csv", [(i % 5 + 100, i % 3, i % 7, i % 5 - i % 3) for i in range(60)], "a,b,c,y")
        self.fine("train", "-d", "old.csv", "-m", "Chain(Dense(3 => 4, tanh), BatchNorm(4), Dense(4 => 1))",
                  "--regression", "-e", 5, "-q", "-S", "old.bson")
        new = ["train", "-d", "new.csv", "--regression", "--init", "old.bson", "-q", "-m",
               "Chain(Dense(3 => 4, tanh), BatchNorm(4), Dense(4 => 2, relu), Dense(2 => 1))"]
        ended = self.fine(*[v for v in new if v != "-q"], "--freeze", 1, "-e", 3, "-S", "new.bson", "-c", "c")
        self.assertIn("--init old.bson: 6 of 10 arrays copied\n", ended.err)
        self.assertIn("not copied: layers.2.weight, a 2×4 Matrix{Float32}; the file has a 1×4 Matrix{Float32}",
                      ended.err)
        self.assertIn("not copied: layers.3.bias, a 1-element Vector{Float32}; the file has none", ended.err)
        old, made = self.arrays("old.bson"), self.arrays("new.bson")
        for name in ("model.layers.0.weight", "model.layers.0.bias", "mean", "std"):
            self.assertEqual(old[name], made[name], name)
        self.assertNotEqual(old["model.layers.1.beta"], made["model.layers.1.beta"])
        self.fine(*new, "--freeze", 1, "-e", 6, "-S", "resumed.bson", "-c", "c")
        self.fine(*new, "--freeze", 1, "-e", 6, "-S", "whole.bson")
        self.assertEqual(self.read("resumed.bson"), self.read("whole.bson"))
        self.assertNotIn("warning", ended.err)
        self.write("turned.csv", re.sub("^[^\n]*", "c,a,b,y", self.read("new.csv").decode(), count=1))
        ended = self.fine(*["turned.csv" if v == "new.csv" else v for v in new], "-e", 1)
        self.assertRegex(ended.err, 'warning: --init old.bson: input 1 is "c", but it was "\\w+" for the saved model')
        self.fine(*new, "-e", 1, "--normalise", "features", "-S", "own.bson")
        self.assertNotEqual(old["mean"], self.arrays("own.bson")["mean"])

    def test_weights_that_cannot_be_copied(self):
        self.table("line.csv", [(i, i + 0.5) for i in range(20)], "x,y")
        self.fine("train", "-d", "line.csv", "-m", "Dense(1 => 1)", "-q", "-e", 1, "-S", "m.bson")
        model = ["train", "-d", "line.csv", "-m"]
        self.refused(*model, "Chain(Dense(1 => 2), Dense(2 => 1))", "--init", "m.bson",
                     words="--init m.bson: no array of the saved model has the path and sizes")
        self.refused(*model, "Dense(1 => 1)", "--init", "none.bson", words="none.bson")
        self.refused(*model, "Dense(1 => 1)", "--init", "line.csv", words="line.csv")
        self.refused(*model, "Dense(1 => 1)", "--init", "m.bson", "-S", "m.bson", words="m.bson")
        self.refused(*model, "Dense(1 => 1)", "--freeze", 1, words="leaves nothing to train")
        self.refused(*model, "Chain(Dense(1 => 1), tanh)", "--freeze", 1,
                     words="leaves nothing to train: the remaining layers have no parameters")
        self.refused(*model, "Dense(1 => 1)", "--freeze", -1, words="--freeze")

    def rare(self, shift=2.5):
        """A file with 40 rare observations, whose features are shifted, and 760 common ones."""
        draw = random.Random(5)
        rows = []
        for i in range(800):
            by = 0 if i % 20 else shift
            rows.append([draw.gauss(by, 1), draw.gauss(-by, 1), "common" if i % 20 else "rare"])
        self.write("rare.csv", "a,b,kind\n" + "".join(f"{a:.4f},{b:.4f},{c}\n" for a, b, c in rows))
        return [row[2] for row in rows]

    def test_scores_of_each_class(self):
        self.rare()
        self.fine("train", "-d", "rare.csv", "-m", "Dense(2 => 2)", "-e", 20, "-q", "-S", "m.bson")
        measured = self.fine("eval", "m.bson", "-d", "rare.csv", "--json").json()
        (cc, cr), (rc, rr) = measured["confusion"]
        self.assertEqual(measured["classes"], ["common", "rare"])
        self.assertGreater(min(cc, cr, rc, rr), 0)
        want = {"precision": [cc / (cc + rc), rr / (cr + rr)], "recall": [cc / (cc + cr), rr / (rc + rr)],
                "f1": [2 * cc / (2 * cc + rc + cr), 2 * rr / (2 * rr + rc + cr)]}
        for name, values in want.items():
            for got, value in zip(measured[name], values):
                self.assertAlmostEqual(got, value, places=6)
        self.assertAlmostEqual(measured["mean_f1"], sum(want["f1"]) / 2, places=6)
        text = self.fine("eval", "m.bson", "-d", "rare.csv").out
        row = "{:.4f}  {:.4f}  {:.4f}".format(*(want[k][1] for k in ("precision", "recall", "f1")))
        self.assertRegex(text, f"rare +{row} +40\n")

    def test_scores_of_numbers(self):
        """MAE, RMSE and R² from predictions and targets: one target in a table, two in an array."""
        draw = random.Random(9)
        x = [[draw.gauss(0, 1) for _ in range(3)] for _ in range(300)]
        y = [[a + 2 * b + draw.gauss(0, 0.3) + 100, b - c] for a, b, c in x]
        self.table("n.csv", [(*row, one) for row, (one, _) in zip(x, y)], "a,b,c,y")
        self.write("x.npy", formats.npy((300, 3), [v for row in x for v in row]))
        self.write("y.npy", formats.npy((300, 2), [v for row in y for v in row]))
        for data, out, k in ((["-d", "n.csv"], 1, 1), (["-d", "x.npy", "-t", "y.npy"], 2, 2)):
            ended = self.fine("train", *data, "-m", f"Dense(3 => {out})", "--regression", "-e", 4, "-q", "--json",
                              "-o", "Adam(0.5)", "-S", "m.bson").json()
            measured = self.fine("eval", "m.bson", *data, "--json").json()
            lines = self.fine("predict", "m.bson", *data).out.splitlines()[-300:]
            pairs = [list(zip(map(float, line.split(",")), row)) for line, row in zip(lines, y)]
            errors = [[p - v for p, v in row] for row in pairs]
            r2 = []
            for i in range(k):
                target = [row[i] for row in y]
                mean = sum(target) / 300
                r2.append(1 - sum(e[i] ** 2 for e in errors) / sum((v - mean) ** 2 for v in target))
            flat = [e for row in errors for e in row]
            want = {"mae": sum(map(abs, flat)) / len(flat), "r2": sum(r2) / k,
                    "rmse": math.sqrt(sum(e * e for e in flat) / len(flat))}
            for name, value in want.items():
                self.assertAlmostEqual(measured[name] / value, 1, places=4, msg=name)
            self.assertEqual([ended[name] for name in want], [measured[name] for name in want])
            self.assertIn(f"MAE {measured['mae']:.6g}, RMSE", self.fine("eval", "m.bson", *data).out)

    def test_a_constant_target(self):
        """R² is undefined: a word in text, null in JSON."""
        self.table("c.csv", [(i, 5) for i in range(20)], "a,y")
        train = ["train", "-d", "c.csv", "-m", "Dense(1 => 1)", "--regression", "-e", 1, "-q", "-S", "m.bson"]
        for request in (train, ["eval", "m.bson", "-d", "c.csv"]):
            self.assertRegex(self.fine(*request).out, r"(training: loss \S+, |\n)MAE \S+, RMSE \S+, R² undefined\n")
            self.assertIsNone(self.fine(*request, "--json").json()["r2"])

    def test_tables_without_names(self):
        """Lines from standard input have no names: columns are those of training, in their order."""
        draw = random.Random(6)
        rows = [(draw.choice(("red", "blue=2", "blue=1")), i % 7, draw.choice("xy")) for i in range(60)]
        self.table("t.csv", rows, "colour,n,kind")
        self.fine("train", "-d", "t.csv", "-m", "Dense(4 => 2)", "-e", 2, "-q", "-S", "m.bson")
        want = self.fine("predict", "m.bson", "-d", "t.csv", "-P").out
        bare = "".join(f"{c},{n}\n" for c, n, _ in rows)
        for more in ([], ["-d", "-"]):
            self.assertEqual(self.fine("predict", "m.bson", "-P", *more, stdin=bare).out, want)
        whole = "".join(f"{k},{c},{n}\n" for c, n, k in rows)
        self.assertEqual(self.fine("predict", "m.bson", "-P", "-t", 1, stdin=whole).out, want)
        for text, words in (("red,1,2\n", "do not match those of the training data"),
                            ("1,red\n", "do not match"), ("1\n", "do not match"),
                            ("red,1\ngreen,2\n", 'line 2: column "1" contains "green"')):
            self.refused("predict", "m.bson", stdin=text, words=words)

    def test_names_of_observations(self):
        """The column --id is not a feature; predict copies its texts, also in several files."""
        rows = [(f"00{i}", i % 7, "xy"[i % 2]) for i in range(40)]
        self.table("t.csv", rows, "code,n,kind")
        self.table("u.csv", [(b, a) for a, b, _ in rows[:5]], "n,code")
        self.write("v.csv", '"a,b",3\nb,4\n')
        self.fine("train", "-d", "t.csv", "--id", "code", "-m", "Dense(1 => 2)", "-e", 1, "-q", "-S", "m.bson")
        self.assertEqual(self.fine("eval", "m.bson", "-d", "t.csv", "--id", 1, "--json").json()["observations"], 40)
        out = rows_of(self.fine("predict", "m.bson", "-d", "t.csv", "u.csv", "--id", "code").out)
        self.assertEqual(out[0], ["code", "kind"])
        self.assertEqual([r[0] for r in out[1:]], [f"00{i}" for i in [*range(40), *range(5)]])
        self.assertEqual(out[41:], out[1:6])
        out = rows_of(self.fine("predict", "m.bson", "-d", "v.csv", "--id", 1, "-P").out)
        self.assertEqual([r[0] for r in out], ["id", "a,b", "b"])
        self.assertEqual(out[0], ["id", "kind", "x", "y"])
        self.refused("predict", "m.bson", "-d", "t.csv", "--id", "cod", words='no column "cod"; did you mean "code"?')
        # A pipe cannot be read again for a similar name.
        self.refused("predict", "m.bson", "--id", "cod", stdin=self.read("u.csv").decode(),
                     words='/dev/stdin has no column "cod" (--id); it has 2, from "n" to "code"')
        self.refused("predict", "m.bson", "-d", "t.csv", "--id", "n", words='column "n" is a feature of the model')
        self.refused("eval", "m.bson", "-d", "t.csv", "--id", "kind", words="both --id and the target")
        self.write("w.csv", "code,n\nx,1\n,2\n")
        self.refused("predict", "m.bson", "-d", "w.csv", "--id", "code", words="w.csv: line 3, column 1")
        self.write("c.csv", "code,n,y\nNA,1,2\n-,,3\nNULL,3,NA\nFR,4,5\n")
        self.fine("train", "-d", "c.csv", "--id", "code", "-m", "Dense(1 => 1)", "--regression", "--missing", "mean", "-e",
                  1, "-q", "-S", "c.bson")
        out = rows_of(self.fine("predict", "c.bson", "-d", "c.csv", "--id", "code").out)
        self.assertEqual([r[0] for r in out], ["code", "NA", "-", "NULL", "FR"])
        self.write("w.csv", "code,n\nx,1\n,2\n")
        self.refused("predict", "c.bson", "-d", "w.csv", "--id", "code", words="w.csv: observation 2 has no name")
        self.write("x.npy", formats.npy((2, 1), [1, 2]))
        self.refused("predict", "m.bson", "-d", "x.npy", "--id", "code", words="not a CSV file")

    def test_inputs_with_the_answer(self):
        """A copy of the target, in other units or as text, is a warning; a feature that only helps is none."""
        draw = random.Random(8)
        rows = [(draw.gauss(0, 1), v := draw.gauss(0, 1), f"{1.8 * v + 32:.6f}", v + draw.gauss(0, 0.01)) for _ in range(60)]
        self.table("n.csv", [(a, f, near, v) for a, v, f, near in rows], "a,fahrenheit,near,y")
        ended = self.fine("train", "-d", "n.csv", "-m", "Dense(3 => 1)", "--regression", "-e", 1, "-q")
        self.assertEqual(re.findall('feature "(.*?)" has correlation 1 or −1 with the target "y"', ended.err), ["fahrenheit"])
        kinds = [draw.choice("abc") for _ in range(60)]
        self.table("k.csv", [(" xyz".index(chr(ord(k) + 23)), k == "a", k) for k in kinds], "code,is_a,kind")
        self.write("k.csv", self.read("k.csv").replace(b"True", b"1").replace(b"False", b"0"))
        ended = self.fine("train", "-d", "k.csv", "-m", "Dense(2 => 3)", "-e", 1, "-q")
        self.assertEqual(re.findall('feature "(.*?)" has a different value in each class of the target "kind"', ended.err), ["code"])
        # Columns of texts: a name of the class; one that has two names for a class; one that has the same name for two; another.
        names = {"a": "x=1", "b": "y", "c": "x"}
        self.table("t.csv", [(names[k], k + draw.choice("12"), "ab"[k == "c"], draw.choice("pqr"), draw.gauss(0, 1), k) for k in kinds],
                   "name,twice,shared,other,n,kind")
        for more in ([], ["--normalise", "none"], ["--validation", 0.2]):
            ended = self.fine("train", "-d", "t.csv", "-m", "Dense(15 => 3)", "-e", 1, "-q", *more)
            self.assertEqual(re.findall('(.*?) "(.*?)" has a different value in each class of the target "kind"', ended.err),
                             [("cflux train: warning: text column", "name")])
        two = [k for k in kinds if k != "c"]
        self.table("u.csv", [(names[k], draw.choice("pqr"), k) for k in two], "name,other,kind")
        ended = self.fine("train", "-d", "u.csv", "-m", "Dense(5 => 2)", "-e", 1, "-q")
        self.assertEqual(re.findall('text column "(.*?)" has a different value', ended.err), ["name"])

    def test_targets_that_are_out_of_reach(self):
        """A warning names an unscaled target that the training steps cannot reach, or that is very small."""
        draw = random.Random(9)
        rows = [draw.gauss(0, 1) for _ in range(40)]
        for name, shift, scale in (("big", 200000, 100000), ("far", 100, 10), ("usual", 3, 2), ("small", 0, 1e-4)):
            self.table(f"{name}.csv", [(r, repr(shift + scale * (r + draw.gauss(0, 0.1)))) for r in rows], f"a,{name}")
        base = ["-m", "Dense(1 => 1)", "--raw-targets", "--regression", "-q", "-b", 8, "-d"]
        reach = 'the target "{}" has mean .* and standard deviation .*, which {} training steps with the learning rate {} may not reach: use '
        for name in ("big", "far"):
            self.assertRegex(self.fine("train", *base, f"{name}.csv", "-e", 2).err, reach.format(name, 10, "0.001") + "a larger rate")
        # 10·steps·rate is the bound; Descent has steps that grow with the error.
        self.assertEqual(self.fine("train", *base, "far.csv", "-e", 21, "-o", "Adam(0.1)").err, "")
        self.assertRegex(self.fine("train", *base, "big.csv", "-e", 2, "-o", "Adam(0.1)").err, reach.format("big", 10, "0.1") + "more --epochs")
        self.assertEqual(self.fine("train", *base, "far.csv", "-e", 2, "-o", "Descent(0.01)").err, "")
        self.assertEqual(self.fine("train", *base, "usual.csv", "-e", 2).err, "")
        self.assertRegex(self.fine("train", *base, "small.csv", "-e", 2).err, 'the target "small" has standard deviation .*times 1')
        self.assertRegex(self.fine("train", *base, "far.csv", "-e", 2, "--folds", 2).err, '^cflux train: warning: the target "far" [^\\n]*\\n$')
        # Scaled targets are in reach. Targets are not scaled before an activation.
        for name in ("big", "far", "small"):
            rest = ["--regression", "-q", "-e", 2, "-d", f"{name}.csv", "-m"]
            self.assertEqual(self.fine("train", *rest, "Dense(1 => 1)").err, "")
            self.assertRegex(self.fine("train", *rest, "Dense(1 => 1, softplus)").err, "end the model in a Dense layer with a bias and without an activation")

    def test_scaled_targets(self):
        """The saved model predicts in the units of the data: its last layer contains mean and standard deviation of the targets.
        Training with a·y + b instead of y gives the same model, whose predictions are changed in the same way."""
        draw = random.Random(4)
        x = [[draw.gauss(0, 1) for _ in range(3)] for _ in range(150)]
        y = [[v[0] * v[1] + 2 * v[2] + 0.1 * draw.gauss(0, 1), v[0] - v[1]] for v in x]
        units = ((1, 0), (2 ** 17, 400000), (2 ** -10, 0.03))
        for k, (a, b) in enumerate(units):
            self.table(f"{k}.csv", [[*v, *(repr(a * formats.float32(t) + b) for t in w)] for v, w in zip(x, y)], "p,q,r,s,t")
        column = lambda name, k: [float(r[k]) for r in rows_of(self.read(name).decode())[1:]]
        predicted = lambda *args: list(zip(*[map(float, r) for r in rows_of(self.fine("predict", *args).out)[1:]]))
        last = lambda name: [formats.read_safetensors(self.read(name))[1][f"model.layers.1.{w}"][1] for w in ("weight", "bias")]
        # Without training steps, the last layer is that of the raw targets, times the standard deviation, plus the mean.
        still = ["train", "-q", "-d", "1.csv", "-t", "s,t", "-m", "Chain(Dense(3 => 4, tanh), Dense(4 => 2))", "-o", "Descent(0)", "-e", 1]
        self.fine(*still, "-S", "raw.safetensors", "--raw-targets")
        self.fine(*still, "-S", "m.safetensors")
        (raw, _), (weight, bias) = last("raw.safetensors"), last("m.safetensors")
        for k in range(2):
            values = column("1.csv", 3 + k)
            self.near(bias[k], statistics.fmean(values))
            for i in range(4):  # the outputs are the first axis
                self.near(weight[2 * i + k], statistics.stdev(values) * raw[2 * i + k])
        # --init copies what the model predicts, whatever the scale of the new targets is.
        for source in ("raw", "m"):
            told = predicted(f"{source}.safetensors", "-d", "1.csv")
            for name in ("1.csv", "2.csv"):
                self.fine(*still[:3], name, *still[4:], "--init", f"{source}.safetensors", "-S", "i.bson")
                for k, (before, after) in enumerate(zip(told, predicted("i.bson", "-d", "1.csv"))):
                    most = max(map(abs, [*before, *column(name, 3 + k)]))  # Float32 rounds the differences from the mean
                    self.assertLess(max(abs(p - q) for p, q in zip(before, after)), 1e-6 * most)
        # A new last layer of other sizes begins at the mean.
        truth = column("1.csv", 4)
        self.table("one.csv", [[*v, t] for v, t in zip(x, truth)], "p,q,r,t")
        self.fine("train", "-q", "-d", "one.csv", "-m", "Chain(Dense(3 => 4, tanh), Dense(4 => 1))", "-o", "Descent(0)", "-e", 1,
                  "--init", "raw.safetensors", "-S", "n.bson")
        (values,) = predicted("n.bson", "-d", "1.csv")
        self.assertLess(abs(statistics.fmean(values) - statistics.fmean(truth)), 2 * statistics.stdev(truth))
        # A copied bias contains the mean, also without the weights of its layer.
        self.fine("train", "-q", "-d", "1.csv", "-t", "s,t", "-m", "Chain(Dense(3 => 5, tanh), Dense(5 => 2))", "-o", "Descent(0)", "-e", 1,
                  "--init", "m.safetensors", "-S", "n.bson")
        for k, values in enumerate(predicted("n.bson", "-d", "1.csv")):
            truth = column("1.csv", 3 + k)
            self.assertLess(abs(statistics.fmean(values) - statistics.fmean(truth)), 2 * statistics.stdev(truth))
        for target, outputs, loss in (("s", 1, "mae"), ("s", 1, "huber_loss"), ("s,t", 2, "mse")):
            told, first = [], None
            for k, (a, b) in enumerate(units):
                train = ["train", "-d", f"{k}.csv", "-t", target, "-m", f"Chain(Dense({5 - outputs} => 8, tanh), Dense(8 => {outputs}))",
                         "-l", loss, "-e", 30, "-o", "Adam(0.02)", "-v", 0.2, "-p", 20, "--json", "-S", f"{k}.bson"]
                ended = self.fine(*train)
                self.assertIn(f"numbers; loss {loss} of scaled targets", ended.err)
                told.append(ended.json())
                measured = self.fine("eval", f"{k}.bson", "-d", f"{k}.csv", "--json").json()
                mine = [[(q - b) / a for q in p] for p in predicted(f"{k}.bson", "-d", f"{k}.csv")]
                if k == 0:
                    first = mine
                    self.assertGreater(told[0]["r2"], 0.9)
                self.assertLess(max(abs(p - q) for v, w in zip(first, mine) for p, q in zip(v, w)), 1e-3, (target, loss, k))
                truth = [column(f"{k}.csv", 3 + i) for i in range(outputs)]
                error = statistics.fmean(abs(q * a + b - t) for p, w in zip(mine, truth) for q, t in zip(p, w))
                self.near(measured["mae"], error, 1e-4)
                if loss == "mae":
                    self.near(measured["loss"], error, 1e-4)
                self.near(told[k]["mae"], a * told[0]["mae"], 1e-3)
                self.near(told[k]["rmse"], a * told[0]["rmse"], 1e-3)
                self.near(told[k]["loss"], told[0]["loss"], 1e-3)  # of the scaled targets
                if loss != "huber_loss":  # in the units of the data
                    self.near(told[k]["measured_loss"], a ** (2 if loss == "mse" else 1) * told[0]["measured_loss"], 2e-3)
        # A checkpoint has the model of the scaled targets.
        base = ["train", "-q", "-d", "0.csv", "-m", "Chain(Dense(4 => 8, tanh), Dense(8 => 1))"]
        self.fine(*base, "-e", 5, "-S", "whole.bson")
        self.fine(*base, "-e", 2, "-c", "c", "-S", "part.bson")
        self.refused(*base, "-e", 5, "-c", "c", "--raw-targets", words="no --raw-targets")
        self.fine(*base, "-e", 5, "-c", "c", "-S", "resumed.bson")
        self.assertIn("warning: c is a checkpoint, without the scale and the names of its data", self.fine("eval", "c", "-d", "0.csv").err)
        self.assertNotIn("warning", self.fine("inspect", "c").out)
        self.assertEqual(self.read("whole.bson"), self.read("resumed.bson"))
        # The outputs of these models, and the targets of these losses, have a range of their own.
        self.table("u.csv", [(abs(a), abs(b), 0.1 + 0.8 * draw.random()) for a, b, _ in x], "p,q,s")
        positive = ["-m", "Dense(2 => 1; init = ones32)", "--normalise", "none"]
        for more in (["-m", "Dense(2 => 1, sigmoid)"], ["-m", "Dense(2 => 1; bias = false)"], ["-m", "Chain(Dense(2 => 1), tanh)"],
                     ["-m", "Dense(2 => 1)", "--raw-targets"], [*positive, "-l", "msle"], [*positive, "-l", "poisson_loss"],
                     ["-m", "Dense(2 => 1)", "-l", "logitbinarycrossentropy", "--regression"]):
            self.assertNotIn("scaled targets", self.fine("train", "-d", "u.csv", *more, "-e", 1).err, more)

    def test_tables_of_other_programs(self):
        """Remarks above a table, blanks between numbers, entries of npz files, and a type that changes far down."""
        self.write("r.csv", "exported 2024\na,b,y\n" + "1,2,3\n2,3,4\n" * 5)
        base = ["-m", "Dense(2 => 1)", "--regression", "-e", 1, "-q"]
        self.refused("train", "-d", "r.csv", *base, words=["r.csv: line 2", "use --skip 1"])
        self.fine("train", "-d", "r.csv", "--skip", 1, *base)
        # Lines above tables without names, as in files of scikit-learn.
        self.write("i.csv", "4,2,setosa\n" + "1,2,3\n2,3,5\n" * 2)
        self.assertIn('i.csv: line 1 is used as names of columns, but it begins with the number "4": if it describes the file, use --skip 1',
                      self.fine("train", "-d", "i.csv", *base).err)
        self.assertEqual(self.fine("train", "-d", "i.csv", "--skip", 1, *base).err, "")
        self.write("b.csv", "4,,\na,b,y\n" + "1,2,3\n2,3,5\n" * 2)
        self.refused("train", "-d", "b.csv", *base, words="b.csv: line 1, column 2: expected a number or a text (if the table begins at line 2, use --skip 1)")
        self.fine("train", "-d", "b.csv", "--skip", 1, *base)
        self.write("s.txt", "a b y\n" + "1 2 3\n2 3 4\n" * 5)
        self.fine("train", "-d", "s.txt", *base)
        self.write("s.txt", "a (m) b y\n" + "1 2 3\n2 3 4\n" * 5)
        self.refused("train", "-d", "s.txt", *base, words=["blanks between numbers", "--separator space"])
        self.refused("train", "-d", "s.txt", "--separator", "space", *base, words="s.txt: line 2: expected 4 columns as above, found 3")
        self.write("e.npz", formats.npz({"inputs": ((3, 2), [1.0, 2, 3, 4, 5, 7]), "out": ((3,), [1.0, 2, 3])}))
        self.fine("train", "-d", "e.npz", "--entry", "inputs", "-t", "out", *base)
        self.refused("train", "-d", "e.npz", "--entry", "x", "-t", "out", *base, words="e.npz has no array x; it has inputs")
        self.refused("train", "-d", "r.csv", "--entry", "x", *base, words="not an npz file")
        # Numbers with commas are texts. Other texts may begin with digits.
        for text, warned in (("0,5", True), ("-1,5;7;2,5", True), ("1,000;2,000,000;30", True), ("1,5;x", False), ("10-19", False), ("1,", False),
                             (",5", False), ("1,5;1.5.2", False), ("x", False)):
            self.write("d.csv", "a;b;y\n" + "".join(f"{i};{t};{i % 2}\n" for i in range(5) for t in text.split(";")))
            ended = self.fine("train", "-d", "d.csv", "-m", f"Dense({1 + len(text.split(';'))} => 2)", "--separator", ";", "-e", 1, "-q")
            self.assertEqual('d.csv: column "b" is text, such as' in ended.err, warned, text)
        self.write("d.csv", "a;y\n" + "1;0,25\n2;0,5\n" * 5)
        self.assertIn('column "y" is text, such as "0,5"', self.fine("train", "-d", "d.csv", "-m", "Dense(1 => 2)", "--separator", ";", "-e", 1, "-q").err)
        self.write("long.csv", "a,b,y\n" + "1,2,3\n" * 79998 + "1,two,3\n")
        self.refused("train", "-d", "long.csv", *base, words=["long.csv: line 80000, column 2", '"two"'])

    def test_images_stored_the_other_way(self):
        """The network sees images with width and height swapped: it is sensitive to the order of pixels."""
        draw = random.Random(3)
        images = [[[draw.random() for _ in range(3)] for _ in range(2)] for _ in range(30)]
        self.write("x.npy", formats.npy((30, 2, 3), [v for i in images for row in i for v in row]))
        self.write("t.npy", formats.npy((30, 3, 2), [i[a][b] for i in images for b in range(3) for a in range(2)]))
        self.write("y.npy", formats.npy((30,), [i[0][2] - i[1][0] for i in images]))
        base = ["-t", "y.npy", "-m", "Chain(flatten, Dense(6 => 1))", "--regression", "-e", 3, "-q", "-S"]
        self.fine("train", "-d", "x.npy", *base, "x.bson")
        self.fine("train", "-d", "t.npy", "--transpose", *base, "t.bson")
        for name in ("x", "t"):
            self.fine("convert", f"{name}.bson", f"{name}.npz", "--only", "model", "--arrays")
        self.assertEqual(self.read("x.npz"), self.read("t.npz"))
        self.assertEqual(self.fine("predict", "x.bson", "-d", "x.npy").out,
                         self.fine("predict", "x.bson", "-d", "t.npy", "--transpose").out)
        self.refused("predict", "x.bson", "-d", "y.npy", "--transpose", words="--transpose")
        # The file of the model says that it was trained with --transpose, and with which sizes.
        same = self.fine("predict", "x.bson", "-d", "x.npy").out
        for options in ([], ["--transpose"]):
            self.assertEqual(self.fine("predict", "t.bson", "-d", "t.npy", *options).out, same)
        self.assertEqual(self.fine("eval", "t.bson", "-d", "t.npy", "-t", "y.npy", "--json").json()["loss"],
                         self.fine("eval", "x.bson", "-d", "x.npy", "-t", "y.npy", "--json").json()["loss"])
        flat = ["".join(f"{v!r}," for b in range(3) for v in (i[0][b], i[1][b])) + "0\n" for i in images]
        self.write("flat.csv", "".join(flat))
        self.fine("train", "-d", "flat.csv", "--shape", "2x3x1", "--transpose", *base[2:], "f.bson")
        predicted = self.fine("predict", "f.bson", "-d", "flat.csv").out
        self.assertEqual(self.fine("predict", "f.bson", "-d", "t.npy").out, predicted)
        in_c = subprocess.run([os.environ["PREDICT_CASES"], self.path("f.bson"), "flat.csv"], cwd=self.folder, text=True,
                              encoding="utf-8", capture_output=True, timeout=cli.SECONDS, env=self.environment())
        self.assertEqual((in_c.stdout.splitlines(), in_c.stderr), (predicted.splitlines()[1:], ""))
        # Messages name the column of the file. p1 is the answer, or missing everywhere.
        pixels = [[draw.random() for _ in range(12)] for _ in range(25)]
        self.table("p.csv", [[*p, 3 * p[1]] for p in pixels], ",".join([*(f"p{i}" for i in range(12)), "y"]))
        self.table("m.csv", [[p[0], "", *p[2:], p[3] + p[4]] for p in pixels], ",".join([*(f"p{i}" for i in range(12)), "y"]))
        base = ["--shape", "2x3x2", "-m", "Chain(flatten, Dense(12 => 1))", "--regression", "-e", 1, "-q", "--transpose"]
        self.assertIn('feature "p1" has correlation 1', self.fine("train", "-d", "p.csv", *base).err)
        self.refused("train", "-d", "m.csv", "--missing", "mean", *base, words='column "p1" has no value')

    def test_augmentation(self):
        """Which half of an image is bright: not to be learned if images are flipped, or under noise. A shift of one pixel
        makes a model of one pixel wrong. Evaluation sees the images unchanged, and the same seed gives the same model."""
        draw = random.Random(3)
        images = [[draw.random() + (k % 2 == (x < 2)) * 2 for x in range(4)] * 2 for k in range(200)]
        self.table("i.csv", [[*v, "lr"[k % 2]] for k, v in enumerate(images)], ",".join([*(f"p{i}" for i in range(8)), "y"]))
        base = ["train", "-d", "i.csv", "--shape", "4x2x1", "-m", "Chain(flatten, Dense(8 => 2))", "-e", 40, "-q", "-o", "Adam(0.02)", "--json"]
        accuracy = lambda *more: self.fine(*base, *more).json()["accuracy"]
        self.assertEqual(accuracy(), 1)
        self.assertEqual(accuracy("--augment", "shift=1"), 1)
        losses = {}
        for change in ("flip", "noise=50", "noise=0.01", "shift=1,noise=0.01"):
            told, again = (self.fine(*base, "--augment", change, "--save", f"{k}.bson").json() for k in "ab")
            self.assertEqual(self.read("a.bson"), self.read("b.bson"))
            losses[change] = told["loss"] # of the training steps
        self.assertGreater(losses["flip"], 0.6) # ln 2 is that of guessing
        self.assertGreater(losses["noise=50"], 0.6)
        self.assertLess(losses["noise=0.01"], 0.1)
        self.assertGreater(losses["shift=1,noise=0.01"], 2 * losses["noise=0.01"])
        for change in ("flop", "flip,", "shift=0", "shift=1.5", "shift=x", "noise=-1", "noise=", ""):
            self.refused(*base, "--augment", change, words="--augment takes flip, shift=PIXELS and noise=DEVIATION")
        self.refused("train", "-d", "i.csv", "-m", "Dense(8 => 2)", "--augment", "flip", words="give width, height and channels with --shape")

    def test_folds_and_seeds(self):
        """Each run of a sweep is the run with its seed; a fold is not seen in training, and each row is in one."""
        self.table("n.csv", self.line(61, 0.2), "a,b,y")
        base = ["train", "-d", "n.csv", "-m", "Dense(2 => 1)", "--regression", "-e", 3, "-q", "-o", "Adam(0.1)"]
        told = self.fine(*base, "--seeds", 3, "--seed", 5, "-v", 0.25, "--json").json()
        self.assertEqual([r["seed"] for r in told["runs"]], [5, 6, 7])
        for run in told["runs"]:
            alone = self.fine(*base, "--seed", run["seed"], "-v", 0.25, "--json").json()
            self.assertEqual(run["scores"], {"loss": alone["measured_loss"], **{k: alone[k] for k in ("mae", "rmse", "r2")}})
        losses = [r["scores"]["loss"] for r in told["runs"]]
        self.assertAlmostEqual(told["mean"]["loss"], statistics.fmean(losses), places=12)
        self.assertAlmostEqual(told["std"]["loss"], statistics.stdev(losses), places=12)
        self.assertRegex(self.fine(*base, "--folds", 2).out, r"fold 2 of 2: loss .*\nmean ± .* of 2 runs: loss .* ± ")
        # Without information the untrained network gives 0, so the loss of a fold of one row is that row's square.
        self.table("z.csv", [(0, 0, i / 64) for i in range(60)], "a,b,y")
        zero = ["train", "-d", "z.csv", "-m", "Dense(2 => 1)", "--regression", "--raw-targets", "-e", 1, "-q", "-o", "Descent(0)"]
        told = self.fine(*zero, "--folds", 60, "--json", "--normalise", "none").json()
        self.assertIsNone(told["mean"]["r2"])
        self.assertRegex(self.fine(*zero, "--folds", 60).out, r"RMSE \S+, R² undefined\nmean .*, R² undefined\n$")
        self.assertEqual(sorted(r["scores"]["loss"] for r in told["runs"]), [(i / 64) ** 2 for i in range(60)])
        self.table("c.csv", [(i, "ab"[i % 10 == 0]) for i in range(60)], "x,kind")
        told = self.fine("train", "-d", "c.csv", "-m", "Dense(1 => 2)", "-e", 40, "-q", "--folds", 3, "--json").json()
        self.assertEqual([r["fold"] for r in told["runs"]], [1, 2, 3])
        for run in told["runs"]:  # two of the six rows of b are in each fold of 20
            self.assertAlmostEqual(run["scores"]["accuracy"] * 20, round(run["scores"]["accuracy"] * 20), places=9)
        for option in ("--save", "--log", "--report", "--checkpoint"):
            self.refused(*base, "--seeds", 2, option, "m.bson", words=f"{option} is for one model")
        self.refused(*base, "--folds", 2, "-v", 0.2, words="exclude each other")
        self.refused(*base, "--folds", 62, words="the data has 61")
        for share, what in ((0, "training"), (0.5, "validation")):
            self.assertEqual(self.fine(*base, "--seeds", 2, "-v", share, "--json").json()["measured_on"], what)

    def test_sweeps_that_end_early(self):
        """A signal or bad input: the JSON has the runs so far; without a run there is none."""
        self.table("n.csv", self.line(600), "a,b,y")
        base = ["train", "-d", "n.csv", "--regression", "-q", "--json"]
        self.refused(*base, "-m", "Dense(3 => 1)", "--folds", 2, words="use Dense(2 => 1)")
        process = self.start(*base, "-m", "Dense(2 => 1)", "-e", "5", "--seeds", "1000000", bufsize=0)
        first = process.stdout.read(500)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=cli.SECONDS)
        self.assertEqual((process.returncode, err), (128 + signal.SIGINT, b""))
        told = json.loads(first + out)
        self.assertEqual([r["seed"] for r in told["runs"]], [*range(len(told["runs"]))])
        self.assertNotIn("mean", told)

    def test_names_of_several_targets(self):
        """Names with commas and quotes are quoted in the saved model and in the header; instead of a number it is prediction_1."""
        names = ['say "x"', "a, b", " blank", "two\nlines"]
        quoted = ['"' + name.replace('"', '""') + '"' for name in names]
        self.table("t.csv", [(i, i % 3, i % 4, i % 5, i % 2) for i in range(20)], ",".join(["x", *quoted]))
        base = ["-m", "Dense(1 => 4)", "--regression", "-e", 1, "-q", "-S", "m.bson"]
        for targets in ("2,3,4,5", ",".join(quoted)):
            self.fine("train", "-d", "t.csv", "-t", targets, *base)
            self.assertEqual(rows_of(self.fine("predict", "m.bson", "-d", "t.csv").out)[0], names)
            self.assertEqual(self.fine("eval", "m.bson", "-d", "t.csv", "--json").json()["observations"], 20)
        self.write("u.csv", "red,1,2,3\nblue,2,3,5\nred,3,4,4\n")
        for targets, outputs, header in (("3,4", 2, ["prediction_1", "prediction_2"]), ("4", 1, ["prediction"])):
            model = f"Dense({5 - outputs} => {outputs})"
            self.fine("train", "-d", "u.csv", "-t", targets, "-m", model, "--regression", "-e", 1, "-q", "-S", "u.bson")
            out = rows_of(self.fine("predict", "u.bson", "-d", "u.csv").out)
            self.assertEqual((out[0], len(out)), (header, 4))
        # The four columns of u.csv are one more than the inputs of this model, which also has four: blue, red and two.
        self.assertEqual(self.fine("predict", "u.bson", stdin="red,1,2\n").out, "prediction\n" + out[1][0] + "\n")

    def test_several_targets(self):
        """--target a,b: a network with two outputs; eval averages the R² of both, predict names both."""
        draw = random.Random(12)
        x = [(draw.gauss(0, 1), draw.gauss(0, 1)) for _ in range(120)]
        rows = [(b - 2 * a + draw.gauss(0, 0.2), a, 3 * b + draw.gauss(0, 0.1), b) for a, b in x]
        self.table("t.csv", rows, "u,a,v,b")
        base = ["-m", "Dense(2 => 2)", "-e", 80, "-q", "-o", "Adam(0.05)", "-S", "m.bson"]
        self.fine("train", "-d", "t.csv", "-t", "v,u", *base)
        out = rows_of(self.fine("predict", "m.bson", "-d", "t.csv").out)
        self.assertEqual(out[0], ["v", "u"])
        r2 = []
        for column, target in ((0, 2), (1, 0)):
            y = [row[target] for row in rows]
            errors = [float(p[column]) - v for p, v in zip(out[1:], y)]
            r2.append(1 - sum(e * e for e in errors) / sum((v - statistics.fmean(y)) ** 2 for v in y))
        self.assertGreater(min(r2), 0.9)
        measured = self.fine("eval", "m.bson", "-d", "t.csv", "--json").json()
        self.assertAlmostEqual(measured["r2"], statistics.fmean(r2), places=5)
        self.assertEqual([t["name"] for t in measured["targets"]], ["v", "u"])
        text = self.fine("eval", "m.bson", "-d", "t.csv").out
        for k, (target, told) in enumerate(zip((2, 0), measured["targets"])):
            errors = [float(p[k]) - row[target] for p, row in zip(out[1:], rows)]
            self.near(told["mae"], statistics.fmean(map(abs, errors)), 1e-4)
            self.near(told["rmse"], math.sqrt(statistics.fmean(e * e for e in errors)), 1e-4)
            self.near(told["r2"], r2[k], 1e-4)
            self.assertRegex(text, rf"\n +{told['name']} +{told['mae']:.6g} +{told['rmse']:.6g} +{told['r2']:.6g}\n")
        self.table("x.csv", x, "a,b")
        self.assertEqual(rows_of(self.fine("predict", "m.bson", "-d", "x.csv").out), out)
        self.refused("eval", "m.bson", "-d", "x.csv", words='no column "v"')
        for targets, words in (("v,v", 'names column "v" twice'), ("v,w", 'no column "w"')):
            self.refused("train", "-d", "t.csv", "-t", targets, *base, words=words)
        self.table("k.csv", [(1, 2, "x"), (2, 3, "y")], "a,b,k")
        self.refused("train", "-d", "k.csv", "-v", "k.csv", "-t", "b,a", "-t", "b", *base, words="k.csv has 1 target for an observation, k.csv has 2")
        self.refused("train", "-d", "k.csv", "-t", "b,k", *base, words='column "k" contains text: several targets')

    def test_columns_of_text(self):
        """A text column is one feature for each text; the model's file knows them, whatever the file's order."""
        draw = random.Random(4)
        colours, levels = ("red", "blue", "deep = green"), {"red": 1, "blue": -2, "deep = green": 5}
        rows = [(draw.choice(colours), draw.gauss(0, 1)) for _ in range(200)]
        self.write("t.csv", "colour,n,y\n" + "".join(f"{c},{n:.5f},{levels[c] + 3 * n:.5f}\n" for c, n in rows))
        self.fine("train", "-d", "t.csv", "-m", "Dense(4 => 1)", "--regression", "-e", 60, "-o", "Adam(0.05)",
                  "-q", "-S", "m.bson")
        self.assertIn('"colour=deep = green"', self.fine("inspect", "m.bson").out)
        self.assertGreater(self.fine("eval", "m.bson", "-d", "t.csv", "--json").json()["r2"], 0.999)
        self.write("p.csv", "n,colour\n0.5,blue\n0.5,red\n")
        values = [float(v) for v in self.fine("predict", "m.bson", "-d", "p.csv").out.splitlines()[1:]]
        for value, want in zip(values, (-0.5, 2.5)):
            self.assertAlmostEqual(value, want, delta=0.1)
        for text, words in (("n,colour\n1,pink\n", 'column "colour" contains "pink", which the first training file does not'),
                            ("n,colour\n1,7\n", 'column "colour" contains numbers: expected texts such as "blue"'),
                            ("n,colour\nx,red\n", 'bad.csv: line 2, column 1: expected a number for "n", found "x"'),
                            ("n,colour\nx,red\n2,red\n", 'bad.csv: line 2, column 1: expected a number for "n", found "x"'),
                            ("n,shade\n1,red\n", 'no column "colour=blue"')):
            self.write("bad.csv", text)
            self.refused("predict", "m.bson", "-d", "bad.csv", words=words)
        for text, words in (("c,c=red,y\nred,1,2\nblue,2,3\n", ['feature "c=red" of column "c"', 'column "c=red"']),
                            ("c,c=d,y\n1,red,2\n2,blue,3\n", ['feature "c=d=blue" of column "c=d"', 'column "c"'])):
            self.write("bad.csv", text)
            self.refused("train", "-d", "bad.csv", "-m", "Dense(3 => 1)", "--regression", words=words)

    def test_text_column_without_texts(self):
        """In a file of predictions, of validation or of more data all texts of a column may be missing."""
        self.write("t.csv", "c,n,y\n" + "".join(f"{c},{n},{n + (c == 'red')}\n" for n in range(20)
                                                for c in ("red", "blue", "blue", "")))
        base = ["train", "-d", "t.csv", "-m", "Dense(3 => 1)", "--regression", "-q", "-e", 2, "--missing", "mean"]
        self.fine(*base, "-S", "m.bson")
        self.write("one.csv", "c,n\n,4\nNA,5\n")
        self.write("two.csv", "c,n\n,4\n,5\nred,1\n")
        one, two = (self.fine("predict", "m.bson", "-d", f"{name}.csv").out for name in ("one", "two"))
        self.assertEqual(one.splitlines(), two.splitlines()[:3])
        self.write("v.csv", "c,n,y\n,4,2\nNA,5,3\n")
        self.fine(*base, "-v", "v.csv")
        self.fine(*base, "-d", "v.csv")
        self.write("bad.csv", "c,n\n,4\n7,5\n")
        self.refused("predict", "m.bson", "-d", "bad.csv", words='column "c" contains numbers')

    def test_missing_values(self):
        """The mean and the median of the training part replace missing values, in predictions too."""
        rows = [(i % 10, (i * 7) % 13, (i % 10) + 0.5 * ((i * 7) % 13)) for i in range(130)]
        cells = [[str(v) for v in row] for row in rows]
        for i in range(0, 130, 13):
            cells[i][i % 2] = ("NA", "", "?")[i % 3]
        cells[5][2] = "NA"
        self.write("g.csv", "a,b,y\n" + "".join(",".join(row) + "\n" for row in cells))
        base = ["-d", "g.csv", "-m", "Dense(2 => 1)", "--regression", "-e", 40, "-o", "Adam(0.1)", "-q"]
        self.refused("train", *base, words=["g.csv: line 7, column 3", "(for missing values: cflux train --missing)", '"NA"'])
        self.write("p.csv", "a,b\nNA,3\n4,\n4,3\n")
        known = [[float(row[k]) for row, full in zip(cells, rows) if row[k] not in ("NA", "", "?") and
                  row[2] != "NA"] for k in (0, 1)]
        for method, of in (("mean", statistics.fmean), ("median", statistics.median)):
            ended = self.fine("train", *base, "--missing", method, "-S", "m.bson")
            self.assertIn("left out 1 of 130 observations", ended.err)
            fill = [of(k) for k in known]
            for got, want in zip(self.arrays("m.bson")["fill"][1], fill):
                self.assertAlmostEqual(got, want, places=5)
            self.write("q.csv", f"a,b\n{fill[0]:.9g},3\n4,{fill[1]:.9g}\n4,3\n")
            self.assertEqual(self.fine("predict", "m.bson", "-d", "p.csv").out,
                             self.fine("predict", "m.bson", "-d", "q.csv").out)
            self.assertEqual(self.fine("eval", "m.bson", "-d", "g.csv", "--json").json()["observations"], 129)
        ended = self.fine("train", *base, "--missing", "drop", "-S", "d.bson")
        self.assertIn("left out 11 of 130 observations", ended.err)
        whole = [row for row in cells if not {"NA", "", "?"} & set(row)]
        self.write("w.csv", "a,b,y\n" + "".join(",".join(row) + "\n" for row in whole))
        self.fine("train", *["w.csv" if v == "g.csv" else v for v in base], "-S", "w.bson")
        self.assertEqual(self.arrays("d.bson"), self.arrays("w.bson"))
        ended = self.fine("eval", "d.bson", "-d", "g.csv", "--json")
        self.assertIn("g.csv: left out 11 of 130 observations because of missing values", ended.err)
        self.assertEqual({**ended.json(), "model": 0, "data": 0},
                         {**self.fine("eval", "w.bson", "-d", "w.csv", "--json").json(), "model": 0, "data": 0})
        self.write("p.csv", "a,b\n4,3\n4,\nNA,3\n")
        drops = ["trained with --missing drop", "remove the row", "--missing mean or median"]
        self.refused("predict", "d.bson", "-d", "p.csv", words=['p.csv: line 3: feature 2, column "b", is missing', *drops])
        self.write("p.csv", "a,b\nNA,3\n4,3\n")
        self.refused("predict", "d.bson", "-d", "p.csv", words=['p.csv: line 2: feature 1, column "a", is missing', *drops])
        # a model that was trained without missing values
        self.refused("eval", "w.bson", "-d", "g.csv", words="(for missing values: cflux train --missing)")
        self.refused("predict", "w.bson", "-d", "p.csv", words='p.csv: line 2, column 1: expected a number for "a", found "NA"')
        self.write("p.csv", "a,b\n4,3\n")
        self.assertEqual(len(self.fine("predict", "d.bson", "-d", "p.csv").out.splitlines()), 2)
        self.write("k.csv", "a,kind\n1,x\n2,y\nNA,z\n3,x\n4,y\n")
        self.fine("train", "-d", "k.csv", "-m", "Dense(1 => 2)", "-e", 1, "-q", "--missing", "drop", "-S", "k.bson")
        self.write("l.csv", "a,kind\n1,x\n")
        self.assertEqual(self.fine("predict", "k.bson", "-d", "l.csv", "-P").out.splitlines()[0], "kind,x,y")
        self.write("x.npy", formats.npy((3, 1), [math.nan, 2, math.inf]))
        self.write("y.npy", formats.npy((3, 1), [1, 2, 3]))
        self.refused("train", "-d", "x.npy", "--target", "y.npy", "-m", "Dense(1 => 1)", "--missing", "drop",
                     words="x.npy: observation 3: feature 1 is infinite")
        for code in "efd": # 16-bit numbers are checked like the others
            self.write("x.npy", formats.npy((4, 1), [1, 2, 3, 4], code))
            self.write("y.npy", formats.npy((4, 1), [1, math.nan, 3, 4], code))
            command = ("train", "-q", "-d", "x.npy", "--target", "y.npy", "-m", "Dense(1 => 1)", "-e", 1)
            self.refused(*command, words="x.npy: observation 2: target 1 is NaN")
            self.assertIn("left out 1 of 4 observations", self.fine(*command, "--missing", "drop").err)
        self.write("big.npy", formats.npy((4, 1), [1, 2, 3, -1e300], "d"))
        for x, y, what in (("x.npy", "big.npy", "target"), ("big.npy", "x.npy", "feature")):
            self.refused("train", "-d", x, "--target", y, "-m", "Dense(1 => 1)",
                         words=f"{x}: observation 4: {what} 1 is -1e+300, which does not fit Float32")
        self.write("n.csv", "a,b,y\n1,NA,2\n2,NA,3\n")
        self.refused("train", "-d", "n.csv", "-m", "Dense(2 => 1)", "--regression", "--missing", "mean",
                     words='column "b" has no value')
        self.refused("train", "-d", "n.csv", "-m", "Dense(2 => 1)", "--regression", "--missing", "drop",
                     words="every observation has a missing value")

    def test_weights_of_classes(self):
        """The rare class is found only with weights; the printed loss is the weighted mean."""
        self.rare(shift=0)
        plain = self.fine("train", "-d", "rare.csv", "-m", "Dense(2 => 2)", "-e", 50, "-q", "-o", "Adam(0.01)")
        self.assertIn("warning: class rare is never predicted, but 40 of 800 observations belong to it; "
                      "--class-weights may help", plain.err)
        truth = self.rare()
        for loss, model, weights, factors in (
                ("logitcrossentropy", "Dense(2 => 2)", "balanced", {"common": 800 / 1520, "rare": 10}),
                ("logitcrossentropy", "Dense(2 => 2)", "sqrt", {"common": (800 / 1520) ** 0.5, "rare": 10 ** 0.5}),
                ("logitcrossentropy", "Dense(2 => 2)", "1,12.5", {"common": 1, "rare": 12.5}),
                ("logitbinarycrossentropy", "Dense(2 => 1)", "0.5,4", {"common": 0.5, "rare": 4})):
            ended = self.fine("train", "-d", "rare.csv", "-m", model, "-l", loss, "-o", "Adam(0.02)", "-e", 20,
                              "-q", "--json", "--class-weights", weights, "-S", "w.bson").json()
            out = self.fine("predict", "w.bson", "-d", "rare.csv", "--probabilities").out.splitlines()
            names = out[0].split(",")
            p = [float(line.split(",")[names.index(c)]) for line, c in zip(out[1:], truth)]
            want = sum(-math.log(v) * factors[c] for v, c in zip(p, truth)) / 800
            self.assertAlmostEqual(ended["measured_loss"], want, places=4)
            measured = self.fine("eval", "w.bson", "-d", "rare.csv", "--json").json()
            self.assertGreater(measured["recall"][1], 0.6 if weights == "sqrt" else 0.8)
            self.assertGreater(measured["precision"][1], 0.6 if weights == "sqrt" else 0.3)

    def test_weights_that_do_not_fit(self):
        self.rare()
        self.write("line.csv", "x,y\n" + "".join(f"{i},{i + 0.5}\n" for i in range(20)))
        for weights, more, message in (
                ("1,2,3", [], "--class-weights has 3 numbers for 2 classes"),
                ("1", [], "--class-weights has 1 numbers for 2 classes"),
                ("even", [], '--class-weights takes "balanced", "sqrt", or a number of at least 0 for each class'),
                ("1,-2", [], "--class-weights takes"), ("1,", [], "--class-weights takes"),
                ("1,nan", [], "--class-weights takes"), ("1,inf", [], "--class-weights takes"),
                ("1,1e39", [], "--class-weights takes"), ("0,0", [], "no class with a factor above 0"),
                ("balanced", ["-l", "dice_coeff_loss"], "--class-weights does not work with dice_coeff_loss"),
                ("balanced", ["-d", "line.csv", "-m", "Dense(1 => 1)"], "--class-weights needs classes")):
            options = {"-d": "rare.csv", "-m": "Dense(2 => 2)", "--class-weights": weights,
                       **dict(zip(more[::2], more[1::2]))}
            self.refused("train", *(part for pair in options.items() for part in pair), words=message)

    def test_precision(self):
        """The layers compute in 16 bits: 1 + 2⁻⁸ is 1 in BFloat16, and 1 + 2⁻¹¹ is 1 in Float16. The saved model is Float32."""
        for name, x in (("bf16", 1.00390625), ("f16", 1.00048828125)):
            saved = {}
            for precision, value, epochs in itertools.product(("f32", name), (x, 1), (1, 12)):
                self.write("one.csv", f"a,y\n{value},1\n{value},1\n")
                loss = self.fine("train", "-d", "one.csv", "-m", "Dense(1 => 1)", "--regression", "-e", epochs, "-q", "-o",
                                 "Descent(0.1)", "--normalise", "none", "--precision", precision, "-S", "one.bson",
                                 "--json").json()["measured_loss"]
                saved[precision, value, epochs] = self.read("one.bson"), loss
            self.assertEqual(saved[name, x, 12][0], saved[name, 1, 12][0])
            self.assertNotEqual(saved["f32", x, 12][0], saved["f32", 1, 12][0])
            self.assertLess(saved[name, x, 12][1], saved[name, x, 1][1] / 4)
        base = ["train", "-d", cli.DIGITS, "-m", NETWORK, "-v", 0.2, "-e", 4, "-q"]
        accuracy = {p: self.fine(*base, "--precision", p, "--json", "-L", "p.log", "-S", "p.safetensors").json()["accuracy"]
                    for p in ("f32", "bf16", "f16")}
        self.assertEqual(events(self.read("p.log"), "start")[0]["precision"], "f16")
        data = self.read("p.safetensors")
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        self.assertEqual({v["dtype"] for k, v in header.items() if k.startswith("model")}, {"F32"})
        self.assertGreater(accuracy["f32"], 0.85)
        for name in ("bf16", "f16"):
            self.assertAlmostEqual(accuracy[name], accuracy["f32"], delta=0.02)
        self.fine(*base, "--precision", "bf16", "-c", "p.checkpoint")
        self.refused(*base, "-c", "p.checkpoint", words="--precision bf16")
        self.refused(*base, "--precision", "f16", "-o", "MixedPrecision(Adam())",
                     words="MixedPrecision cannot be inside another rule")
        self.refused(*base, "--precision", "f8", words='--precision is "f8", expected one of f32|bf16|f16')

    def test_schedules_of_the_whole_run(self):
        """A short form is the schedule whose length is the number of training steps: 3 epochs of 7 batches, the last one small."""
        self.table("line.csv", self.line(200), "a,b,y")
        base = ["train", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", 3, "-b", 32, "-q", "-o", "Descent(0.1)", "-S", "s.bson"]
        for short, notation, more in (
                ("cosine", "CosAnneal(0.1, 0, 21)", []), ("linear", "Poly(0.1, 1, 21)", []),
                ("cosine:warmup=5", "Warmup(0, 5, CosAnneal(0.1, 0, 16))", []),
                ("linear:warmup=17", "Warmup(0, 17, Poly(0.1, 1, 1))", ["--drop-partial"])):
            self.fine(*base, "--schedule", short, *more)
            saved = self.read("s.bson")
            self.fine(*base, "--schedule", notation, "--schedule-steps", *more)
            self.assertEqual(saved, self.read("s.bson"))
        for wrong in ("cosine:", "cosine:warmup=0", "cosine:warmup=5x", "linear:cosine"):
            self.refused(*base, "--schedule", wrong, words=["--schedule takes", f'got "{wrong}"'])
        self.refused(*base, "--schedule", "cosine:warmup=21", words="the run has only 21 training steps")
        self.fine(*base, "--schedule", "cosine", "-c", "s.checkpoint")
        base[base.index("-e") + 1] = 4
        self.refused(*base, "--schedule", "cosine", "-c", "s.checkpoint", words="--schedule CosAnneal")

    def test_softmax_applied_twice(self):
        self.rare()
        for model, loss, name, other in (
                ("Chain(Dense(2 => 2), softmax)", "logitcrossentropy", "softmax", "crossentropy"),
                ("Chain(Dense(2 => 1, sigmoid))", "logitbinarycrossentropy", "σ", "binarycrossentropy")):
            warning = (f"warning: the model ends in {name}, and the loss {loss} applies it again: remove it "
                       f"from the model, or use --loss {other}")
            trained = ["train", "-d", "rare.csv", "-m", model, "-e", 1, "-q", "-S", "s.bson", "-l"]
            self.assertIn(warning, self.fine(*trained, loss).err)
            self.assertIn(warning, self.fine("eval", "s.bson", "-d", "rare.csv").err)
            self.assertNotIn("ends in", self.fine(*trained, other).err)

    def test_targets_between_two_classes(self):
        """The losses for two classes also accept probabilities as targets."""
        truth = [1 / (1 + math.exp(-x / 10)) for x in range(-50, 50)]
        self.table("soft.csv", [(x, f"{t:.6f}") for x, t in zip(range(-50, 50), truth)], "x,y")
        for loss, end in (("logitbinarycrossentropy", ""), ("binarycrossentropy", ", sigmoid")):
            request = ("train", "-q", "-d", "soft.csv", "-m", f"Dense(1 => 1{end})", "-l", loss)
            self.refused(*request, words=["contains numbers such as 0.", "use --regression to learn numbers"])
            self.fine(*request, "--regression", "-e", "200", "-o", "Adam(0.1)", "-S", "m.bson", "-L", "l")
            measured = self.fine("eval", "m.bson", "-d", "soft.csv", "--json").json()
            self.assertNotIn("accuracy", measured)
            chances = rows_of(self.fine("predict", "m.bson", "-d", "soft.csv", "-P").out)
            self.assertEqual(chances[0], ["y"])
            chances = [float(r[0]) for r in chances[1:]]
            self.assertLess(max(abs(c - t) for c, t in zip(chances, truth)), 0.02)
            by_hand = statistics.fmean(-t * math.log(c) - (1 - t) * math.log(1 - c) for c, t in zip(chances, truth))
            self.near(measured["loss"], by_hand, 1e-4)
            outputs = rows_of(self.fine("predict", "m.bson", "-d", "soft.csv").out)[1:]
            for (output,), chance in zip(outputs, chances):
                self.near(chance, float(output) if end else 1 / (1 + math.exp(-float(output))), 1e-4)
            self.table("far.csv", [(1, 0.5), (2, 1.25)], "x,y")
            self.refused("train", "-d", "far.csv", "-m", "Dense(1 => 1)", "-l", loss, "--regression",
                         words=[loss, "takes targets from 0 to 1", "line 3: the loss", "this one is 1.25"])

    def test_scores_are_no_probabilities(self):
        """The samples in the log of a run with a hinge loss, whose outputs are not probabilities."""
        self.animals()
        self.table("two.csv", [(x / 50 - 1, "no yes".split()[x > 40]) for x in range(100)], "x,answer")
        for data, model, outputs in (("animals.csv", "Dense(2 => 3)", 3), ("two.csv", "Dense(1 => 1)", 1)):
            self.fine("train", "-q", "-d", data, "-m", model, "-l", "hinge_loss", "-e", "3", "-L", data + ".log", "-S",
                      "m.safetensors", "-r", "r.html", "--normalise", "none")
            arrays = formats.read_safetensors(self.read("m.safetensors"))[1]
            weight, bias = arrays["model.weight"][1], arrays["model.bias"][1]
            samples = events(self.read(data + ".log"), "end")[0]["samples"]
            worst = sum("worst" in s for s in samples)
            self.assertEqual(len(samples), 12 + worst)
            for s in samples:
                by_hand = [bias[k] + sum(weight[k + i * outputs] * v for i, v in enumerate(numbers(s["input"])))
                           for k in range(outputs)]
                scores = numbers(s["scores"])
                for a, b in zip(scores, by_hand, strict=True):
                    self.assertLess(abs(a - b), 2e-3) # the log has rounded numbers
                self.assertEqual(s["guess"], scores.index(max(scores)) if outputs > 1 else int(scores[0] > 0))
                self.assertNotIn("output", s)
            self.assertEqual(self.read("r.html").count(b'"score":'), 12 + worst)
            self.assertNotIn(b'"chance":', self.read("r.html"))

    def test_standard_input(self):
        self.animals()
        text = self.read("animals.csv").decode()
        request = ("-m", "Dense(2 => 3)", "-e", "2", "--normalise", "features")
        self.fine("train", "-q", "-d", "animals.csv", *request, "-S", "a.bson")
        self.fine("train", "-q", "-d", "-", *request, "-S", "b.bson", stdin=text)
        self.assertEqual(self.read("a.bson"), self.read("b.bson"))
        for command in (["eval", "--json"], ["predict"]):
            from_file = self.fine(*command, "a.bson", "-d", "animals.csv").out
            self.assertEqual(self.fine(*command, "a.bson", "-d", "-", stdin=text).out.replace("/dev/stdin", "animals.csv"),
                             from_file)
        self.refused("predict", "a.bson", "-d", "-", words="/dev/stdin")

    def test_images_of_idx_folders(self):
        r = random.Random(3)
        os.mkdir(self.path("tiny"))
        for part, n, packed in (("train", 80, True), ("t10k", 30, False)):
            labels = [r.randrange(2) for _ in range(n)]
            images = [255 * (r.random() < (0.9 if (p % 4 < 2) == (y == 0) else 0.1))
                      for y in labels for p in range(16)]
            end = ".gz" if packed else ""
            self.write(f"tiny/{part}-images-idx3-ubyte{end}", formats.idx((n, 4, 4), images, packed))
            self.write(f"tiny/{part}-labels-idx1-ubyte{end}", formats.idx((n,), labels, packed))
        ended = self.fine("train", "-d", "tiny", "-v", "tiny", "-e", "15", "-o", "Adam(0.01)", "-m",
                          "Chain(Conv((2, 2), 1 => 4, relu), Flux.flatten, Dense(36 => 2))", "-S", "m.bson",
                          "--json")
        self.assertIn("80 observations of 4×4×1, 30 for validation", ended.err)
        self.assertGreater(ended.json()["accuracy"], 0.8)
        test = self.fine("eval", "m.bson", "-d", "tiny", "--json").json()
        self.assertEqual((test["observations"], test["accuracy"]), (30, ended.json()["accuracy"]))
        train = self.fine("eval", "m.bson", "-d", "tiny", "--part", "train", "--json").json()
        self.assertEqual(train["observations"], 80)
        self.fine("predict", "m.bson", "-d", "tiny", "--out", "p.npy")
        shape, values = formats.read_npy(self.read("p.npy"))
        self.assertEqual(shape, (30,))
        self.assertEqual(sum(v == t for v, t in zip(values, labels)) / 30, test["accuracy"])
        self.fine("predict", "m.bson", "-d", "tiny", "-P", "--out", "p.npy")
        self.assertEqual(formats.read_npy(self.read("p.npy"))[0], (30, 2))

    def test_arrays_of_numpy(self):
        rows = [[float(v) for v in r] for r in self.line()]
        x, y = [v for r in rows for v in r[:2]], [r[2] for r in rows]
        self.write("d.npz", formats.npz({"x": ((200, 2), x), "y": ((200,), y)}))
        self.write("x.npy", formats.npy((200, 2), x))
        self.write("y.npy", formats.npy((200,), y))
        losses = []
        for where in (["-d", "d.npz"], ["-d", "x.npy", "-t", "y.npy"]):
            ended = self.fine("train", "-q", *where, "-m", "Dense(2 => 1)", "-e", "3", "--json", "-S", "m.bson")
            losses.append(ended.json()["loss"])
            self.assertEqual(self.fine("eval", "m.bson", *where, "--json").json()["observations"], 200)
        # As KMNIST: one array per file, which NumPy calls arr_0.
        for name, shape, values in (("imgs.npz", (200, 2), x), ("labels.npz", (200,), y), ("two.npz", (1,), [0])):
            self.write(name, formats.npz({"arr_0": (shape, values), **({"b": (shape, values)} if name == "two.npz" else {})}))
        where = ["-d", "imgs.npz", "-t", "labels.npz"]
        losses.append(self.fine("train", "-q", *where, "-m", "Dense(2 => 1)", "-e", "3", "--json", "-S", "m.bson").json()["loss"])
        self.assertEqual(self.fine("eval", "m.bson", *where, "--json").json()["observations"], 200)
        self.refused("train", "-d", "imgs.npz", "-t", "two.npz", "-m", "Dense(2 => 1)",
                     words="--target two.npz: expected a file with one array, found 2")
        self.refused("train", "-d", "two.npz", "-t", "b", "-m", "Dense(2 => 1)", words="two.npz has no array x; it has arr_0, b")
        self.assertEqual(losses, [losses[0]] * 3)
        self.assertEqual(len(rows_of(self.fine("predict", "m.bson", "-d", "x.npy").out)), 201)

    def test_targets_of_a_row_each(self):
        """Targets of size n × 1 are treated like targets of size n."""
        self.write("x.npy", formats.npy((60, 1), [i / 60 for i in range(60)]))
        self.write("half.npy", formats.npy((60, 1), [i / 2 for i in range(60)]))
        request = ("train", "-d", "x.npy", "-e", "2", "--json", "-t")
        for model, loss in (("Dense(1 => 2)", ()), ("Dense(1 => 1)", ("-l", "logitbinarycrossentropy"))):
            ended = []
            for sizes in ((60,), (60, 1), (60, 1, 1)):
                self.write("y.npy", formats.npy(sizes, [float(i % 2) for i in range(60)]))
                ended.append(self.fine(*request, "y.npy", "-m", model, *loss))
            for e in ended:
                self.assertIn("2 classes, from 0 to 1", e.err)
                self.assertEqual([e.json()[k] for k in ("loss", "accuracy")],
                                 [ended[0].json()[k] for k in ("loss", "accuracy")])
        self.refused(*request, "half.npy", "-m", "Dense(1 => 2)", "-l", "logitcrossentropy",
                     words=["the loss logitcrossentropy is for classes", "contains numbers such as"])

    def test_a_model_of_columns_on_an_array(self):
        rows = self.line()
        self.table("line.csv", rows, "a,b,y")
        self.write("x.npy", formats.npy((200, 2), [float(v) for row in rows for v in row[:2]]))
        self.write("y.npy", formats.npy((200,), [float(row[2]) for row in rows]))
        self.fine("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "3", "-S", "m.bson")
        self.assertEqual(self.fine("predict", "m.bson", "-d", "x.npy").out, self.fine("predict", "m.bson", "-d", "line.csv").out)
        losses = [self.fine("eval", "m.bson", *data, "--json").json()["loss"]
                  for data in (("-d", "line.csv"), ("-d", "x.npy", "-t", "y.npy"))]
        self.near(*losses)
        self.refused("eval", "m.bson", "-d", "x.npy", words="x.npy contains no targets: give their file with --target FILE")

    def classes_of(self, *data):
        """Trains, checks that every observation is classified correctly, and returns the names of the classes."""
        self.fine("train", "-q", *data, "-m", "Chain(Dense(1 => 8, tanh), Dense(8 => 3))", "-e", "150", "-o",
                  "Adam(0.05)", "--classes", "-S", "m.bson")
        measured = self.fine("eval", "m.bson", *data, "--json").json()
        self.assertEqual(measured["accuracy"], 1)
        return measured["classes"]

    def test_classes_that_are_large_numbers(self):
        for names in (["20230001", "20230002", "20230003"], ["-9007199254740991", "0", "9007199254740991"],
                      ["123456781", "123456782", "123456801"], ["9", "10", "100"], ["-1", "0", "1"]):
            rows = [(k * 5 + i / 10, names[k]) for k in range(3) for i in range(10)]
            self.table("days.csv", rows, "x,day")
            self.assertEqual(self.classes_of("-d", "days.csv"), names)
            guesses = rows_of(self.fine("predict", "m.bson", "-d", "days.csv").out)
            self.assertEqual(guesses[1:], [[row[1]] for row in rows])
            self.write("x.npy", formats.npy((30, 1), [float(row[0]) for row in rows]))
            self.write("y.npy", formats.npy((30,), [int(row[1]) for row in rows], "q"))
            self.assertEqual(self.classes_of("-d", "x.npy", "-t", "y.npy"), names)
        # Only the second of two files has large numbers.
        self.table("a.csv", [row for row in rows if row[1] != "1"] * 2, "x,day")
        self.table("b.csv", [(10 + i / 10, "1234567891") for i in range(10)] * 2, "x,day")
        self.assertEqual(self.classes_of("-d", "a.csv", "b.csv"), ["-1", "0", "1234567891"])
        self.table("zero.csv", [(k * 5 + i / 10, ("-0", "0", "1", "2")[k]) for k in range(4) for i in range(10)], "x,y")
        self.assertEqual(self.classes_of("-d", "zero.csv"), ["0", "1", "2"])
        self.table("ids.csv", [(i, 9007199254740993 + i % 2) for i in range(40)], "x,id")
        self.refused("train", "-d", "ids.csv", "-m", "Dense(1 => 2)", words=["ids.csv: id contains 90071992547409", "2^53"])

    def test_names_of_columns_that_are_numbers(self):
        self.table("line.csv", self.line(), "0,1,target")
        ended = self.fine("train", "-d", "line.csv", "-m", "Dense(2 => 1)", "-S", "m.safetensors")
        self.assertIn("200 observations of 2", ended.err)
        texts, _ = formats.read_safetensors(self.read("m.safetensors"))
        self.assertEqual([texts["text.columns.0"], texts["text.columns.1"]], ["0", "1"])
        self.assertEqual(rows_of(self.fine("predict", "m.safetensors", "-d", "line.csv").out)[0], ["target"])

    def test_best_epoch_is_kept(self):
        self.table("few.csv", self.line(12, 3.0), "a,b,y")
        self.table("held.csv", self.line(60, 3.0)[20:], "a,b,y")
        ended = self.fine("train", "-d", "few.csv", "-v", "held.csv", "-m",
                          "Chain(Dense(2 => 30, tanh), Dense(30 => 1))", "-e", "5000", "-b", "4", "-o",
                          "Adam(0.02)", "-p", "15", "-S", "m.bson", "-L", "l", "--json")
        result = ended.json()
        self.assertEqual(result["why"], "patience")
        measured = [e["validation_loss"] for e in events(self.read("l"), "epoch")]
        best = measured.index(min(measured))
        self.assertEqual(len(measured), best + 1 + 15)
        self.assertEqual(result["epochs"], len(measured))
        variance = statistics.variance(float(r[2]) for r in rows_of(self.read("few.csv").decode())[1:])  # the log has scaled targets
        self.near(self.fine("eval", "m.bson", "-d", "held.csv", "--json").json()["loss"], variance * measured[best])
        self.near(result["measured_loss"], variance * measured[best])
        self.assertIn(f"epoch {len(measured)}/5000", ended.err)
        # R² compares the errors with those of the mean of the validation data.
        held = [float(r[2]) for r in rows_of(self.read("held.csv").decode())[1:]]
        shown = re.search(f"epoch {best + 1}/5000 .*validation ([0-9.e-]+)  R² ([0-9.e-]+)", ended.err)
        self.near(float(shown[1]), measured[best], 1e-3)
        self.assertLess(abs(float(shown[2]) - (1 - variance * measured[best] / statistics.pvariance(held))), 1e-3)

    def test_hinge_losses_with_an_output_for_each_class(self):
        """Targets are −1 and 1, as Flux's hinge losses take them."""
        kinds = self.animals()
        rows = [[float(v) for v in row[:2]] for row in rows_of(self.read("animals.csv").decode())[1:]]
        for loss, power in (("hinge_loss", 1), ("squared_hinge_loss", 2)):
            self.fine("train", "-q", "-d", "animals.csv", "-m", "Dense(2 => 3)", "-l", loss, "-e", "2", "-S",
                      "m.safetensors", "--normalise", "none")
            said = self.fine("eval", "m.safetensors", "-d", "animals.csv", "--json").json()
            arrays = formats.read_safetensors(self.read("m.safetensors"))[1]
            weight, bias = arrays["model.weight"][1], arrays["model.bias"][1]
            terms = [max(0, 1 - (1 if name == kind else -1) * (bias[k] + a * weight[k] + b * weight[3 + k])) ** power
                     for (a, b), kind in zip(rows, kinds) for k, name in enumerate(said["classes"])]
            self.assertEqual(len(terms), 360)
            self.near(said["loss"], statistics.fmean(terms), 1e-4)


class Terminal(Training):
    """The line of progress fits the terminal; a longer line would be printed again at each update."""

    def lines(self, out):
        parts = re.split("\r|\n", out)
        return [p[:-3] for p in parts if p.endswith("\x1b[K")]

    def test_widths(self):
        self.animals()
        for columns, least in ((20, 15), (33, 20), (60, 30), (200, 60), (1, 0), (0, 50)):
            ended = self.terminal("train", "-d", "animals.csv", "-m", "Dense(2 => 3)", "-e", "4", "-v", "0.2",
                                  columns=columns)
            lines = self.lines(ended.out)
            self.assertEqual(ended.status, 0, ended.out)
            self.assertGreaterEqual(len(lines), 4)
            most = (columns or 80) - 1
            for line in lines:
                self.assertTrue(least <= len(line) <= most, (columns, line))

    def test_a_terminal_that_is_resized(self):
        self.table("line.csv", self.line(), "a,b,price")
        ended = self.terminal("train", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "1000000", columns=120,
                              until="epoch 20/", resize=24, then="\r", send="\x03")
        self.assertEqual(ended.status, 130)
        lines = self.lines(ended.out)
        self.assertGreater(len(lines[0]), 60)
        self.assertLess(len(lines[-1]), 24)

    def test_wide_characters_in_tables(self):
        """A Chinese character takes two columns."""
        self.table("w.csv", [(i % 2, i, ("猫", "dog")[i % 2]) for i in range(40)], "a,b,kind")
        self.fine("train", "-q", "-d", "w.csv", "-m", "Dense(2 => 2)", "-e", "1", "-S", "m.bson")
        lines = self.fine("eval", "m.bson", "-d", "w.csv").out.splitlines()
        for rows, margin in ((lines[-7:-5], ""), (lines[-3:-1], " ")):
            self.assertTrue(rows[0].startswith(margin + "dog "), rows)
            self.assertTrue(rows[1].startswith(margin + " 猫 "), rows)


class Stopping(Training):
    def long(self, *more):
        return ("train", "-d", cli.DIGITS, "-m", NETWORK, "-e", "1000000", "-S", "m.bson", "-c", "c", "-L", "l",
                "--checkpoint-every", "5000", *more)

    def check_stopped(self, epochs_before=0):
        log = events(self.read("l"))
        self.assertEqual((log[-1]["event"], log[-1]["why"]), ("end", "interrupted"))
        self.assertEqual(sum(e.get("steps", 1) for e in log if e["event"] == "step"), log[-1]["step"])
        self.fine("eval", "m.bson", "-d", cli.DIGITS)
        return log[-1]["step"]

    def test_control_c(self):
        ended = self.terminal(*self.long(), until="epoch 2/", send="\x03")
        self.assertEqual(ended.status, 130)
        self.assertIn("█", ended.out)
        self.assertIn("interrupted after epoch", ended.out)
        step = self.check_stopped()
        # The run resumes from the checkpoint and is stopped again.
        again = self.terminal(*self.long(), until="epoch ", send="\x03")
        self.assertEqual(again.status, 130)
        self.assertRegex(again.out, rf", training step {step}\s")
        starts = events(self.read("l"), "start")
        self.assertEqual([s.get("resumed_at_step") for s in starts], [None, step])

    def test_terminate(self):
        p = self.start(*self.long("-q"))
        self.wait_for("l", b'"epoch":2')
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=cli.SECONDS)
        self.assertEqual(p.returncode, 143)
        self.check_stopped()

    def long_steps(self):
        """A training step of this network takes long."""
        p = self.start("train", "-q", "-d", cli.DIGITS, "-m", "Chain(Dense(64 => 4000, tanh), Dense(4000 => 10))", "-b",
                       "1797", "-e", "1000", "-S", "m.bson", "-L", "l")
        self.wait_for("l", b'"step"')
        return p

    def test_a_signal_that_comes_twice(self):
        """A launcher and the program between it and this one may both pass on a Ctrl-C."""
        p = self.long_steps()
        p.send_signal(signal.SIGINT)
        time.sleep(0.003)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=cli.SECONDS)
        self.assertEqual(p.returncode, 130)
        self.check_stopped()

    def test_the_second_signal_ends_it(self):
        p = self.long_steps()
        p.send_signal(signal.SIGINT)
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=cli.SECONDS)
        self.assertIn(p.returncode, (-signal.SIGTERM, -signal.SIGINT))
        self.assertFalse(os.path.exists(self.path("m.bson")))
        self.assertTrue(events(self.read("l"), "step"))

    def run_to(self, epochs, name, *more):
        self.fine("train", "-q", "-d", cli.DIGITS, "-m", "Chain(Dense(64 => 16, relu), BatchNorm(16), Dropout(0.2), "
                  "Dense(16 => 10))", "-v", "0.2", "-e", str(epochs), "-S", name, "-s", "5", *more)
        return self.read(name)

    def test_going_on_gives_the_same_bits(self):
        whole = self.run_to(6, "whole.bson", "-p", "50")
        self.run_to(2, "part.bson", "-p", "50", "-c", "c", "-L", "l")
        self.assertEqual(self.run_to(6, "part.bson", "-p", "50", "-c", "c", "-L", "l"), whole)
        starts = events(self.read("l"), "start")
        self.assertEqual([s.get("resumed_at_step") for s in starts], [None, 90])
        # All epochs are done.
        self.assertEqual(self.run_to(6, "part.bson", "-p", "50", "-c", "c"), whole)

    def test_killed(self):
        whole = self.run_to(120, "whole.bson")
        for part in range(3):
            for name in ("c", "c.1", "l"):
                if os.path.exists(self.path(name)):
                    os.remove(self.path(name))
            p = self.start("train", "-q", "-d", cli.DIGITS, "-m", "Chain(Dense(64 => 16, relu), BatchNorm(16), "
                           "Dropout(0.2), Dense(16 => 10))", "-v", "0.2", "-e", "120", "-S", "part.bson", "-s",
                           "5", "-c", "c", "-L", "l", "--checkpoint-every", str(333 + part))
            self.wait_for("l", f'"epoch":{6 + 17 * part}'.encode())
            p.kill()
            p.communicate()
            # A kill during a write can cut off the last line. The resumed run removes it.
            # Without a checkpoint it starts again, with a new log.
            whole_lines = self.read("l")[:self.read("l").rfind(b"\n") + 1]
            resumes = os.path.exists(self.path("c"))
            self.assertGreaterEqual(len(events(whole_lines, "epoch")), 5)
            self.assertEqual(self.run_to(120, "part.bson", "-c", "c", "-L", "l"), whole)
            log = self.read("l")
            self.assertTrue(log.endswith(b"}\n"))
            self.assertEqual(log.startswith(whole_lines), resumes)
            self.assertEqual(events(log)[-1]["why"], "finished")

    def nameless_files(self, pid):
        """The open files of a process that are in the folder of the test and have no name."""
        found = []
        for link in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                found.append(os.readlink(link))
            except OSError:
                pass
        return [f for f in found if f.startswith(self.folder) and f.endswith(" (deleted)")]

    def test_signals_while_the_new_file_is_tried(self):
        """Before training, a nameless file on the disk of --save is written and read back. Whatever ends the process, nothing is left."""
        for number in (signal.SIGINT, signal.SIGKILL):
            p = self.start("train", "-q", "-d", cli.DIGITS, "-m", "Chain(Dense(64 => 4000), Dense(4000 => 1000), Dense(1000 => 10))", "-S", "m.bson")
            end = time.monotonic() + cli.SECONDS
            while time.monotonic() < end and p.poll() is None and not self.nameless_files(p.pid):
                time.sleep(0.001)
            self.assertTrue(self.nameless_files(p.pid))
            p.send_signal(number)
            p.communicate()
            self.assertEqual(p.returncode, -number)
            self.assertEqual(os.listdir(self.folder), [])

    def test_a_full_disk(self):
        if not os.path.exists("/dev/full"):
            print("skipped: no /dev/full here")
            return
        ended = self.run_cli("train", "-q", "-d", cli.DIGITS, "-m", NETWORK, "-e", "1", "-L", "/dev/full", "-S", "m.bson")
        self.assertEqual(ended.status, 1)
        self.assertIn("No space left", ended.err)
        self.fine("eval", "m.bson", "-d", cli.DIGITS)
        ended = self.run_cli("predict", "m.bson", "-d", cli.DIGITS, "--out", "/dev/full")
        self.assertEqual(ended.status, 1)
        self.assertIn("No space left", ended.err)

    def test_a_disk_that_fills_up(self):
        request = ("train", "-q", "-d", cli.DIGITS, "-m", NETWORK, "-c", "c", "-L", "l")
        self.fine(*request, "-e", "2")
        before, lines = self.read("c"), len(events(self.read("l")))

        def small():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

        self.assertGreater(len(before), 20000)
        p = self.start(*request, "-e", "4", preexec_fn=small)
        error = p.communicate()[1].decode()
        self.assertEqual(p.returncode, 1, error)
        self.assertIn("File too large", error)
        self.assertEqual(self.read("c"), before)
        log = events(self.read("l"))
        self.assertGreater(len(log), lines)
        self.assertEqual((log[-1]["why"], "File too large" in log[-1]["message"]), ("error", True))
        self.fine(*request, "-e", "4")
        # The model, which is smaller than the checkpoint, is saved in the units of the data.
        self.table("far.csv", [(a, b, 400000 + 1000 * (float(a) - float(b))) for a, b, _ in self.line()], "a,b,y")
        request = ("train", "-q", "-d", "far.csv", "-m", "Chain(Dense(2 => 8, tanh), Dense(8 => 1))", "-c", "d", "-S", "m.safetensors")
        self.fine(*request, "-e", "1")
        self.assertLess(len(self.read("m.safetensors")) + 1000, len(self.read("d")))
        limit = len(self.read("d")) - 500
        for name in ("d", "m.safetensors"):
            os.remove(self.path(name))

        def smaller():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        p = self.start(*request, "-e", "1", preexec_fn=smaller)
        error = p.communicate()[1].decode()
        self.assertEqual(p.returncode, 1, error)
        self.assertIn("the current model was saved to m.safetensors", error)
        self.assertLess(self.fine("eval", "m.safetensors", "-d", "far.csv", "--json").json()["mae"], 100000)

    def test_a_loss_of_nan(self):
        self.table("line.csv", self.line(), "a,b,y")
        ended = self.run_cli("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-o", "Descent(1e30)", "-L", "l")
        self.assertEqual(ended.status, 1)
        self.assertIn("loss is ", ended.err)
        self.assertIn("loss is ", events(self.read("l"))[-1]["message"])


class Validation(Training):
    def test_the_target_is_found_by_its_name(self):
        """A file for validation may have further columns and another order of columns."""
        rows = self.line()
        self.table("line.csv", rows, "a,b,price")
        self.table("other.csv", [(p, b, a, 1000000) for a, b, p in rows], "price,b,a,z")
        request = ["train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "3", "--json"]
        self.near(self.fine(*request, "-v", "other.csv").json()["measured_loss"],
                  self.fine(*request, "-v", "line.csv").json()["measured_loss"])


    def held_out(self, counts, share, seed):
        """The numbers of the observations that are held out for validation, and their count for each class."""
        kinds = [k for k, count in enumerate(counts) for _ in range(count)]
        self.table("kinds.csv", [(i, f"kind{k}") for i, k in enumerate(kinds)], "x,y")
        self.fine("train", "-q", "-d", "kinds.csv", "-m", f"Dense(1 => {len(counts)})", "-e", "1", "-v", share, "-s", seed,
                  "--normalise", "none", "-L", f"log{seed}")
        end = events(self.read(f"log{seed}"), "end")[-1]
        held = sorted((*numbers(s["input"]), s["target"]) for s in end["samples"] if "worst" not in s)
        for number, target in held:
            self.assertEqual(kinds[int(number)], target)
        return held, [sum(row) for row in end["confusion"]]

    def test_each_class_keeps_its_share(self):
        drawn = []
        for seed in ("1", "2", "1"):
            held, counts = self.held_out((40, 15, 5), "0.2", seed)
            self.assertEqual(counts, [8, 3, 1])
            self.assertEqual(len(set(held)), 12)
            drawn.append(held)
        self.assertEqual(drawn[0], drawn[2])
        self.assertNotEqual(drawn[0], drawn[1])
        # If a class cannot be divided exactly, the nearest count is taken; a single observation is used for training.
        cases = [((7, 7, 6), "0.5", [[4, 3, 3], [3, 4, 3]]), ((57, 1, 1, 1), "0.7", [[42, 0, 0, 0]]), ((1, 1), "0.5", [[1, 0], [0, 1]])]
        for counts, share, expected in cases:
            for seed in ("3", "4"):
                self.assertIn(self.held_out(counts, share, seed)[1], expected)

    def test_targets_in_files_of_their_own(self):
        """Each data file has one file of --target; the results are those of a single table."""
        rows = self.line(90)
        parts = {"a": rows[:40], "b": rows[40:60], "v": rows[60:]}
        for name, part in parts.items():
            self.table(name + ".csv", part, "a,b,y")
            numbers = [[float(v) for v in row] for row in part]
            self.write(f"x{name}.npy", formats.npy((len(part), 2), [v for row in numbers for v in row[:2]]))
            self.write(f"y{name}.npy", formats.npy((len(part),), [row[2] for row in numbers]))
            rounded = [[abs(int(8 * v)) for v in row] for row in numbers]  # bytes, as IDX files have them
            self.write(f"{name}-idx2", formats.idx((len(part), 2), [v for row in rounded for v in row[:2]]))
            self.write(f"{name}-idx1", formats.idx((len(part),), [row[2] for row in rounded]))
        request = ["train", "-q", "-m", "Dense(2 => 1)", "-e", "2", "--json", "--regression", "-S", "m.bson"]

        def measured(*data):
            result = self.fine(*request, *data).json()
            return result["loss"], result["measured_loss"]

        one, two = measured("-d", "a.csv", "-v", "v.csv"), measured("-d", "a.csv", "b.csv", "-v", "v.csv")
        self.assertNotEqual(one, two)
        self.assertEqual(measured("-d", "xa.npy", "-v", "xv.npy", "-t", "ya.npy", "-t", "yv.npy"), one)
        files = ("-d", "xa.npy", "xb.npy", "-t", "ya.npy", "-t", "yb.npy")
        self.assertEqual(measured(*files, "-v", "xv.npy", "-t", "yv.npy"), two)
        measured(*files, "-v", "0.2")
        said = self.fine("eval", "m.bson", *files, "--json").json()
        self.assertEqual(said["observations"], 60)
        self.assertEqual(len(rows_of(self.fine("predict", "m.bson", *files).out)), 61)
        with_idx = ("-d", "a-idx2", "b-idx2", "-t", "a-idx1", "-t", "b-idx1")
        self.fine(*request, *with_idx, "-v", "v-idx2", "-t", "v-idx1")
        for words, data in [
                ("xa.npy: --target ya.npy belongs to one file", ("-d", "xa.npy", "-v", "xv.npy", "-t", "ya.npy")),
                ("--target ya.npy belongs to one file", ("-d", "xa.npy", "xa.npy", "-t", "ya.npy")),
                ("--target a-idx1 belongs to one file", ("-d", "a-idx2", "a-idx2", "-t", "a-idx1")),
                ("--target is given 2 times for 3 files of data", (*files, "-v", "xv.npy")),
                ("--target is given 2 times for 1 file of data", ("-d", "xa.npy", "-t", "ya.npy", "-t", "yv.npy")),
                ("xa.npy contains no targets", ("-d", "xa.npy"))]:
            self.refused(*request[:-2], *data, words=words)
            if "-v" not in data:
                self.refused("eval", "m.bson", *data, words=words)
        self.refused(*request, *files, "-L", "yb.npy", words="--log yb.npy is also an input file")

    def test_a_folder_brings_its_labels(self):
        """A folder given with --data contains its labels; with --target, the file beside it is used."""
        os.mkdir(self.path("tiny"))
        for part in ("train", "t10k"):
            self.write(f"tiny/{part}-images-idx3-ubyte", formats.idx((20, 2, 2), [i % 7 for i in range(80)]))
            self.write(f"tiny/{part}-labels-idx1-ubyte", formats.idx((20,), [i % 2 for i in range(20)]))
        images, labels = "tiny/t10k-images-idx3-ubyte", "tiny/t10k-labels-idx1-ubyte"
        request = ("train", "-q", "-m", "Chain(Flux.flatten, Dense(4 => 2))", "-e", "2", "--json")
        results = [self.fine(*request, *data).json() for data in (
            ("-d", "tiny", "-v", "tiny"), ("-d", images, "-t", labels, "-v", "tiny"),
            ("-d", "tiny", "-v", images, "-t", labels), ("-d", images, "-v", images, "-t", labels, "-t", labels))]
        for result in results:
            self.assertEqual([result[k] for k in ("loss", "measured_loss", "observations")],
                             [results[0][k] for k in ("loss", "measured_loss", "observations")])
        self.fine(*request, "-d", images, "tiny", images, "-t", labels, "-t", labels, "-v", "tiny", "-S", "m.bson")
        self.refused(*request, "-d", images, "tiny", images, "-t", labels, "-v", "tiny", words="belongs to one file")


    def test_folders_with_several_data_sets(self):
        """As EMNIST's: images of one data set never get the labels of another."""
        os.mkdir(self.path("sets"))
        for name, n in (("a-letters", 20), ("b-digits", 20)):
            self.write(f"sets/{name}-train-images-idx3-ubyte.gz", formats.idx((n, 2, 2), [i % 7 for i in range(4 * n)], True))
            self.write(f"sets/{name}-train-labels-idx1-ubyte", formats.idx((n,), [i % 2 for i in range(n)]))
        request = ("train", "-q", "-m", "Chain(Flux.flatten, Dense(4 => 2))", "-e", "1", "-d", "sets")
        names = "sets/a-letters-train-images-idx3-ubyte.gz", "sets/b-digits-train-images-idx3-ubyte.gz"
        self.refused(*request, words=["sets has several data sets", *names])
        os.remove(self.path(names[1]))
        self.refused(*request, words=["sets has several data sets", "labels"])
        self.fine(*request[:-1], names[0], "-t", "sets/a-letters-train-labels-idx1-ubyte")
        os.remove(self.path("sets/b-digits-train-labels-idx1-ubyte"))
        self.write("sets/a-letters-train-images-idx3-ubyte", gzip.decompress(self.read(names[0])))
        self.fine(*request)

    def test_options_of_other_data(self):
        """An option that a kind of data does not have is an error, and is never ignored."""
        os.mkdir(self.path("tiny"))
        self.write("tiny/train-images-idx3-ubyte", formats.idx((20, 2, 2), [i % 7 for i in range(80)]))
        self.write("tiny/train-labels-idx1-ubyte", formats.idx((20,), [i % 2 for i in range(20)]))
        self.write("x.npy", formats.npy((20, 4), [i % 7 for i in range(80)]))
        self.write("y.npy", formats.npy((20,), [i % 2 for i in range(20)]))
        self.write("xy.npz", formats.npz({"x": ((20, 4), [i % 7 for i in range(80)]), "y": ((20,), [i % 2 for i in range(20)])}))
        self.write("t.txt", "__label__a one\n__label__b two\n" * 10)
        self.table("t.csv", [(i % 2, i, i % 2) for i in range(40)], "a,b,y")
        images = "tiny/train-images-idx3-ubyte"
        kinds = {"tiny": (["-d", "tiny"], "tiny is a folder"),
                 "npz": (["-d", "xy.npz"], "xy.npz is an npz file"),
                 "npy": (["-d", "x.npy", "-t", "y.npy"], "x.npy is an npy file"),
                 "idx": (["-d", images, "-t", "tiny/train-labels-idx1-ubyte"], f"{images} is an IDX file")}
        model = "Chain(Flux.flatten, Dense(4 => 2))"
        for data, what in kinds.values():
            command = ("train", "-q", "-e", "1", "-m", model, "--classes", *data)
            self.fine(*command)
            for option, value in (("--id", "a"), ("--separator", ";"), ("--skip", "1")):
                self.refused(*command, option, value, words=f"{option}: {what}, not a CSV file")
        self.refused("train", "-q", "-e", "1", "-m", model, "-d", "tiny", "-t", "y", words="--target: tiny is a folder, which has its own targets")
        # The options are for one of the files.
        self.write("s.csv", "no table\n" + "".join(f"n{i};{i % 3};{i % 2};1;2;{i % 2}\n" for i in range(20)))
        named = ["--id", 1, "--separator", ";", "--skip", 1]
        mixed = ["train", "-q", "-e", 1, "-m", "Dense(4 => 2)", "--classes"]
        self.fine(*mixed, "-d", "s.csv", "-v", "xy.npz", *named)
        self.fine(*mixed, "-d", "xy.npz", "-v", "s.csv", *named)
        self.refused(*mixed, "-d", "xy.npz", "-v", "xy.npz", *named, words="--id: xy.npz is an npz file, not a CSV file")
        # --part is for data that have parts.
        self.write("parts.npz", formats.npz({"x": ((20, 4), [i % 7 for i in range(80)]), "y": ((20,), [i % 2 for i in range(20)]),
                                             "x_test": ((5, 4), range(20)), "y_test": ((5,), [0, 1, 0, 1, 1])}))
        self.fine(*mixed, "-d", "parts.npz", "-S", "parts.bson")
        for part, n in (("train", 20), ("test", 5)):
            self.assertEqual(self.fine("eval", "parts.bson", "-d", "parts.npz", "--part", part, "--json").json()["observations"], n)
            for data in (["xy.npz"], ["x.npy", "-t", "y.npy"], ["s.csv", *named], [images, "-t", "tiny/train-labels-idx1-ubyte"]):
                for command in ("eval", "predict"):
                    self.refused(command, "parts.bson", "-d", *data, "--part", part, words=f"--part: {data[0]} has no training and test part")
        table = ("train", "-q", "-e", "1", "-m", "Dense(2 => 2)", "-d", "t.csv")
        self.fine(*table)
        self.refused(*table, "--vocabulary", "300", words="--vocabulary needs texts")
        self.refused(*table, "--schedule-steps", words="--schedule-steps needs --schedule")
        text = ("train", "-q", "-e", "1", "-d", "t.txt")
        self.fine(*text, "-S", "t.bson")
        self.refused(*text, "--init", "t.bson", "--vocabulary", "300", words="--vocabulary and --init exclude each other")
        self.refused(*text, "--missing", "drop", words="--missing is for numbers")
        self.refused(*text, "--normalise", "none", words="--normalise is for numbers")


class Refusals(Training):
    def setUp(self):
        super().setUp()
        self.table("line.csv", self.line(), "a,b,price")

    def bad(self, *arguments, words):
        options = dict(zip(arguments[::2], arguments[1::2]))
        options = {"-d": "line.csv", "-m": "Dense(2 => 1)", "-S": "m.bson", "-L": "l", "-c": "c", "-r": "r",
                   **options}
        flat = [part for pair in options.items() for part in pair]
        self.refused("train", *flat, words=words)

    def test_when_without_where(self):
        self.refused("train", "-d", "line.csv", "-m", "Dense(2 => 1)", "--checkpoint-every", "3",
                     words=["needs --checkpoint FILE"])

    def test_requests(self):
        os.mkdir(self.path("folder.bson"))
        cases = [
            ("-m", "Chain(Dense(2 => 1), relux)", ["model, column 22", "relux"]),
            ("-m", "Dense(2 => )", ["model, column 12"]),
            ("-o", "OptimiserChain(Adam(), Adem())", ["optimiser, column 24", "Adem"]),
            ("--schedule", "Stop(1)", ["schedule, column 1", "Stop"]),
            ("--schedule", "Constant(-1)", ["the learning rate must be at least 0"]),
            ("-m", "Dense(3 => 1)", ["layer 1, Dense(3 => 1)", "observations of size 2, as in line.csv; use Dense(2 => 1)"]),
            ("-m", "Chain(Dense(2 => 5), Dense(4 => 1))",
             ["layer 2, Dense(4 => 1)", "does not accept an input of size 5", "use Dense(5 => 1)"]),
            ("-m", "Dense(2 => 4)", ["output for an observation has size 4", "line.csv has size 1"]),
            ("-m", "Conv((3, 3), 1 => 2)", ["layer 1, Conv((3, 3), 1 => 2)", "--shape"]),
            ("-t", "prize", ['no column "prize"', 'did you mean "price"?']),
            ("-t", "q", ['no column "q"; it has 3, from "a" to "price"']),
            *[("-t", number, [f'no column "{number}"', "columns are numbered from 1 to 3"]) for number in ("9", "0", "-1")],
            ("-d", "lines.csv", ["lines.csv", "No such file"]),
            ("-d", ".", ["a folder without images"]),
            *[("-v", name, [name, "No such file"]) for name in ("nothere.csv", "2024.csv")],
            *[("-v", share, ["--validation takes a share from 0 to less than 1", f'"{share}"'])
              for share in ("1.5", "1", "-1", "nan", "inf", "20%", "0,2")],
            ("-v", "0.999", ["--validation 0.999", "none for training"]),
            ("-v", "0.0001", ["none for validation"]),
            ("-l", "logitcrossentropi", ["did you mean logitcrossentropy?"]),
            ("-l", "ctc_loss", ["needs a program in C", "sequences of labels"]),
            ("-l", "siamese_contrastive_loss", ["needs a program in C", "two inputs"]),
            ("-l", "quantile_loss", ["needs a program in C", "use --loss mae to learn the median"]),
            ("-l", "logitcrossentropy", ["price contains numbers such as"]),
            ("-o", "Adams(0.1)", ["optimiser, column 1", "Adams"]),
            ("--device", "abacus", ["abacus"]),
            ("-S", "m.npz", [".bson or .safetensors"]),
            ("-L", "line.csv", ["--log line.csv is also an input file"]),
            ("-r", "./l", ["--log and --report are the same file"]),
            ("-c", "m.bson", ["--save and --checkpoint are the same file"]),
            ("-S", "folder.bson", ["--save folder.bson is a folder, not a file"]),
            ("-r", "nowhere/r", ["--report nowhere/r: there is no folder nowhere"]),
            ("--shape", "6148914691236517206x3x32", ["too large"]),
            ("--shape", "2x1x1", ["output for an observation has size 1×1×1", "has size 1", "Flux.flatten"]),
            ("-S", "no/m.bson", ["--save no/m.bson: there is no folder no"]),
            ("-L", "no/l", ["--log no/l: there is no folder no"]),
            ("-c", "no/c", ["--checkpoint no/c: there is no folder no"]),
            ("-r", "no/r", ["--report no/r: there is no folder no"]),
            ("-e", "0", ["--epochs", '"0"']),
            ("-b", "x", ["--batchsize", '"x"']),
            ("--normalise", "some", ["--normalise", '"some"']),
            ("--shape", "3x3", ["--shape 3x3 has 9 numbers", "has 2"]),
            ("--shape", "2x", ["--shape takes sizes"]),
            ("--separator", "q", ["--separator"]),
        ]
        for option, value, words in cases:
            with self.subTest(option=option, value=value):
                self.bad(option, value, words=words)
        self.assertGreaterEqual(len(cases), 28)
        for option in ("--save", "--log", "--checkpoint", "--report"):
            self.refused("train", "-d", "line.csv", "-m", "Dense(2 => 1)", option, "", words=f"{option}: the path is empty")
        self.refused("train", "-d", "line.csv", "-m", words="--model needs a value")
        self.refused("train", "-d", "line.csv", words=["--model is missing", "can use --model 'Chain(Dense(4 => 32, relu), Dense(32 => 3))'"])
        self.refused("train", "-m", "Dense(2 => 1)", words="--data is missing: give a file, or - for CSV on standard input")
        self.refused("train", "-d", "line.csv", "-m", "Dense(2 => 3)", words="its target in line.csv has size 1: use a last layer with 1 output\n")
        self.refused("train", "-d", "line.csv", "-m", "Dense(2 => 1)", "--classes", "--regression", words="exclude")

    def test_decimal_commas(self):
        """A table as European programs write it: texts and dates keep their commas and points."""
        draw = random.Random(3)
        rows = [("Köln, Rhein" if i % 2 else "Bonn", f"{draw.gauss(0, 9):.2f}", "12.05.2024", f"{draw.random():.3f}") for i in range(60)]
        for name, mark in (("point.csv", "."), ("comma.csv", ",")):
            self.write(name, "town;x;day;y\n" + "".join(f"{a};{b.replace('.', mark)};{c};{d.replace('.', mark)}\n" for a, b, c, d in rows))
        train = ["train", "-q", "-m", "Dense(4 => 1)", "-e", "2", "-d"]
        self.fine(*train, "point.csv", "-S", "point.bson")
        self.fine(*train, "comma.csv", "--decimal", ",", "-S", "comma.bson")
        want = self.fine("predict", "point.bson", "-d", "point.csv").out
        for options in (["comma.bson", "-d", "comma.csv"], ["comma.bson", "-d", "point.csv", "--decimal", "."],
                        ["point.bson", "-d", "comma.csv", "--decimal", ","]):
            self.assertEqual(self.fine("predict", *options).out, want, options)
        self.assertIn('decimal: ","', self.fine("inspect", "comma.bson").out)
        self.fine("convert", "comma.bson", "comma.safetensors")
        self.assertEqual(self.fine("predict", "comma.safetensors", "-d", "comma.csv").out, want)
        # The wrong mark.
        for request, words in ((["predict", "comma.bson", "-d", "point.csv"], 'for decimal points, use --decimal .\n'),
                               ([*train, "comma.csv"], "for decimal commas, use --decimal ,\n")):
            ended = self.run_cli(*request)
            self.assertEqual((ended.status, ended.err.count("\n")), (2, 2), ended.err)
            self.assertIn(words, ended.err)
        self.bad("-d", "comma.csv", "--decimal", ";", words='--decimal is ";", expected one of .|,')
        self.refused(*train, "x.npy", "--decimal", ",", words="--decimal: x.npy is an npy file, not a CSV file")

    def test_closed_streams(self):
        """Texts for a closed stream must not be written into a file that gets its number."""
        options = "-d line.csv -m 'Dense(2 => 1)' -e 2 -L l.jsonl -S m.bson -c c"
        self.table("line.csv", self.line(), "a,b,y")
        for closed, status in (("<&-", 0), (">&-", 1), ("2>&-", 0), ("<&- >&- 2>&-", 1)):
            p = subprocess.run(["sh", "-c", f'"$0" train {options} {closed}', cli.program], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(p.returncode, status, (closed, p.stderr))
            self.assertEqual([json.loads(line)["event"] for line in self.read("l.jsonl").splitlines()][-1], "end", closed)
            self.fine("inspect", "m.bson")
            for name in ("l.jsonl", "m.bson", "c"):
                os.remove(self.path(name))

    def test_no_standard_input(self):
        self.table("line.csv", self.line(), "a,b,y")
        self.fine("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "1", "-S", "m.bson")
        words = "cflux predict: standard input is neither a file nor a pipe: give the data with --data FILE\n"
        closed = subprocess.run(["sh", "-c", '"$0" predict m.bson <&-', cli.program], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((closed.returncode, closed.stderr), (2, words))
        with open("/dev/null", encoding="utf-8") as nothing:
            self.refused("predict", "m.bson", stdin=nothing, words=words)

    def test_separators(self):
        want = None
        for name, between, option in (("commas.csv", ",", ","), ("semicolons.csv", ";", ";"), ("bars.csv", "|", "|"), ("tabs.csv", "\t", "tab"),
                                      ("blanks.csv", "   ", "space")):
            rows = [("  " * (option == "space") + between.join(row),) for row in self.line()]
            self.table(name, rows, between.join("aby"))
            train = ["train", "-q", "-d", name, "-m", "Dense(2 => 1)", "-e", "1", "--regression", "--save", "m.bson"]
            self.fine(*train)
            model, found = self.read("m.bson"), self.fine("predict", "m.bson", "-d", name).out
            self.fine(*train, "--separator", option)
            self.assertEqual(self.read("m.bson"), model)
            want = want or found
            self.assertEqual(found, want)
            self.assertIn("rmse", self.fine("eval", "m.bson", "-d", name).out.lower())
            self.assertIn("3 columns", self.fine("inspect", name).out)
            self.assertEqual(self.fine("predict", "m.bson", "-t", "3", stdin="\n".join(row for row, in rows)).out, want)
            if between == ",":
                continue
            # A decimal comma: two readings.
            self.table(name, [(row[0].replace(".", ","),) for row in rows], between.join("aby"))
            advice = "--decimal , or --separator ','"
            self.bad("-d", name, words=[f"{name}: line", "can be decimal commas or separators", f"use {advice}"])
            for command in (["inspect", name], ["convert", name, "x.npz", "--arrays"]):
                self.refused(*command, out=True, words=f"use cflux train {advice}\n")
            refused = self.run_cli("inspect", name, "--json").json()["refused"]
            self.assertIn(f"use cflux train {advice}", refused)
            # With the option, the model and what it predicts are those of the table with points.
            self.fine(*train, "--decimal", ",")
            self.assertEqual(self.fine("predict", "m.bson", "-d", name).out, want)
            self.assertIn("rmse", self.fine("eval", "m.bson", "-d", name).out.lower())
            self.assertEqual(self.fine("predict", "m.bson", "-t", "3", stdin="\n".join(row.replace(".", ",") for row, in rows)).out, want)
            self.assertEqual(self.fine("predict", "m.bson", "-d", "commas.csv", "--decimal", ".").out, want)
        self.write("tabs.csv", "a\tb\ty\n1\t2\t3\n2\t1\t4\n")
        self.fine("train", "-q", "-d", "tabs.csv", "-m", "Dense(2 => 1)", "-e", "1", "--separator", "\\t", "--regression")
        # Lines of different lengths: commas, with a hint.
        self.write("ragged.csv", "a;b\n1;2\n1;2;3\n")
        self.bad("-d", "ragged.csv", words=["ragged.csv has one column", "use --separator ';'"])

    def test_a_late_change_of_type(self):
        """The error names the line and the column, and no file is written."""
        rows = [(i % 7, "red" if i % 3 else "blue", "yes" if i % 2 else "no") for i in range(80500)]
        for column, value, more, words in (
                (0, "oops", [], 'expected a number, found "oops"'), (0, "", [], "line 80000, column 1: expected a number"),
                (0, "oops", ["--missing", "mean"], 'line 80000, column 1: expected a number, found "oops"'),
                (1, "3.5", [], 'line 80000: column "b" contains "3.5", but only texts in the 79998 rows above'),
                (2, "17", [], 'line 80000: y is the number "17", but it is a text in the 79998 rows above')):
            row = list(rows[79998])
            row[column] = value
            self.table("late.csv", [*rows[:79998], row, *rows[79999:]], "a,b,y")
            self.refused("train", "-d", "late.csv", "-m", "Dense(3 => 2)", "-e", 1, "-S", "late.bson", *more, words=words)
            self.assertFalse(os.path.exists(self.path("late.bson")))
        self.fine("train", "-d", "late.csv", "-m", "Dense(3 => 3)", "-e", 1, "-q", "-b", 5000, "--classes")

    def test_housing_of_uci(self):
        """Fixed columns with blanks before the first one, as in UCI's housing.data."""
        self.write("housing.data", " 0.00632  18.00   2.310  0  24.00\n 0.02731   0.00   7.070  0  21.60\n"
                                   "12.24720   0.00  18.100  1   5.50\n" * 10)
        self.fine("train", "-q", "-d", "housing.data", "-m", "Dense(4 => 1)", "-e", "1", "--regression", "--save", "m.bson")
        out = self.fine("predict", "m.bson", "-d", "housing.data").out.splitlines()
        self.assertEqual(len(out), 31)
        self.write("housing.csv", self.read("housing.data").decode().replace("\n ", "\n").strip().replace("  ", ",").replace(",,", ",").replace(", ", ","))
        self.assertEqual(self.fine("predict", "m.bson", "-d", "housing.csv").out.splitlines(), out)

    def test_csv_files_called_idx(self):
        self.table("my_idx.csv", self.line(), "a,b,y")
        self.write("my_idx.csv.gz", gzip.compress(self.read("my_idx.csv")))
        for name in ("my_idx.csv", "my_idx.csv.gz"):
            self.fine("train", "-q", "-d", name, "-m", "Dense(2 => 1)", "-e", "1")
            self.assertIn("CSV", self.fine("inspect", name).out)

    def test_target_without_names(self):
        """A table without names that also has the target: the message says how to leave it out."""
        self.write("named.csv", "a,b,y\n1,2,3\n2,3,4.5\n3,4,6.5\n")
        self.write("unnamed.csv", "1,2,3\n2,3,4.5\n3,4,6.5\n")
        self.fine("train", "-q", "-d", "named.csv", "-m", "Dense(2 => 1)", "-e", "1", "--save", "named.bson")
        self.refused("predict", "named.bson", "-d", "unnamed.csv",
                     words="if a column is the target, give its number with --target")
        self.fine("predict", "named.bson", "-d", "unnamed.csv", "--target", "3")
        self.write("plain.csv", "1,2,3\n4,5,6.5\n7,8,1\n")
        self.fine("train", "-q", "-d", "plain.csv", "-m", "Dense(2 => 1)", "--regression", "-e", "1", "--save", "plain.bson")
        self.write("narrow.csv", "1\n4\n")
        for more in ([], ["--id", "1"]):
            self.refused("predict", "plain.bson", "-d", "narrow.csv", *more, words="narrow.csv")
        self.refused("predict", "plain.bson", "-d", "narrow.csv",
                     words="plain.bson takes 2 numbers per observation, but narrow.csv has 1")
        self.refused("predict", "plain.bson", "-d", "narrow.csv", "-t", "3", words='narrow.csv has no column "3"')

    def test_data(self):
        self.write("missing.csv", "\na,b,y\n\n1,NA,2\n2,4,3\n")
        self.bad("-d", "missing.csv", words=['column "b" contains numbers and text, such as "NA"', "--missing"])
        self.table("names.csv", [(i, f"name{i}", i) for i in range(101)], "a,b,y")
        self.bad("-d", "names.csv", words=['column "b" has 101 different texts, such as "name0"', "a column of text can have at most 100; remove the column, or give it with --id"])
        self.write("missing.csv", "a,b,y\n1,2,NA\n2,4,3\n")
        self.refused("train", "-d", "missing.csv", "-m", "Dense(2 => 1)", "--regression",
                     words=['missing.csv: line 2: y is "NA" here but a number elsewhere'])
        self.write("words.csv", "a,b,y\n1,2,NA\n2,4,big\n3,3,1\n")
        self.refused("train", "-d", "words.csv", "-m", "Dense(2 => 1)", "--regression",
                     words='words.csv: y contains text, such as "NA"')
        self.write("gaps.csv", '"a\n(m)",b,y\n\n' + "1,2,NA\n2,4,3.5\n3,1,4\n" * 20)
        for more in ([], ["-l", "mse"], ["-l", "logitcrossentropy"]):
            self.bad("-d", "gaps.csv", *more, words=['gaps.csv: line 4: y is "NA" here', "--missing drop leaves out the row", "--classes"])
        self.fine("train", "-q", "-d", "gaps.csv", "-m", "Dense(2 => 1)", "--missing", "drop", "--regression", "-e", "1")
        self.write("words.csv", "a,b,y\n1,2,NA\n2,4,big\n" + "3,3,1\n" * 20)
        ended = self.run_cli("train", "-q", "-d", "words.csv", "-m", "Dense(2 => 1)", "--missing", "drop")
        self.assertEqual(ended.status, 2)
        self.assertIn('words.csv: line 3: y is "big" here', ended.err) # line 2 was left out
        self.fine("train", "-q", "-d", "gaps.csv", "-m", "Dense(2 => 3)", "--classes", "-e", "1")
        for n in (1001, 40000):
            self.table("many.csv", [(1, 2, f"t{i}") for i in range(n)], "a,b,y")
            for more in ([], ["--classes"]):
                self.refused("train", "-d", "many.csv", "-m", f"Dense(2 => {n})", *more,
                             words=f"many.csv: y has {n} distinct texts; the maximum number of classes is 1000\n")
        self.table("many.csv", [(1, 2, f"t{i}") for i in range(1000)], "a,b,y")
        self.fine("train", "-q", "-d", "many.csv", "-m", "Dense(2 => 1000)", "-e", "1")
        self.fine("train", "-q", "-d", "words.csv", "-m", "Dense(2 => 3)", "-e", "1")
        self.write("missing.csv", "a,b,y\n1,,2\n2,4,3\n")
        self.bad("-d", "missing.csv", words=["line 2, column 2", "a number or a text (for missing values: cflux train --missing), found nothing"])
        for text, line in (("a,b,y\n1,2,caf\xe9\n3,4,cat\n", 2), ("a,b,caf\xe9\n1,2,3\n2,3,4\n", 1)):
            self.write("latin.csv", text.encode("latin-1"))
            self.bad("-d", "latin.csv", "-m", "Dense(2 => 2)", words=[f"latin.csv: line {line}", "not UTF-8"])
        self.bad("-d", "/dev/zero", words=["/dev/zero: not a regular file"])
        self.write("hole.csv", "a,b,y\n1,2,3\n2,,3\n")
        self.bad("-d", "hole.csv", words=["line 3, column 2", "found nothing"])
        self.write("nan.csv", "a,b,y\n1,2,3\n2,nan,3\n")
        self.bad("-d", "nan.csv", words=['nan.csv: line 3: feature 2, column "b", is NaN, which only cflux train --missing'])
        self.write("saved.bson", b"\x05\0\0\0\0")
        self.bad("-d", "saved.bson", words=["saved.bson: files of models and arrays are not data; cflux convert writes"])
        self.fine("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "1", "-c", "run.ckpt")
        self.bad("-d", "run.ckpt", words="run.ckpt: files of models and arrays are not data")
        self.write("one.csv", "a,b,y\n1,2,cat\n2,4,cat\n")
        self.bad("-d", "one.csv", "-m", "Dense(2 => 2)", words=['every target is "cat"'])
        self.write("row.csv", "a,b,y\n1,2,3\n")
        self.bad("-d", "row.csv", "-m", "Dense(2 => 1)", words=["needs at least two; --regression learns numbers"])
        self.fine("train", "-d", "row.csv", "-m", "Dense(2 => 1)", "-e", "1", "--regression")
        self.write("counts.npz", formats.npz({"x": ((3, 2), [0.0] * 6), "y": ((2,), [0.0] * 2)}))
        self.bad("-d", "counts.npz", words=["3 observations and 2 targets"])
        self.write("other.npz", formats.npz({"a": ((3, 2), [0.0] * 6)}))
        self.bad("-d", "other.npz", words="other.npz contains no targets: give their file with --target FILE")
        self.write("empty.npz", formats.npz({}))
        self.bad("-d", "empty.npz", words="empty.npz contains no arrays\n")
        self.write("zero.npz", b"")
        self.bad("-d", "zero.npz", words=["zero.npz", "the file is empty"])
        self.table("odd.csv", self.line(33), "a,b,y")
        norm = "Chain(Dense(2 => 3), BatchNorm(3), Dense(3 => 1))"
        self.bad("-d", "odd.csv", "-m", norm, words=["one observation", "BatchNorm(3)", "--drop-partial"])
        self.bad("-d", "odd.csv", "-m", norm, "--batchsize", "1", "--drop-partial",
                 words=["every batch has one observation", "BatchNorm(3)", "a larger --batchsize"])
        self.fine("train", "-q", "-d", "odd.csv", "-m", norm, "--drop-partial")
        self.bad("-d", "line.csv", "-m", "Chain(Dense(2 => 3), BatchNorm(3; eps=0.1), Dense(3 => 1))", "-S",
                 "m.safetensors", words=["--save m.safetensors", "epsilon of BatchNorm"])

    def test_a_checkpoint_of_another_model(self):
        self.fine("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "1", "-c", "c")
        quiet = ("train", "-q", "-d", "line.csv", "-S", "m.bson", "-L", "l", "-c", "c", "-r", "r", "-m")
        self.refused(*quiet, "Chain(Dense(2 => 3), Dense(3 => 1))", words="--checkpoint c belongs to another run")
        self.write("c", b"no checkpoint")
        self.refused(*quiet, "Dense(2 => 1)", words="--checkpoint c belongs to another run")

    def test_a_checkpoint_of_other_settings(self):
        self.table("long.csv", self.line(210), "a,b,price")
        first = {"-d": "line.csv", "-m": "Chain(Dense(2 => 3, tanh), Dense(3 => 1))", "-c": "c", "-v": "0.2", "-s": "1"}
        self.fine("train", "-q", *[part for pair in first.items() for part in pair], "-e", "1")
        self.write("before", self.read("c"))
        cases = [
            ("-s", "2", ['"--seed 1"', '"--seed 2"']),
            ("-v", "0.3", ['"--validation 0.2"', '"--validation 0.3"']),
            ("-v", "line.csv", ['"--validation 0.2"', '"--validation of other data, 200 observations, CRC-32 ']),
            ("-l", "mae", ['"--loss mse"', '"--loss mae"']),
            ("-b", "16", ['"--batchsize 32"', '"--batchsize 16"']),
            ("-o", "Adam(0.01)", ["--optimiser Adam(eta=0.001,", "--optimiser Adam(eta=0.01,"]),
            ("-d", "long.csv", ["--data of 200 observations", "--data of 210 observations"]),
            ("-m", "Chain(Dense(2 => 3, relu), Dense(3 => 1))", ["tanh", "relu"]),
            ("--normalise", "none", ["--normalise auto", "--normalise none"]),
            ("--missing", "drop", ['written without "--missing drop", but this training has it']),
        ]
        for option, value, words in cases:
            with self.subTest(option=option, value=value):
                flat = [part for pair in {**first, option: value}.items() for part in pair]
                self.refused("train", "-q", *flat, "-S", "m.bson", "-L", "l", words=[*words, "remove c and c.1"])
        self.assertGreaterEqual(len(cases), 10)
        clipped = ["train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-c", "d"]
        self.fine(*clipped, "-e", 1, "--clip-norm", 1)
        self.refused(*clipped, words='written with "--clip-norm 1", but this training does not have it')
        # Checkpoints of earlier versions can be resumed: the text of the optimiser is the same.
        rules = "OptimiserChain(WeightDecay(1e-4), SignDecay(1e-3), ClipGrad(1), RMSProp(0.01), WeightDecay(0.5))"
        self.fine("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-c", "e", "-e", 1, "-o", rules)
        self.assertIn(b"--optimiser OptimiserChain(WeightDecay(0.0001), SignDecay(0.001), ClipGrad(1.0), "
                      b"RMSProp(0.01, 0.9, 1.0e-8; centred = false), WeightDecay(0.5))\n", self.read("e"))
        flat = [part for pair in first.items() for part in pair]
        # Spaces, and options that equal the defaults, do not make it another training run.
        again = self.fine("train", "-q", *flat, "-e", "2", "-o", "Adam( 0.001 )", "-l", "Flux.mse", "--json").json()
        self.assertEqual(again["epochs"], 2)
        self.assertIsInstance(again["loss"], float)
        # All epochs were done, so there is no loss to print.
        again = self.fine("train", "-q", *flat, "-e", "2", "--json").json()
        self.assertEqual((again["epochs"], again["loss"]), (2, None))

    def test_a_checkpoint_of_other_data(self):
        """Other data of the same size is refused: the numbers and labels are compared."""
        self.table("held.csv", self.line(50), "a,b,price")
        self.table("moved.csv", [(a, b, float(y) + 1) for a, b, y in self.line(50)], "a,b,price")
        self.table("noisy.csv", self.line(200, 1.0), "a,b,price")
        rest = ("-m", "Dense(2 => 1)", "-c", "c")
        self.fine("train", "-q", "-d", "line.csv", "-v", "held.csv", *rest, "-e", "1")
        for data, held, words in (("noisy.csv", "held.csv", "--data of 200 observations of 2, CRC-32 "),
                                  ("line.csv", "moved.csv", "--validation of other data, 50 observations, CRC-32 ")):
            ended = self.refused("train", "-q", "-d", data, "-v", held, *rest, words="remove c and c.1")
            self.assertEqual(ended.err.count(f'"{words}'), 2, ended.err)
        # The same data and targets under another name count as the same.
        self.write("x.npy", formats.npy((20, 1), [i / 20 for i in range(20)]))
        self.write("y.npy", formats.npy((20,), [i / 10 for i in range(20)]))
        arrays = ("train", "-q", "-d", "x.npy", "-m", "Dense(1 => 1)", "-c", "of_arrays", "--json", "-e")
        self.fine(*arrays, "1", "-t", "y.npy")
        self.assertEqual(self.fine(*arrays, "2", "-t", "./y.npy").json()["epochs"], 2)
        self.write("copy.csv", self.read("line.csv"))
        self.fine("train", "-q", "-d", "copy.csv", "-v", "held.csv", *rest, "-e", "2")
        self.animals()
        rest = ("-m", "Dense(2 => 3)", "-c", "of_kinds")
        self.fine("train", "-q", "-d", "animals.csv", *rest, "-e", "1")
        self.write("animals.csv", self.read("animals.csv").replace(b"bird", b"cage"))
        self.refused("train", "-q", "-d", "animals.csv", *rest, words="--data of 120 observations of 2, CRC-32 ")

    def test_losses_and_targets_that_do_not_fit(self):
        request = ("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-S", "m.bson")
        losses = ("logitcrossentropy", "crossentropy", "hinge_loss", "squared_hinge_loss")
        for loss in losses:
            self.refused(*request, "--regression", "-l", loss, words=[f"the loss {loss} is for classes", "line.csv"])
        self.fine(*request)
        for loss in losses:
            self.refused("eval", "m.bson", "-d", "line.csv", "-l", loss, words=f"the loss {loss} is for classes")
        two = {"x": ((20, 2), [0.5] * 40), "y": ((20, 2), [0.0, 1.0] * 20)}
        self.write("two.npz", formats.npz(two))
        wide = ("train", "-q", "-d", "two.npz", "-m", "Dense(2 => 2)")
        self.refused(*wide, "--classes", words=["--classes", "2 targets per observation"])
        # If an observation has several labels, each label is a number.
        self.fine(*wide, "-l", "logitbinarycrossentropy", "-e", "1")

    def test_probabilities_of_losses_without(self):
        self.animals()
        for loss in ("hinge_loss", "squared_hinge_loss", "mse", "mae"):
            self.fine("train", "-q", "-d", "animals.csv", "-m", "Dense(2 => 3)", "-l", loss, "--classes", "-e", "1",
                      "-S", "m.bson")
            self.refused("predict", "m.bson", "-d", "animals.csv", "-P", words=["not probabilities", loss])

    def test_paths_that_would_move_a_cursor(self):
        """Paths too are printed with \\x1b, on both streams."""
        self.table("\x1b[31m.csv", [(i % 2, i, i % 2) for i in range(40)], "a,b,kind")
        base = ("-m", "Dense(2 => 2)", "-L", "\x1b[31m.log", "-r", "\x1b[31m.html", "-S", "\x1b[31m.bson", "-c", "\x1b[31m.ckpt")
        for more in (("-e", "1"), ("-e", "2")):
            ended = self.fine("train", "-d", "\x1b[31m.csv", *base, *more)
            for part in ("saved \\x1b[31m.bson", "report \\x1b[31m.html"):
                self.assertIn(part, ended.out)
            self.assertNotIn("\x1b[31m", ended.out + ended.err)
        self.assertIn("resuming from \\x1b[31m.ckpt", ended.err)
        ended = self.fine("train", "-d", "\x1b[31m.csv", "-m", "Dense(2 => 2)", "-e", "1", "--init", "\x1b[31m.bson")
        self.assertIn("--init \\x1b[31m.bson: 2 of 2", ended.err)
        shown = self.fine("eval", "\x1b[31m.bson", "-d", "\x1b[31m.csv").out
        self.assertIn("\\x1b[31m.bson on \\x1b[31m.csv: 40", shown)
        self.assertNotIn("\x1b[31m", shown)

    def test_names_that_would_move_a_cursor(self):
        self.table("bad.csv", [(i % 2, i, ("\x1b[31mred", "blue\x07")[i % 2]) for i in range(40)], "a,b,kind")
        ended = self.fine("train", "-d", "bad.csv", "-m", "Dense(2 => 2)", "-e", "1", "-S", "m.bson")
        shown = self.fine("eval", "m.bson", "-d", "bad.csv").out
        self.assertIn("2 classes, from \\x1b[31mred to blue\\x07", ended.err)
        for text in (ended.err, shown):
            self.assertNotIn("\x1b[31m", text)
            self.assertNotIn("\x07", text)
        lines = shown.splitlines()
        for rows in (lines[-7:-5], lines[-3:-1]):
            self.assertTrue(rows[0].startswith("\\x1b[31mred ") and rows[1].startswith("   blue\\x07 "), rows)

    def test_eval_and_predict(self):
        self.fine("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-S", "m.bson")
        self.refused("eval", "m.bson", words="--data is missing")
        self.refused("eval", words="too few operands")
        self.refused("eval", "line.csv", "-d", "line.csv", words="line.csv")
        self.refused("eval", "m.bson", "-d", cli.DIGITS, words="no column")
        self.refused("predict", "m.bson", "-d", "line.csv", "--out", "x.txt", words=".csv or .npy")
        self.refused("predict", "m.bson", "-d", "line.csv", "--out", "no/x.csv", words="--out no/x.csv: there is no folder no")
        self.refused("predict", "m.bson", "-d", "line.csv", "--out", ".", words="--out . is a folder, not a file")
        # The output folder is checked before the data is read.
        self.refused("predict", "m.bson", "-d", "lines.csv", "--out", "no/x.npy", words="there is no folder no")
        self.refused("predict", "m.bson", "-d", "line.csv", "-P", words="no classes")
        self.write("a.npz", formats.npz({"x": ((3, 2), [0.0] * 6)}))
        self.refused("eval", "a.npz", "-d", "line.csv", words="contains no model")
        self.refused("predict", "/dev/zero", "-d", "line.csv", words="/dev/zero: not a regular file")
        self.refused("predict", "m.bson", "-d", "/dev/zero", words="/dev/zero: not a regular file")
        self.fine("predict", "m.bson", "-d", "/dev/stdin", stdin=self.read("line.csv").decode())


class SeveralFiles(Training):
    def test_data_given_twice_is_more_data(self):
        """Data given by several options is joined in their order, like several files of one option."""
        rows = self.line()
        self.table("line.csv", rows, "a,b,price")
        for name, part in (("a.csv", rows[:70]), ("b.csv", rows[70:150]), ("c.csv", rows[150:])):
            self.table(name, part, "a,b,price")
        more = ("-q", "-m", "Dense(2 => 1)", "-e", "3", "-S", "m.safetensors")
        self.fine("train", "-d", "line.csv", *more)
        whole = self.read("m.safetensors")
        out = self.fine("predict", "m.safetensors", "-d", "line.csv").out
        loss = self.fine("eval", "m.safetensors", "-d", "line.csv", "--json").json()["loss"]
        for files in (("-d", "a.csv", "-d", "b.csv", "--data=c.csv"), ("-d", "a.csv", "-d", "b.csv", "c.csv"),
                      ("-d", "a.csv", "b.csv", "c.csv")):
            self.fine("train", *files, *more)
            self.assertEqual(self.read("m.safetensors"), whole, files)
            self.assertEqual(self.fine("predict", "m.safetensors", *files).out, out, files)
            told = self.fine("eval", "m.safetensors", *files, "--json").json()
            self.assertEqual((told["loss"], told["observations"], told["data"]), (loss, 200, "a.csv and 2 more"))
        for out in ("a.csv", "b.csv", "c.csv"):
            self.refused("train", "-d", "a.csv", "-d", "b.csv", "c.csv", "-m", "Dense(2 => 1)", "-L", out,
                         words=f"--log {out} is also an input file")
            self.refused("predict", "m.safetensors", "-d", "a.csv", "-d", "b.csv", "c.csv", "--out", out,
                         words=f"--out {out} is also an input file")

    def test_a_target_for_each_file(self):
        for name, start in (("x", 0), ("y", 20)):
            self.write(name + ".npy", formats.npy((20, 1), [(start + i) / 20 for i in range(20)]))
            self.write(name + "t.npy", formats.npy((20,), [(start + i) / 10 for i in range(20)]))
        more = ("-q", "-m", "Dense(1 => 1)", "-e", "1", "--json")
        told = self.fine("train", "-d", "x.npy", "-d", "y.npy", "-t", "xt.npy", "-t", "yt.npy", *more).json()
        self.assertEqual(told["data"]["observations"] if isinstance(told.get("data"), dict) else 40, 40)
        self.refused("train", "-d", "x.npy", "-d", "y.npy", "-t", "xt.npy", "-t", "yt.npy", "-t", "xt.npy", *more,
                     words="--target is given 3 times for 2 files")


class Inputs(Training):
    """An output must not overwrite an input."""

    def test_predict(self):
        self.table("line.csv", self.line(), "a,b,price")
        self.write("more.csv", self.read("line.csv"))
        self.fine("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "1", "-S", "m.bson")
        os.symlink("m.bson", self.path("m.csv"))
        for out in ("line.csv", "./more.csv", "m.csv"):
            self.refused("predict", "m.bson", "-d", "line.csv", "more.csv", "--out", out,
                         words=f"--out {out} is also an input file")
        self.fine("predict", "m.bson", "-d", "line.csv", "more.csv", "--out", "p.csv")
        self.assertEqual(len(rows_of(self.read("p.csv").decode())), 401)

    def test_report(self):
        self.table("line.csv", self.line(), "a,b,price")
        self.fine("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "1", "-L", "r.jsonl")
        self.refused("report", "r.jsonl", "-o", "r.jsonl", words="--output r.jsonl is also an input file")
        self.refused("report", "r.jsonl", "-o", "no/r.html", words="--output no/r.html: there is no folder no")
        self.refused("report", "r.jsonl", "-o", ".", words="is a folder")
        self.refused("report", "nothing", "-o", "no/r.html", words="there is no folder no")
        self.fine("report", "r.jsonl")
        self.assertIn(b"<html", self.read("r.jsonl.html"))
        self.worst_of_numbers()

    def worst_of_numbers(self):
        """The end of the log has the scores that are printed, pairs of all predictions, and the largest errors."""
        told = self.fine("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "1", "-L", "w.jsonl", "-S", "w.bson", "--json").json()
        end = events(self.read("w.jsonl"), "end")[0]
        self.assertEqual(end["columns"], ["a", "b"])
        for name in ("mae", "rmse", "r2"):
            self.near(end["scores"][name], told[name])
        rows = [tuple(map(float, row)) for row in rows_of(self.read("line.csv").decode())[1:]]
        predicted = [float(row[0]) for row in rows_of(self.fine("predict", "w.bson", "-d", "line.csv").out)[1:]]
        self.assertEqual(len(end["pairs"]), len(rows))
        for (truth, guess), row, own in zip(end["pairs"], rows, predicted, strict=True):
            self.near(truth, row[2])
            self.near(guess, own)
        worst = sorted(range(len(rows)), key=lambda i: -abs(rows[i][2] - predicted[i]))[:8]
        samples = [s for s in end["samples"] if s.get("worst")]
        self.assertEqual(len(samples), 8)
        for sample, i in zip(samples, worst, strict=True):
            for got, want in zip(sample["input"], rows[i]):
                self.assertAlmostEqual(got, want, places=3)

    def test_standard_input(self):
        self.table("line.csv", self.line(), "a,b,price")
        request = ("train", "-q", "-m", "Dense(2 => 1)", "-e", "1")
        self.fine(*request, "-d", "line.csv", "-S", "m.bson", "-L", "r.jsonl")
        for arguments, name, words in (
                (("report", "-", "-o", "r.jsonl"), "r.jsonl", "--output r.jsonl is also an input file"),
                (("predict", "m.bson", "-d", "-", "--out", "./line.csv"), "line.csv", "--out ./line.csv is also an input file"),
                ((*request, "-d", "-", "-L", "line.csv"), "line.csv", "--log line.csv is also an input file")):
            with open(self.path(name)) as read:
                self.refused(*arguments, words=words, stdin=read)
        with open(self.path("line.csv")) as read:
            self.fine("predict", "m.bson", "-d", "-", "--out", "p.csv", stdin=read)
        self.assertEqual(len(rows_of(self.read("p.csv").decode())), 201)

    def test_a_column_is_no_file(self):
        self.table("line.csv", self.line(), "a,b,y")
        self.fine("train", "-q", "-d", "line.csv", "-t", "y", "-m", "Dense(2 => 1)", "-e", "1", "-L", "y")
        self.assertTrue(events(self.read("y"), "end"))


class OtherFiles(Training):
    """Files of other programs, and files with less information than those of cflux."""

    LAYER = formats.dense(1, 2, [1.0, -1.0], [0.5])

    def test_two_classes_and_no_loss(self):
        self.write("f.bson", formats.bson({"model": self.LAYER, "classes": formats.julia_tuple("no", "yes")}))
        self.table("x.csv", [(2, 1), (1, 2)], "a,b")  # outputs 1.5 and −0.5
        self.refused("predict", "f.bson", "-d", "x.csv", words=["contains no loss", "--loss"])
        guesses = self.fine("predict", "f.bson", "-d", "x.csv", "-l", "logitbinarycrossentropy").out
        self.assertEqual(guesses.split(), ["prediction", "yes", "no"])

    def test_a_class_called_na(self):
        """In data for measuring, texts are names of classes."""
        self.write("f.bson", formats.bson({"model": formats.dense(3, 2, [1.0, 0, -1, 0, 1.0, -1], [0.0, 0, 0])}))
        self.table("x.csv", [(-2, -1, "NA"), (2, 1, 1), (1, 2, 2), (5, 1, 2)], "a,b,kind")
        measured = self.fine("eval", "f.bson", "-d", "x.csv", "-l", "logitcrossentropy", "--json").json()
        self.assertEqual((measured["classes"], measured["accuracy"]), (["1", "2", "NA"], 0.75))

    def test_entries_of_another_kind(self):
        self.table("x.csv", [(2, 1), (1, 2)], "a,b")
        array, numbers = formats.julia_array, lambda *n: formats.julia_array([len(n)], n, "q")
        cases = [
            {"mean": "zero", "std": array([2], [1, 1])},
            {"mean": array([2], [0, 0]), "std": formats.julia_tuple("a")},
            {"mean": array([2], [0, 0])},
            {"std": array([2], [1, 1])},
            {"shape": numbers(2), "mean": array([3], [0, 0, 0]), "std": array([3], [1, 1, 1])},
            {"shape": "2"},
            {"shape": array([1], [2])},
            {"shape": numbers(0)},
            {"shape": numbers(-2, -1)},
            {"shape": numbers(2 ** 62, 4)},  # 2^64 elements, which overflows to 0
            {"columns": array([2], [1, 2])},
            {"columns": formats.julia_tuple(1.0, 2.0)},
            {"columns": "a"},
            {"classes": array([2], [1, 2])},
            {"classes": formats.julia_tuple(1.0, 2.0)},
            {"classes": formats.julia_tuple("one")},
        ]
        for more in cases:
            with self.subTest(more=more):
                self.write("f.bson", formats.bson({"model": self.LAYER, **more}))
                for command in ("predict", "eval"):
                    self.refused(command, "f.bson", "-d", "x.csv", words="is missing or invalid")
        self.assertGreaterEqual(len(cases), 16)
        self.write("f.bson", formats.bson({"model": self.LAYER, "shape": numbers(2), "mean": array([2], [1, 1]),
                                           "std": array([2], [2, 1])}))
        out = rows_of(self.fine("predict", "f.bson", "-d", "x.csv").out)
        self.assertEqual([float(r[0]) for r in out[1:]], [1.0, -0.5])


class Narrow(Training):
    def test_class_numbers_of_a_model_of_16_bits(self):
        """Float16 holds odd numbers only up to 2047, so the number of a class must not become a Float16."""
        n, predicted = 2100, 2051
        layer = formats.julia_struct(["Flux", "Dense"], formats.julia_array([n, 1], [0] * n, "e"),
                                     formats.julia_array([n], [9 * (i == predicted) for i in range(n)], "e"),
                                     formats.julia_function("identity", "Base"))
        self.write("e.bson", formats.bson({"model": formats.chain(layer),
                                           "classes": formats.julia_tuple(*[f"k{i}" for i in range(n)])}))
        self.write("x.csv", "1\n2\n")
        for more in ((), ("-P",)):
            rows = rows_of(self.fine("predict", "e.bson", "-d", "x.csv", "-l", "logitcrossentropy", *more).out)
            self.assertEqual([r[0] for r in rows[1:]], [f"k{predicted}"] * 2, more)


class Wide(Training):
    def test_more_columns_than_a_bson_file_may_name(self):
        """A model that could not be read back is refused before training; the other format can store it."""
        for columns, possible in ((30000, True), (280000, False)):
            with self.subTest(columns=columns):
                self.table("wide.csv", [[(7 * r + 3 * i) % 11 for i in range(columns)] + [r] for r in range(3)],
                           ",".join([f"gene{i}" for i in range(columns)] + ["y"]))
                train = ("train", "-q", "-d", "wide.csv", "-m", f"Dense({columns} => 1)", "--regression", "-e", "1", "-S")
                if possible:
                    for model in ("m.bson", "m.safetensors"):
                        self.fine(*train, model)
                        self.fine("eval", model, "-d", "wide.csv")
                        os.remove(self.path(model))
                else:
                    self.refused(*train, "m.bson", words=["could not be read back", "objects", "try another format"])
                self.assertEqual(os.listdir(self.folder), ["wide.csv"])


class Memory(Training):
    def test_each_allocation_that_fails(self):
        """Each allocation of the command line fails: it reports the error and leaves no model or a complete one, or works without the memory."""
        shim, source = self.path("failing.so"), os.path.join(cli.ROOT, "tests", "cli", "failing_calloc.c")
        compiler = shutil.which("cc")
        if not compiler or subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", shim, "-ldl"],
                                          capture_output=True).returncode:
            print("skipped: no compiler that makes failing_calloc.c")
            return

        def train(at, *request):
            return self.run_cli("train", "-q", *request, "-e", "1", "-S", "m.safetensors", LD_PRELOAD=shim,
                                FAIL_AT=str(at), FAIL_IN=cli.program)

        self.table("a.csv", [(1, 2, "x"), (2, 3, "y"), (1, 4, "x"), (3, 1, "z")], "a,b,k")
        self.table("b.csv", [(1, 2, "w"), (3, 2, "x")], "a,b,k")
        self.table("n.csv", [(i % 3, i % 5, i % 2) for i in range(40)], "a,b,k")
        if "#failed" not in train(1, "-d", "n.csv", "-m", "Dense(2 => 2)").err:
            print("skipped: the program's calloc is not one that can be replaced")
            return
        failed = 0
        for request in (("-d", "a.csv", "-m", "Dense(2 => 3)"), ("-d", "a.csv", "b.csv", "-m", "Dense(2 => 4)"),
                        ("-d", "n.csv", "-m", "Dense(2 => 2)"),
                        ("-d", "n.csv", "-m", "Dense(2 => 1)", "--regression", "-v", "0.5")):
            self.fine("train", "-q", *request, "-e", "1", "-S", "m.safetensors")
            whole = self.read("m.safetensors")
            for at in range(1, 100):
                os.remove(self.path("m.safetensors"))
                ended = train(at, *request)
                if "#failed" not in ended.err:
                    break
                failed += 1
                if ended.status:
                    self.assertRegex(ended.err, r"^#failed\ncflux train: .*(no|out of) memory", (request, at))
                    if os.path.exists(self.path("m.safetensors")): # the measurement after the training failed
                        self.assertEqual(self.read("m.safetensors"), whole, (request, at))
                    self.write("m.safetensors", b"")
                else:
                    self.assertEqual(self.read("m.safetensors"), whole, (request, at))
            self.assertEqual(ended.status, 0, ended.err)
        self.assertGreaterEqual(failed, 40)


class Flux(Training):
    def test_a_network_of_flux_on_mnist(self):
        """A network that was trained in Julia, where pixels are numbers from 0 to 1."""
        model = cli.recorded("flux-bson/ShuhuaGao__model-zoo__runs.model__d7598e3.bson")
        data = cli.recorded("mnist")
        if model and data:
            measured = self.fine("eval", model, "-d", data, "-l", "crossentropy", "--json").json()
            self.assertEqual(measured["observations"], 10000)
            self.assertGreater(measured["accuracy"], 0.97)
            self.assertLess(measured["loss"], 0.1)

    def test_a_model_of_flux(self):
        """A file without scale and names: the data is used unscaled."""
        layer = formats.dense(3, 2, [1.0, 0, -1, 0, 1.0, -1], [0.0, 0, 0])
        self.write("f.bson", formats.bson({"model": formats.chain(layer)}))
        self.table("d.csv", [(2, 1, 0), (1, 2, 1), (-1, -2, 2), (5, 1, 1)], "a,b,c")
        measured = self.fine("eval", "f.bson", "-d", "d.csv", "-l", "logitcrossentropy", "--json").json()
        self.assertEqual((measured["observations"], measured["accuracy"]), (4, 0.75))
        self.table("x.csv", [(2, 1), (1, 2)], "a,b")
        out = rows_of(self.fine("predict", "f.bson", "-d", "x.csv").out)
        self.assertEqual(out[0], ["prediction_1", "prediction_2", "prediction_3"])
        self.assertEqual([[float(v) for v in r] for r in out[1:]], [[2, 1, -3], [1, 2, -3]])


if __name__ == "__main__":
    cli.main(73)
