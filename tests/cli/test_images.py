#!/usr/bin/env python3
"""Folders of images: reading PNG and JPEG files, against Pillow's results (images.json, of make_images.py), and
training, evaluation and prediction with them. image_cases.c prints what the command line reads; its path is in
IMAGE_CASES. Usage: test_images.py PROGRAM"""
import base64
import json
import os
import random
import shutil
import struct
import subprocess
import zlib

import cli

HERE = os.path.dirname(os.path.abspath(__file__))


def png(width, height, pixels, channels=3, bits=8):
    """A PNG file; `pixels` has its numbers, row by row."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    code = "B" if bits == 8 else "H"
    rows = b"".join(b"\0" + struct.pack(f">{width * channels}{code}", *pixels[y * width * channels:(y + 1) * width * channels])
                    for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 2 if channels == 3 else 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Images(cli.Cli):
    def read_in_c(self, name, *size):
        p = subprocess.run([os.environ["IMAGE_CASES"], self.path(name), *map(str, size)], text=True, capture_output=True,
                           timeout=cli.SECONDS)
        return p.returncode, p.stdout.splitlines(), p.stderr

    def needs(self, library, start):
        """Skips the test if the program was built without the library of files that begin with these bytes."""
        self.write("start", start)
        if self.read_in_c("start")[2] == f"this cflux was built without {library} (Debian's package {library}-dev)\n":
            print(f"skipped: cflux was built without {library}", flush=True)
            self.skipTest(library)

    def needs_png(self):
        self.needs("libpng", b"\x89PNG")

    def needs_jpeg(self):
        self.needs("libjpeg", b"\xff\xd8\xff")


class Files(Images):
    def setUp(self):
        super().setUp()
        with open(os.path.join(HERE, "images.json"), encoding="utf-8") as f:
            self.files = json.load(f)
        self.png = [f for f in self.files if f["name"].endswith(".png")]
        self.jpeg = [f for f in self.files if f not in self.png]

    def check_pixels(self, files, jpeg):
        """Those of Pillow: equal, or different by 1 where a mean is rounded, and by 3 for JPEG."""
        checked = 0
        for file in files:
            self.write(file["name"], base64.b64decode(file["bytes"]))
            for case in file["cases"]:
                status, lines, err = self.read_in_c(file["name"], *case["size"])
                self.assertEqual((status, err), (0, ""))
                self.assertEqual(lines[0], "{} {} {}".format(*file["size"]))
                ours, theirs = bytes.fromhex(lines[1]), bytes.fromhex(case["pixels"])
                self.assertEqual(len(ours), len(theirs))
                worst = max(abs(a - b) for a, b in zip(ours, theirs))
                self.assertLessEqual(worst, 3 if jpeg else 1, (file["name"], case["size"]))
                if not jpeg and case["size"][:2] == file["size"][:2]:
                    self.assertEqual(ours, theirs, (file["name"], case["size"]))
                checked += 1
        self.assertGreaterEqual(checked, 24 if jpeg else 48)

    def test_png(self):
        self.needs_png()
        self.check_pixels(self.png, False)

    def test_jpeg(self):
        self.needs_jpeg()
        self.check_pixels(self.jpeg, True)

    def test_16_bits(self):
        """A 16-bit number is divided by 257, so that both formats of an image have the same pixels."""
        self.needs_png()
        for channels in (1, 3):
            levels = bytes(range(0, 255, 7))[:36]
            self.write("wide.png", png(36 // channels, 1, [257 * v for v in levels], channels, bits=16))
            status, lines, err = self.read_in_c("wide.png", 36 // channels, 1, channels)
            self.assertEqual((status, err, lines[0]), (0, "", f"{36 // channels} 1 {channels}"))
            self.assertEqual(bytes.fromhex(lines[1]), levels)

    def check_damaged(self, files, least):
        """Files that are cut in their first half are refused; those with changed bytes are read or refused with a reason."""
        draw = random.Random(5)
        refused = 0
        for file in files:
            data = base64.b64decode(file["bytes"])
            for k in range(12):
                damaged = bytearray(data)
                if k < 6:
                    damaged = damaged[:draw.randrange(len(data) // 2)]
                else:
                    for _ in range(3):
                        damaged[draw.randrange(len(data))] = draw.randrange(256)
                self.write("damaged", bytes(damaged))
                status, _, err = self.read_in_c("damaged", *file["size"])
                self.assertIn(status, (0, 2))
                self.assertEqual(bool(err), status == 2)
                self.assertTrue(status == 2 or k >= 6, (file["name"], k))
                refused += status == 2
        self.assertGreaterEqual(refused, least)

    def test_damaged_png(self):
        self.needs_png()
        self.check_damaged(self.png, 40)

    def test_damaged_jpeg(self):
        self.needs_jpeg()
        self.check_damaged(self.jpeg, 20)


class Folders(Images):
    def setUp(self):
        super().setUp()
        self.needs_png()

    def image(self, name, level, width=6, height=5, channels=3):
        draw = random.Random(name)
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        pixels = [min(255, max(0, int(draw.gauss(level, 20)))) for _ in range(width * height * channels)]
        self.write(name, png(width, height, pixels, channels))

    def classes(self, folder, n):
        for k in range(n):
            self.image(f"{folder}/bright/{k}.png", 200)
            self.image(f"{folder}/dark/{k}.png", 50)

    MODEL = "Chain(Flux.flatten, Dense(90 => 2))"

    def test_classes(self):
        """Train and test parts; the classes are the folders; predictions name the files."""
        self.classes("data/train", 12)
        self.classes("data/test", 4)
        train = self.fine("train", "-d", "data", "-m", self.MODEL, "-e", 30, "--save", "m.bson")
        self.assertIn("24 observations of 6×5×3; 2 classes, from bright to dark", train.err)
        self.assertIn("100.00 % (8 of 8)", self.fine("eval", "m.bson", "-d", "data").out)
        self.image("data/test/grey/7.png", 120)
        for command in (["eval", "m.bson"], ["train", "-v", "data", "-m", self.MODEL, "-S", "x.bson"]):
            self.refused(*command, "-d", "data", words='data/test/grey/7.png: class "grey" is not one of the 2 known, from "bright" to "dark"')
        # Joined folders: names in alphabetical order are not in the order of the classes.
        self.image("more/bright-1/0.png", 200)
        self.image("more/bright/0.png", 200)
        self.refused("eval", "m.bson", "-d", "data/test", "more", words='data/test/grey/7.png: class "grey" is not one of')
        os.remove(self.path("data/test/grey/7.png"))
        self.image("data/test/bright-1/0.png", 200)
        os.rmdir(self.path("data/test/grey"))
        self.refused("eval", "m.bson", "-d", "more", "data/test", words='more/bright-1/0.png: class "bright-1" is not one of')
        shutil.rmtree(self.path("more/bright-1"))
        self.refused("eval", "m.bson", "-d", "more", "data/test", words='data/test/bright-1/0.png: class "bright-1" is not one of')
        shutil.rmtree(self.path("data/test/bright-1"))
        os.rename(self.path("data/test"), self.path("test"))
        self.refused("eval", "m.bson", "-d", "data", words="data has a folder train, but no folder test")
        os.rename(self.path("test"), self.path("data/test"))
        self.assertIn("100.00 % (24 of 24)", self.fine("eval", "m.bson", "-d", "data", "--part", "train").out)
        self.refused("eval", "m.bson", "-d", "data/test", "--part", "train", words="--part: data/test has no folders train and test")
        self.fine("train", "-d", "data", "--validation", "data", "-m", self.MODEL, "-e", 1)
        lines = self.fine("predict", "m.bson", "-d", "data/test").out.splitlines()
        self.assertEqual(lines[0], "file,prediction")
        self.assertEqual(lines[1:], [f"data/test/{c}/{k}.png,{c}" for c in ("bright", "dark") for k in range(4)])
        one = self.fine("predict", "m.bson", "-d", "data/test/dark/2.png").out
        self.assertEqual(one, "file,prediction\ndata/test/dark/2.png,dark\n")
        of_class = self.fine("predict", "m.bson", "-d", "data/test/dark/").out.splitlines()
        self.assertEqual(of_class[1:], [f"data/test/dark/{k}.png,dark" for k in range(4)])

    def test_grey_among_colours(self):
        """One image with colours gives all of them three channels; --shape can ask for one."""
        self.image("d/a/0.png", 200, channels=1)
        self.image("d/b/0.png", 50)
        self.assertIn("of 6×5×3", self.fine("train", "-d", "d", "-m", self.MODEL, "-e", 1).err)
        self.assertIn("of 3×2×1", self.fine("train", "-d", "d", "-m", "Chain(Flux.flatten, Dense(6 => 2))", "-e", 1,
                                            "--shape", "3x2x1").err)
        self.assertIn("of 4×4×3", self.fine("train", "-d", "d", "-m", "Chain(Flux.flatten, Dense(48 => 2))", "-e", 1,
                                            "--shape", "4x4").err)

    def test_refusals(self):
        self.classes("d", 2)
        self.fine("train", "-q", "-d", "d", "-m", self.MODEL, "-e", 1, "--save", "m.bson")
        train = ["train", "-d", "d", "-m", self.MODEL]
        self.refused(*train, "--shape", "4x4x2", words="1 or 3 channels")
        # The number of bytes of the last two is a small number modulo 2^64.
        for shape in ("268435457x1", "16384x16385x3", "1x6148914691236517206x3", "4294967296x4294967297"):
            self.refused(*train, "--shape", shape, words=[f"--shape {shape}", "at most 2^28 pixels"])
        self.refused(*train, "--id", "x", words="--id")
        self.image("d/dark/9.png", 50, width=7)
        self.refused(*train, words=["d/dark/9.png is 7×5, but d/bright/0.png is 6×5", "--shape"])
        self.refused("predict", "m.bson", "-d", "d/dark/9.png", words=["7×5×3", "--shape 6x5x3"])
        self.fine("predict", "m.bson", "-d", "d/dark/9.png", "--shape", "6x5x3")
        # A model that was trained with --shape resizes images by itself.
        self.fine(*train, "--shape", "6x5x3", "-q", "-e", 1, "--save", "resized.bson")
        self.assertEqual(self.fine("predict", "resized.bson", "-d", "d/dark/9.png", "-P").out,
                         self.fine("predict", "resized.bson", "-d", "d/dark/9.png", "-P", "--shape", "6x5x3").out)
        self.fine("eval", "resized.bson", "-d", "d")
        for other in (b"GIF89a", b"G"):
            self.write("d/dark/9.png", other)
            self.refused(*train, words=["d/dark/9.png", "neither a PNG nor a JPEG file"])
        self.write("d/dark/9.png", b"")
        self.refused(*train, words=["d/dark/9.png", "it is empty"])
        os.remove(self.path("d/dark/9.png"))
        os.makedirs(self.path("d/none"))
        self.refused(*train, words=["d/none", "contains no PNG or JPEG images"])
        self.refused("train", "-d", "d/none", "-m", self.MODEL, words="a folder without images")
        for data, image in (("d/dark", "d/dark/0.png"), ("d/dark/1.png", "d/dark/1.png")):
            self.refused("train", "-d", data, "-m", self.MODEL, words=[f"{image}: this image has no class", "folder"])
        self.image("mixed/dark/0.png", 50)
        self.image("mixed/cover.png", 50)
        self.refused("train", "-d", "mixed", "-m", self.MODEL, words="mixed/cover.png: this image has no class")
        self.refused("predict", "m.bson", "-d", "d/dark/0.png", "--id", "x", words="--id: d/dark/0.png is an image")

    def test_class_train(self):
        """A folder train with images is a class, unless a test folder is beside it."""
        for k in range(3):
            self.image(f"d/car/{k}.png", 50)
            self.image(f"d/train/{k}.png", 200)
        fit = self.fine("train", "-d", "d", "-m", self.MODEL, "-e", 30, "--save", "m.bson")
        self.assertIn("2 classes, from car to train", fit.err)
        self.assertIn("100.00 % (6 of 6)", self.fine("eval", "m.bson", "-d", "d").out)
        self.image("d/test/0.png", 200)
        self.assertEqual(self.fine("predict", "m.bson", "-d", "d").out, "file,prediction\nd/test/0.png,train\n")


if __name__ == "__main__":
    cli.main(least=9)
