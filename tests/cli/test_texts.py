#!/usr/bin/env python3
"""Text files with a label and a text in each line: training, evaluation and prediction, from the command line and from a
C program (predict_cases.c, its path in PREDICT_CASES). Usage: test_texts.py PROGRAM"""
import gzip
import os
import random
import re
import subprocess

import cli

WORDS = {"fruit": "apple pear plum cherry grape melon", "tool": "hammer saw drill wrench pliers chisel",
         "ünï-5": "schön größer über weiß grün Öl"}
COMMON = "the a of and with some other very"


def lines(n, seed):
    """n lines; the class of each is decided by two of its words."""
    draw = random.Random(seed)
    out = []
    for i in range(n):
        label = sorted(WORDS)[i % len(WORDS)]
        words = draw.choices(COMMON.split(), k=draw.randrange(3, 12)) + draw.choices(WORDS[label].split(), k=2)
        draw.shuffle(words)
        out.append((label, " ".join(words)))
    draw.shuffle(out)
    return out


class Texts(cli.Cli):
    def setUp(self):
        super().setUp()
        self.train, self.test = lines(240, 1), lines(60, 2)
        self.write_lines("train.txt", self.train)
        self.write_lines("test.txt", self.test)

    def write_lines(self, name, rows):
        self.write(name, "".join(f"__label__{label} {text}\n" for label, text in rows))

    def fit(self, *more, data="train.txt", save="m.bson"):
        return self.fine("train", "-d", data, "-e", 12, "-o", "Adam(0.02)", "--save", save, *more)

    def test_classes(self):
        """The default model learns the classes; all files of the model, plain and gzip data, and C give the same."""
        run = self.fit("--validation", "test.txt")
        self.assertIn("240 observations of text, ", run.err)
        self.assertIn("60 for validation; 3 classes, from fruit to ünï-5; loss logitcrossentropy", run.err)
        self.assertRegex(run.err, r"EmbeddingBag\(\d+ => 64\)")
        self.assertIn("accuracy 100.00 % (60 of 60)", run.out)
        self.assertIn("accuracy 100.00 % (60 of 60)", self.fine("eval", "m.bson", "-d", "test.txt").out)
        self.write("raw.txt", "".join(text + "\n" for _, text in self.test))
        raw = self.fine("predict", "m.bson", "-P", "-d", "raw.txt").out
        rows = raw.splitlines()
        self.assertEqual(rows[0], "prediction,fruit,tool,ünï-5")
        self.assertEqual([row.split(",")[0] for row in rows[1:]], [label for label, _ in self.test])
        for row in rows[1:]:
            self.assertAlmostEqual(sum(map(float, row.split(",")[1:])), 1, places=5)
        self.assertEqual(self.fine("predict", "m.bson", "-P", stdin="".join(t + "\n" for _, t in self.test)).out, raw)
        self.assertEqual(self.fine("predict", "m.bson", "-P", "-d", "test.txt").out, raw)  # labels are ignored
        with gzip.open(self.path("raw.gz"), "wb") as f:
            f.write(self.read("raw.txt"))
        self.assertEqual(self.fine("predict", "m.bson", "-P", "-d", "raw.gz").out, raw)
        self.write("mark.txt", b"\xef\xbb\xbf" + self.read("raw.txt").replace(b"\n", b" \r\n"))
        self.assertEqual(self.fine("predict", "m.bson", "-P", "-d", "mark.txt").out, raw)
        for name in ("m.safetensors", "m.npz"):
            self.fine("convert", "m.bson", name)
            self.assertEqual(self.fine("predict", name, "-P", "-d", "raw.txt").out, raw)
        in_c = subprocess.run([os.environ["PREDICT_CASES"], self.path("m.bson"), "raw.txt"], cwd=self.folder, text=True,
                              encoding="utf-8", capture_output=True, timeout=cli.SECONDS, env=self.environment())
        self.assertEqual((in_c.stdout.splitlines(), in_c.stderr), (rows[1:], ""))

    def test_several_files(self):
        """Two files with lines of different lengths are the same data as one file."""
        self.write_lines("a.txt", self.train[:100])
        self.write_lines("b.txt", self.train[100:])
        one = self.fit("-q", save="one.bson").out
        two = self.fit("-q", "b.txt", data="a.txt", save="two.bson").out
        strip = lambda out: re.sub(r", [0-9.]+ s\n|saved.*", "", out)
        self.assertEqual(strip(one), strip(two))
        both = self.fine("predict", "one.bson", "-P", "-d", "a.txt", "b.txt").out
        self.assertEqual(both, self.fine("predict", "two.bson", "-P", "-d", "train.txt").out)
        self.write("long.txt", "apple " * 3000)
        ended = self.fine("predict", "one.bson", "-d", "long.txt")
        self.assertIn("only the first 1000 tokens of a line are used; 1 line reaches that length", ended.err)
        self.assertEqual(ended.out, "prediction\nfruit\n")

    def test_other_models(self):
        """--model, --vocabulary, folds, a checkpoint, a report, and a saved model to start from, with its vocabulary."""
        few = self.fit("--vocabulary", 270, "-m", "Chain(EmbeddingBag(300 => 16, sum), Dense(16 => 8, relu), Dense(8 => 3))")
        self.assertIn("240 observations of text, 270 tokens", few.err)
        self.assertIn("(240 of 240)", few.out)
        self.assertIn("3 runs", self.fine("train", "-q", "-d", "train.txt", "-e", 1, "--folds", 3).out)
        run = ["train", "-q", "-d", "train.txt", "--validation", "0.2", "-c", "c", "--save", "c.bson", "--log", "l", "--report", "r.html"]
        self.fine(*run, "-e", 1)
        self.assertIn("epoch 2, training step 12", self.fine(*run, "-e", 2).out)
        self.write_lines("other.txt", self.test[:20])
        more = self.fine("train", "-d", "other.txt", "--init", "c.bson", "-e", 1, "--save", "n.bson")
        self.assertIn("--init c.bson: 3 of 3 arrays copied", more.err)
        tokens = [int(re.search(r"of text, (\d+) tokens", err)[1]) for err in
                  (few.err, more.err, self.fine("train", "-d", "other.txt", "-e", 1).err, self.fit().err)]
        self.assertEqual(tokens[1], tokens[3])  # not those of its own file
        self.assertGreater(tokens[3], tokens[2])

    def test_refusals(self):
        self.fit("-q")
        good = "__label__a one\n__label__b two\n"
        for bad, words in ((good.encode() + b"__label__a x\xff\n", "bad.txt: line 3: byte 13 (0xFF) is not UTF-8"),
                           (good + "no label\n", "bad.txt: line 3 has no label"),
                           (good + "\n" + good, "bad.txt: line 3 is empty"),
                           (good + "__label__a \t\n", "bad.txt: line 3 has a label but no text"),
                           (good + "__label__ x\n", "bad.txt: line 3 has a label without a name"),
                           (good + "__label__a __label__b x\n", "bad.txt: line 3 has several labels"),
                           ("__label__a one\n", 'bad.txt: every target is "a"'),
                           ("", "bad.txt is empty")):
            self.write("bad.txt", bad)
            self.refused("train", "-d", "bad.txt", "--save", "o.bson", words=words)
            if "target" not in words:
                self.refused("eval", "m.bson", "-d", "bad.txt", words="bad.txt")
        self.write("bad.txt", "__label__tool saw\n__label__none x\n")
        self.refused("eval", "m.bson", "-d", "bad.txt", words='bad.txt: line 2: class "none" is not one of the')
        self.refused("train", "-d", "train.txt", "--validation", "bad.txt", words='bad.txt: line 2: class "none" is not one of the')
        self.write("bad.txt", b"saw\n\xc3(\n")
        self.refused("predict", "m.bson", "-d", "bad.txt", words="bad.txt: line 2: byte 1 (0xC3) is not UTF-8")
        self.write("bad.txt", b"saw\n\0\n")
        self.refused("predict", "m.bson", "-d", "bad.txt", words="bad.txt: line 2: byte 1 (0x00) is not UTF-8")
        self.refused("predict", "m.bson", "-O", "o.csv", stdin="saw\n \n", words="/dev/stdin: line 2 is empty")
        self.write("cut.gz", gzip.compress(self.read("train.txt"))[:-9])
        self.refused("predict", "m.bson", "-d", "cut.gz", words="cut.gz: the gzip stream is truncated")
        self.refused("predict", "m.bson", "-d", ".", words="is a folder")
        self.refused("predict", "m.bson", "-d", "none.txt", words="none.txt")
        for option, value in (("--shape", "3"), ("--id", "x"), ("--target", "x"), ("--separator", ";"), ("--skip", "1")):
            self.refused("train", "-d", "train.txt", option, value, words=[option + " does not work with train.txt, a text"])
        self.refused("train", "-d", "train.txt", "--vocabulary", 255, words="--vocabulary 255: a vocabulary has at least 256")
        self.refused("train", "-d", "train.txt", "--regression", words="label contains text")
        self.refused("train", "-d", "train.txt", "-m", "Dense(3 => 3)", words="a model of texts begins with EmbeddingBag")
        self.refused("train", "-d", "train.txt", "-m", "Chain(EmbeddingBag(256 => 4), Dense(4 => 3))",
                     words="fewer columns than there are tokens")


if __name__ == "__main__":
    cli.main(least=4)
