#!/usr/bin/env python3
"""Language models: training on a text, scores, and texts that a model writes, from the command line and from a C program
(predict_cases.c, its path in PREDICT_CASES). Usage: test_language.py PROGRAM"""
import gzip
import math
import os
import subprocess

import cli
import formats

SMALL = "Chain(Embedding(256 => 8), GRU(8 => 24), Dense(24 => 256))"
PAIRS = "Chain(Embedding(256 => 8), Dense(8 => 256))"  # sees one token
# In GPT-2's order the first tokens are the printable bytes.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
ORDER = PRINTABLE + [b for b in range(256) if b not in PRINTABLE]
ID = {byte: i for i, byte in enumerate(ORDER)}


class Language(cli.Cli):
    def setUp(self):
        super().setUp()
        self.write("t.txt", "aab" * 300)

    def fit(self, *more, data="t.txt", model=SMALL, save="m.bson", epochs=30):
        return self.fine("train", "--text", data, "--context", 6, "-e", epochs, "-o", "Adam(0.02)", "-m", model, "--save", save, *more)

    def test_learns_and_writes(self):
        """A text with a memory of two tokens is learned, and continued by all files of the model, and from C."""
        run = self.fit("--validation", "0.1")
        self.assertIn("t.txt: 134 observations of 6 tokens, 15 for validation; the next of 256 tokens; loss logitcrossentropy", run.err)
        scores = self.fine("eval", "m.bson", "t.txt", "--json").json()
        # The first token of a piece does not say which a comes next: one of six positions costs at most ln 2.
        self.assertLess(scores["loss"], math.log(2) / 6)
        self.assertAlmostEqual(scores["perplexity"], math.exp(scores["loss"]), places=9)
        text = "aab" * 20 + "\n"
        for name in ("m.bson", "m.safetensors", "m.npz"):
            if name != "m.bson":
                self.fine("convert", "m.bson", name)
            self.assertEqual(self.fine("generate", name, "--prompt", "aab", "-n", 57, "-T", 0).out, text)
        in_c = subprocess.run([os.environ["PREDICT_CASES"], self.path("m.bson"), "prompt:aab"], cwd=self.folder, text=True,
                              encoding="utf-8", capture_output=True, timeout=cli.SECONDS, env=self.environment())
        self.assertEqual((in_c.stdout, in_c.stderr), ("aab" * 20 + "\n", ""))
        one, two, other = (self.fine("generate", "m.bson", "-p", "aab", "-n", 57, "-s", s, "-T", 1e6, "-k", 2).out for s in (1, 1, 2))
        self.assertEqual(one, two)
        self.assertNotEqual(one, other)
        self.assertEqual((len(one), set(one)), (61, set("ab\n")))  # a and b are the most likely, and equally likely at 1e6

    def test_scores(self):
        """The loss of a model that sees one token, computed again from its arrays; bytes and characters."""
        text = "ein schöner Öltanker\nüber Köln " * 8
        self.write("de.txt", text)
        self.fit("-q", data="de.txt", model=PAIRS)
        self.fine("convert", "m.bson", "a.npz", "--arrays", "--only", "model")
        arrays = formats.read_npz(self.read("a.npz"))
        embedded, weight, bias = (arrays[f"model.layers.{k}"] for k in ("0.weight", "1.weight", "1.bias"))
        self.assertEqual((embedded[0], weight[0], bias[0]), ((256, 8), (8, 256), (256,)))  # the sizes of Julia, reversed
        ids = [ID[b] for b in text.encode()]
        n = (len(ids) - 1) // 6 * 6
        total, characters = 0, 0
        for now, after in zip(ids[:n], ids[1:n + 1]):
            x = embedded[1][now * 8:now * 8 + 8]
            y = [bias[1][k] + sum(weight[1][i * 256 + k] * x[i] for i in range(8)) for k in range(256)]
            most = max(y)
            total += most + math.log(sum(math.exp(v - most) for v in y)) - y[after]
            characters += ORDER[after] & 0xC0 != 0x80
        self.assertGreater(n, characters)
        scores = self.fine("eval", "m.bson", "de.txt", "--json").json()
        self.assertAlmostEqual(scores["loss"], total / n, places=4)
        self.assertAlmostEqual(scores["nats_per_character"], total / characters, places=4)
        with gzip.open(self.path("de.gz"), "wb") as f:
            f.write(b"\xef\xbb\xbf" + text.encode())
        self.assertEqual(self.fine("eval", "m.bson", "de.gz", "--json").json()["loss"], scores["loss"])

    def test_options(self):
        """Pieces of words, several files, the end as validation, folds, seeds, a checkpoint, a report, --init."""
        run = self.fit("--vocabulary", 258, model=SMALL.replace("256", "258"), save="v.bson", epochs=2)
        self.assertIn("the next of 258 tokens", run.err)
        self.write("u.txt", "xyz" * 300)
        both = ["train", "--text", "t.txt", "u.txt", "-m", SMALL, "--context", 6, "-e"]
        run = self.fine(*both, 20, "-v", "0.5", "-o", "Adam(0.02)", "--save", "half.bson")
        self.assertIn("149 observations of 6 tokens, 149 for validation", run.err)
        self.assertGreater(float(run.out.split("loss ")[1].split(",")[0]), 4)  # the second file was not used for training
        self.assertLess(self.fine("eval", "half.bson", "t.txt", "--json").json()["loss"], math.log(2) / 6)
        folds = self.fine(*both, 1, "-q", "--folds", 3, "--json").json()
        self.assertEqual(len(folds["runs"]), 3)
        self.assertEqual(set(folds["mean"]), {"loss", "perplexity", "nats_per_character"})
        self.assertIn("of 2 runs: loss ", self.fine(*both, 1, "-q", "--seeds", 2).out)
        kept = ["-q", "-c", "c", "--save", "c.bson", "--log", "l", "--report", "r.html"]
        self.fine(*both, 1, *kept)
        self.assertIn("epoch 2, training step 20", self.fine(*both, 2, *kept).out)
        self.assertIn("--init v.bson: 6 of 6 arrays copied", self.fine(
            "train", "--text", "t.txt", "-e", 1, "--context", 3, "--init", "v.bson", "-m", SMALL.replace("256", "258")).err)

    def test_refusals(self):
        train = ["train", "--text", "t.txt", "--save", "o.bson"]
        self.fine("train", "--text", "t.txt", "-q", "-e", 1, "-m", SMALL, "--context", 6, "--save", "m.bson")
        self.write("bad.txt", b"one\ntw\xff\n")
        self.write("short.txt", "a few")
        for bad, words in (("bad.txt", "bad.txt: line 2: byte 3 (0xFF) is not UTF-8"),
                           ("short.txt", "short.txt has 5 tokens, but a context of 6 needs at least 7"),
                           ("none.txt", "none.txt")):
            self.refused("train", "--text", bad, "--context", 6, "--save", "o.bson", words=words)
            self.refused("eval", "m.bson", bad, words=words)
        self.refused("train", "--text", "-", words="texts are read twice", stdin="aab" * 100)
        self.refused(*train, "-m", "Chain(Embedding(256 => 8), Dense(8 => 20))", words="a last layer with 256 outputs")
        self.refused(*train, "-m", "Chain(Embedding(200 => 8), Dense(8 => 256))", words="use Embedding(256 => 8)")
        self.refused(*train, "-m", "Dense(4 => 256)", words="a language model begins with Embedding(256 => …)")
        self.refused(*train, "-m", "Chain(Embedding(256 => 8), LayerNorm((8, 64)), Dense(8 => 256))",
                     words="the model's output at a position depends on later tokens")
        self.refused(*train, "--loss", "mse", words="the loss of a language model is logitcrossentropy")
        for option in (["--classes"], ["--regression"], ["--raw-targets"], ["--class-weights", "balanced"]):
            self.refused(*train, *option, words=option[0] + " and --text exclude each other")
        for option in (["--missing", "mean"], ["--normalise", "none"]):
            self.refused(*train, *option, words=option[0] + " is for numbers, but t.txt is texts")
        for option, value in (("--shape", "3"), ("--id", "x"), ("--target", "x"), ("--separator", ";"), ("--skip", "1")):
            self.refused(*train, option, value, words=[option + " does not work with t.txt, a text"])
        self.refused("train", "t.txt", words="--model is missing: only texts have a default model, with --text")
        self.refused("train", "t.txt", "-m", SMALL, "--context", 3, words="--context needs --text")
        self.refused("predict", "m.bson", "t.txt", words="m.bson is a language model: cflux generate continues texts with it")
        self.write("w.csv", "1,2\n3,4\n" * 10)
        self.fine("train", "w.csv", "-m", "Dense(1 => 1)", "--regression", "-q", "--save", "w.bson")
        self.refused("generate", "w.bson", words="w.bson is not a language model: cflux train --text trains one")
        self.refused("generate", "m.bson", "-T", -1, words="--temperature takes a number from 0")
        self.refused("generate", "m.bson", "-n", 0, words="--length takes a whole number from 1")


if __name__ == "__main__":
    cli.main(least=4)
