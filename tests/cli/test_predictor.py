#!/usr/bin/env python3
"""A C program (predict_cases.c, its path in PREDICT_CASES) makes the predictions of `cflux predict` with the models
that `cflux train` saves. Usage: test_predictor.py PROGRAM"""
import os
import random
import subprocess
import sys

import cli
import formats


class Predictor(cli.Cli):
    def in_c(self, model, data):
        p = subprocess.run([os.environ["PREDICT_CASES"], self.path(model), data], cwd=self.folder, text=True,
                           encoding="utf-8", capture_output=True, timeout=cli.SECONDS, env=self.environment())
        return cli.Ended(p.returncode, p.stdout, p.stderr)

    def same(self, model, data, rows, *options):
        """Compares all lines; the command line's first line has the names of the columns."""
        ended = self.in_c(model, data)
        self.assertEqual((ended.status, ended.err), (0, ""))
        lines = self.fine("predict", model, "-d", data, *options).out.splitlines()[1:]
        self.assertEqual((len(lines), ended.out.splitlines()), (rows, lines))

    def fails(self, model, data, *words):
        ended = self.in_c(model, data)
        self.assertEqual((ended.status, ended.out, ended.err.count("\n")), (2, "", 1), ended.err)
        for word in words:
            self.assertIn(word, ended.err)

    def write_rows(self, name, header, rows):
        self.write(name, "".join(",".join(map(str, row)) + "\n" for row in [header, *rows] if row))

    def test_numbers(self):
        """A regression, with more observations than a batch; several targets; a file without names."""
        draw = random.Random(1)
        rows = [(a, 10 * b + 5, round(a - b, 6), round(a + b, 6)) for a, b in
                ((round(draw.gauss(0, 1), 6), round(draw.gauss(0, 1), 6)) for _ in range(600))]
        self.write_rows("t.csv", ("a", "b", "u", "v"), rows)
        base = ["train", "-q", "-e", 2, "--normalise", "features", "--regression"]
        self.fine(*base, "-d", "t.csv", "-t", "u,v", "-m", "Chain(Dense(2 => 8, tanh), Dense(8 => 2))", "-S", "m.bson")
        self.same("m.bson", "t.csv", 600)
        self.write_rows("x.csv", ("b", "a"), [(b, a) for a, b, *_ in rows[:9]])
        self.same("m.bson", "x.csv", 9)
        self.write_rows("bare.csv", None, rows[:5])
        self.fine(*base, "-d", "bare.csv", "-m", "Dense(3 => 1)", "-S", "bare.bson")
        self.same("bare.bson", "bare.csv", 5)
        self.write_rows("inputs.csv", None, [r[:3] for r in rows[:5]])
        self.same("bare.bson", "inputs.csv", 5)
        self.write_rows("named.csv", ("a", "b", '"u, 1"', "v"), rows)
        self.fine(*base, "-d", "named.csv", "-t", '"u, 1",v', "-m", "Dense(2 => 2)", "-S", "several.bson")
        self.same("several.bson", "named.csv", 600)
        self.write_rows("few.csv", None, [r[:2] for r in rows[:5]])
        self.same("several.bson", "few.csv", 5)
        self.write_rows("few.csv", None, rows[:5])
        self.fine(*base, "-d", "few.csv", "-t", "3,4", "-m", "Dense(2 => 2)", "-S", "bare2.bson")
        self.same("bare2.bson", "few.csv", 5)
        with open(self.path("x.csv"), encoding="utf-8") as points:
            self.write("comma.csv", points.read().replace(",", ";").replace(".", ","))
        self.fine(*base, "-d", "comma.csv", "-t", "a", "--decimal", ",", "-m", "Dense(1 => 1)", "-S", "comma.bson")
        self.same("comma.bson", "comma.csv", 9)
        self.write_rows("short.csv", None, [r[:2] for r in rows[:5]])
        self.fails("bare.bson", "short.csv", "short.csv has 2 columns", "takes 3 numbers")
        self.write_rows("lacks.csv", ("a", "c"), [r[:2] for r in rows[:5]])
        self.fails("m.bson", "lacks.csv", 'lacks.csv has no column "b"')
        self.write_rows("gap.csv", ("a", "b"), [(1, 2), (3, "NA")])
        self.fails("m.bson", "gap.csv", "gap.csv", "line 3, column 2")
        self.fails("m.bson", "absent.csv", "absent.csv")
        self.fails("t.csv", "t.csv", "t.csv")

    def test_texts_and_missing_values(self):
        """A classifier with a text column and missing values in both kinds of columns."""
        draw = random.Random(2)
        rows = [(draw.choice(("red", "blue", "deep = green", "")), draw.choice((1.5, -2, 0.25, "NA")),
                 draw.choice(("cat", "dog", "fish"))) for _ in range(120)]
        self.write_rows("t.csv", ("colour", "n", "kind"), rows)
        self.fine("train", "-q", "-e", 3, "-d", "t.csv", "--missing", "mean", "-m", "Dense(4 => 3)", "-S", "m.bson",
                  "--normalise", "features")
        self.same("m.bson", "t.csv", 120, "-P")
        self.write_rows("x.csv", ("n", "colour"), [(b, a) for a, b, _ in rows])
        self.same("m.bson", "x.csv", 120, "-P")
        self.write("bare.csv", "red,1\nblue,NA\ndeep = green,2\n")
        self.same("m.bson", "bare.csv", 3, "-P")
        for text, words in (("n,colour\n1,red\n1,pink\n", 'bad.csv: line 3: column "colour" contains "pink"'),
                            ("n,colour\n1,7\n", 'bad.csv: column "colour" contains numbers'),
                            ("n,colour\nx,red\n", 'bad.csv: line 2, column 1: expected a number for "n", found "x"'),
                            ("n,shade\n1,red\n", 'bad.csv has no column for the feature "colour=blue"')):
            self.write("bad.csv", text)
            self.fails("m.bson", "bad.csv", words)

    def test_one_output_for_two_classes(self):
        draw = random.Random(3)
        rows = [(x, "low" if x < 0.2 else "high") for x in (round(draw.gauss(0, 1), 6) for _ in range(80))]
        self.write_rows("t.csv", ("x", "y"), rows)
        for loss in ("logitbinarycrossentropy", "binarycrossentropy"):
            act = "" if loss.startswith("logit") else ", sigmoid"
            self.fine("train", "-q", "-e", 20, "-d", "t.csv", "-m", f"Dense(1 => 1{act})", "--loss", loss, "-S", "m.bson",
                      "-o", "Adam(0.1)")
            self.same("m.bson", "t.csv", 80, "-P")
        self.fine("train", "-q", "-e", 2, "-d", "t.csv", "-m", "Dense(1 => 1)", "--loss", "hinge_loss", "-S", "m.bson")
        self.fails("m.bson", "t.csv", "trained with hinge_loss are not probabilities")

    def test_images(self):
        draw = random.Random(4)
        self.write("x-images-idx3-ubyte", formats.idx((40, 4, 4), [draw.randrange(256) for _ in range(640)]))
        self.write("y-labels-idx1-ubyte", formats.idx((40,), [i % 3 for i in range(40)]))
        self.fine("train", "-q", "-e", 2, "-d", "x-images-idx3-ubyte", "-t", "y-labels-idx1-ubyte", "-S", "m.bson", "-m",
                  "Chain(Conv((2, 2), 1 => 4, relu), Flux.flatten, Dense(36 => 3))")
        self.same("m.bson", "x-images-idx3-ubyte", 40, "-P")
        self.write("other.npy", formats.npy((5, 3), range(15)))
        self.fails("m.bson", "other.npy", "takes 16 numbers per observation, got 3")

    def test_other_files(self):
        """Every format that can hold the model and its description gives the predictions of the first file."""
        draw = random.Random(5)
        self.write_rows("t.csv", ("a", "colour", "y"), [(draw.choice((1.5, 2, "NA")), draw.choice(("red", "blue")), f"c {i % 3}")
                                                      for i in range(30)])
        self.fine("train", "-q", "-e", 1, "-d", "t.csv", "-m", "Chain(Dense(3 => 5), BatchNorm(5, tanh), Dense(5 => 3))",
                  "--missing", "median", "-S", "m.bson")
        self.same("m.bson", "t.csv", 30, "-P")
        first = self.in_c("m.bson", "t.csv").out
        for path, *more in (["m.safetensors"], ["m.npz"], ["t.safetensors", "--pytorch"], ["t.npz", "--pytorch"]):
            self.fine("convert", "m.bson", path, *more)
            self.same(path, "t.csv", 30, "-P")
            self.assertEqual(self.in_c(path, "t.csv").out, first)
        self.fine("convert", "m.bson", "bare.npz", "--arrays")
        self.fails("bare.npz", "t.csv", "bare.npz contains no model", "cflux convert --model NOTATION")


if __name__ == "__main__":
    if not os.path.exists(os.environ.get("PREDICT_CASES", "")):
        sys.exit("PREDICT_CASES is not the path of predict_cases")
    cli.main(least=5)
