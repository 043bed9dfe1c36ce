#!/usr/bin/env python3
"""cflux inspect and cflux convert, against files that formats.py writes and reads and numbers that Python
computes. Usage: test_files.py PROGRAM"""
import csv
import glob
import gzip
import json
import math
import os
import random
import signal
import statistics
import subprocess
import time

import cli
import formats as f

WEIGHT, BIAS = [0.5 * i - 2 for i in range(6)], [0.25, -0.75, 1.5]  # 3×2, 3
SECOND, LAST = [1.0, -2.0, 3.0, 0.5, 0.125, 4.0], [7.0, -7.0]      # 2×3, 2
NOTATION = "Chain(Dense(2 => 3, relu), Dense(3 => 2))"
PATHS = ["model.layers.0.weight", "model.layers.0.bias", "model.layers.1.weight", "model.layers.1.bias"]
# The arrays in C order: reversed sizes, the same values.
ARRAYS = dict(zip(PATHS, [((2, 3), WEIGHT), ((3,), BIAS), ((3, 2), SECOND), ((2,), LAST)]))


def flux_file():
    return f.bson({"model": f.chain(f.dense(3, 2, WEIGHT, BIAS, "relu"), f.dense(2, 3, SECOND, LAST))})


def expected_stats(values):
    finite = [x for x in values if math.isfinite(x)]
    return {"min": min(finite), "max": max(finite), "mean": statistics.fmean(finite),
            "std": statistics.stdev(finite) if len(finite) > 1 else None,
            "nan": sum(map(math.isnan, values)), "inf": sum(map(math.isinf, values))}


class Inspect(cli.Cli):
    def inspect(self, path, *more):
        return self.fine("inspect", "--json", path, *more).json()

    def check_stats(self, row, values):
        for key, want in expected_stats(values).items():
            if want is None or row[key] is None:
                self.assertEqual(row[key], want, key)
            else:
                self.assertAlmostEqual(row[key], want, delta=1e-9 * max(1, abs(want)), msg=key)

    def test_a_model_of_flux(self):
        path = self.write("m.bson", flux_file())
        told = self.inspect(path, "--stats")
        self.assertEqual((told["format"], told["bytes"], told["refused"]), ("BSON", len(flux_file()), None))
        self.assertEqual(told["entries"], [{"name": "model", "kind": "layer", "notation": NOTATION,
                                            "parameters": 17}])
        self.assertEqual((told["parameters"], told["array_bytes"], told["warnings"]), (17, 68, []))
        self.assertEqual([row["path"] for row in told["arrays"]], PATHS)
        for row, (shape, values) in zip(told["arrays"], ARRAYS.values()):
            self.assertEqual((row["size"], row["type"]), (list(reversed(shape)), "Float32"))
            self.check_stats(row, values)
        text = self.fine("inspect", path, "--stats").out
        for part in [f"{path}: BSON, {len(flux_file())} bytes\n", "  Dense(2 => 3, relu),", "# 9 parameters",
                     "4 arrays, 17 parameters, 68 bytes of numbers\n"]:
            self.assertIn(part, text)
        self.assertRegex(text, r"(?m)^model.layers.1.bias +-7 +7 +0 +9.89949 +0 +0$")
        self.assertNotIn("model.layers.1.bias", self.fine("inspect", path).out)
        self.write("one.npy", f.npy((1,), [3.5])) # its deviation is undefined
        self.assertRegex(self.fine("inspect", "--stats", "one.npy").out, r"(?m)^array +3\.5 +3\.5 +3\.5 +- +0 +0$")

    def test_the_version_of_flux(self):
        model = f.chain(f.dense(3, 2, WEIGHT, BIAS), f.batchnorm(3, 1e-5))
        self.assertEqual(self.inspect(self.write("m.bson", f.bson({"m": model})))["origin"], "Flux 0.12 or later")

    def test_numbers_that_are_none(self):
        values = [1.0, math.nan, -3.5, math.inf, -math.inf, 2.0]
        path = self.write("x.npy", f.npy([2, 3], values, "d"))
        told = self.inspect(path, "--stats")
        self.assertEqual((told["format"], told["origin"]), ("npy", "NumPy's format 1.0"))
        self.assertEqual(told["arrays"][0]["size"], [3, 2])
        self.check_stats(told["arrays"][0], values)
        self.assertEqual(told["warnings"], ["array has 1 NaN and 2 infinite of 6 elements"])
        self.assertIn("warning: array has 1 NaN", self.fine("inspect", path).out)
        nothing = self.inspect(self.write("n.npy", f.npy([2], [math.nan, math.inf], "d")), "--stats")["arrays"][0]
        self.assertEqual([nothing[k] for k in ("min", "max", "mean", "std")], [None] * 4)

    def test_large_arrays_are_read_in_parts(self):
        values = [math.sin(i) + 1000 for i in range(200000)]
        row = self.inspect(self.write("x.npy", f.npy([len(values)], values, "d")), "--stats")["arrays"][0]
        self.check_stats(row, values)

    def test_archives_and_tensors(self):
        for name, data in [("x.npz", f.npz(ARRAYS)), ("x.safetensors", f.safetensors(ARRAYS, {"by": "me"}))]:
            told = self.inspect(self.write(name, data), "--stats")
            self.assertEqual([row["path"] for row in told["arrays"]], PATHS)
            self.assertEqual(told["parameters"], 17)
            for row, (_, values) in zip(told["arrays"], ARRAYS.values()):
                self.check_stats(row, values)
        self.assertEqual(told["entries"][-1], {"name": "__metadata__", "kind": "text", "texts": {"by": "me"}})

    def test_idx(self):
        pixels = [(7 * i) % 256 for i in range(24)]
        for name, compress in [("images", False), ("t10k-images-idx3-ubyte.gz", True)]:
            told = self.inspect(self.write(name, f.idx([2, 3, 4], pixels, compress)), "--stats")
            self.assertEqual((told["format"], told["parameters"]), ("IDX", 0))
            self.assertEqual(told["arrays"][0]["size"], [4, 3, 2])
            self.check_stats(told["arrays"][0], pixels)

    def test_tables(self):
        told = self.inspect(cli.DIGITS)
        with gzip.open(cli.DIGITS, "rt", encoding="utf-8") as rows:
            table = [list(map(float, row)) for row in csv.reader(rows)]
        self.assertEqual((told["format"], told["arrays"][0]["size"]), ("CSV", [len(table[0]), len(table)]))
        path = self.write("pets.csv", "weight,kind\n4.5,cat\n30,dog\n3.5,cat\n")
        told = self.inspect(path, "--stats")
        self.assertEqual(told["columns"], [{"name": "weight"}, {"name": "kind", "labels": {"cat": 2, "dog": 1}}])
        self.check_stats(told["arrays"][0], [4.5, 30, 3.5])
        self.assertIn("  kind: cat (2), dog (1)\n", self.fine("inspect", path).out)

    def test_structs_that_nobody_knows(self):
        encoder = f.julia_struct(["Main", "Encoder"], f.dense(3, 2, WEIGHT, BIAS), f.julia_array([2], [1, 2]))
        path = self.write("m.bson", f.bson({"net": encoder, "epochs": 20, "rate": f.julia_float32(0.1),
                                            "note": "tried", "done": True, "none": None}))
        told = self.inspect(path)
        kinds = {e["name"]: e["kind"] for e in told["entries"]}
        self.assertEqual(kinds, {"net": "struct", "epochs": "number", "rate": "number", "note": "text",
                                 "done": "number", "none": "nothing"})
        net = told["entries"][0]
        self.assertEqual((net["struct"], [c["kind"] for c in net["children"]]), ("Main.Encoder", ["layer", "array"]))
        self.assertEqual(len(told["warnings"]), 1)
        self.assertIn("net is a Main.Encoder", told["warnings"][0])
        text = self.fine("inspect", path).out
        for line in ["net: Main.Encoder(\n", "epochs: 20\n", "rate: 0.1\n", 'note: "tried"\n', "done: true\n",
                     "none: nothing\n", "  Dense(2 => 3)", "\nwarning: net is"]:
            self.assertIn(line, text)

    def test_a_file_cannot_write_to_the_terminal(self):
        evil = {"a\x1b[2J": ((1,), [math.nan]), "π": ((1,), [1.0])}
        path = self.write("e.safetensors", f.safetensors(evil, {"by": "\x1b]0;x\x07"}))
        ended = self.fine("inspect", path, "--stats")
        self.assertNotRegex(ended.out + ended.err, "[\x00-\x09\x0b-\x1f\x7f]")
        self.assertIn("a\\x1b[2J", ended.out)
        self.assertRegex(ended.out, r"(?m)^π {10} +1 ")
        self.assertEqual(self.inspect(path)["arrays"][0]["path"], "a\x1b[2J")
        bad = self.refused("inspect", "\x1b[31m", words="\\x1b[31m")
        self.assertNotIn("\x1b", bad.err)

    def test_what_is_refused_and_why(self):
        self.refused("inspect", "nothing.bson", words=["nothing.bson", "No such file"])
        self.refused("inspect", self.folder, words="is a folder")
        self.refused("inspect", "/dev/zero", words="not a regular file")
        for name in ["a.txt", "a(.text).txt"]:
            self.refused("inspect", self.write(name, "a list\n"), words=[name, "unknown format", ".safetensors, .npy, .npz, .csv"])
        self.refused("inspect", self.write("a.npy", f.npy([2], [1, 2])[:-1]), words=["npy", "offset"], out=True)
        self.refused("inspect", self.write("a.bson", flux_file()[:-1]), words=["BSON", "offset"], out=True)
        self.refused("inspect", self.write("k-idx1-ubyte.gz", f.idx([3], b"abc", True)[:-9]), words="k-idx1", out=True)
        self.refused("inspect", self.write("a.csv", "a,b\n1,2\n3,x\n"), words=["line 3", "column 2"], out=True)
        gpu = f.julia_struct(["CUDA", "CuArray"], 1, 2)
        path = self.write("g.bson", f.bson({"w": gpu}))
        ended = self.refused("inspect", "--json", path, words=["CuArray", "save cpu(model)"], out=True)
        self.assertEqual(ended.json()["format"], "BSON")
        self.assertIn(ended.json()["refused"], ended.err)

    def test_the_formula_of_layernorm(self):
        identity = f.julia_struct(["Main", "Base", "#identity"])
        ints = {"tag": "tuple", "data": [3]}
        norm = f.julia_struct(["Flux", "LayerNorm"], identity, identity, 1e-5, ints, False)
        dropout = f.julia_struct(["Flux", "Dropout"], 0.5, f.julia_struct(["Main", "Base", "Colon"]), None)
        old, new = self.write("old.bson", f.bson({"a": norm, "d": dropout})), self.write("new.bson", f.bson({"a": norm}))
        for path, more, words, notation in (
                (old, [], "σ + ε", "flux=0.14"), (new, [], "√(σ² + ε),", None),
                (new, ["--flux-version", "0.15"], "√(σ² + ε²)", "flux=0.15"),
                (old, ["--flux-version", "0.16.11"], "√(σ² + ε),", None)):
            told = self.inspect(path, *more)
            self.assertIn(words, " ".join(told["warnings"]))
            entry = told["entries"][0]["notation"]
            self.assertTrue(notation in entry if notation else "flux" not in entry, entry)
        self.refused("inspect", new, "--flux-version", "sixteen", words="sixteen")
        # settings that BSON cannot store are refused; safetensors files store them in the notation
        self.refused("convert", old, self.path("again.bson"), words="σ + ε")
        self.fine("convert", old, "--only", "a", self.path("a.safetensors"))
        self.assertIn("flux=0.14", json.dumps(self.inspect(self.path("a.safetensors"))["entries"]))

    def test_shared_references_are_shown_once(self):
        """30 pairs, each of which contains the next one twice: 2^30 paths to the last. The output grows with the objects."""
        pair = lambda k: {"tag": "tuple", "data": [{"tag": "backref", "ref": k}] * 2}
        path = self.write("shared.bson", f.bson({"a": {"tag": "backref", "ref": 1},
                                                 "_backrefs": [pair(k + 2) for k in range(30)] + [{"tag": "tuple", "data": []}]}))
        lines = self.fine("inspect", path).out.splitlines()
        self.assertLess(len(lines), 5000)
        self.assertIn("shown above", "".join(lines))
        told = self.inspect(path)
        self.assertEqual(told["entries"][0]["kind"], "tuple")
        self.assertLess(len(json.dumps(told)), 1000000)

    def test_shared_references_are_converted_once(self):
        """40 objects with 2^40 paths to an array: BSON stores them; files of arrays would need 2^40 names."""
        array = {"tag": "array", "type": {"tag": "datatype", "params": [], "name": ["Core", "Float32"]}, "size": [2],
                 "data": bytes(8)}
        pair = lambda k: {"tag": "tuple", "data": [{"tag": "backref", "ref": k}] * 2}
        for last, arrays in ((array, True), ({"tag": "tuple", "data": []}, False)):
            path = self.write("shared.bson", f.bson({"a": {"tag": "backref", "ref": 1},
                                                     "_backrefs": [pair(k + 2) for k in range(40)] + [last]}))
            begun = time.monotonic()
            self.fine("convert", path, self.path("again.bson"))
            self.assertEqual(self.inspect(self.path("again.bson"))["entries"][0]["kind"], "tuple")
            words = "more than 1000000 names of arrays" if arrays else "empty tuple"
            self.refused("convert", path, self.path("a.safetensors"), words=words)
            self.refused("convert", "--lossy", "--pytorch", path, self.path("b.safetensors"), words="model")
            self.assertLess(time.monotonic() - begun, 20)

    def test_files_of_other_programs(self):
        """inspect and convert print the message of fx_load."""
        zipped = b"PK\3\4" + bytes(22) + b"%c\0\0\0%s" + b"x" * 8
        others = {
            "m.bson": (b"7JL\x0e\4\0\0\0\1", "Julia's Serialization"),
            "m.jls": (b"7JL\x0e\4\0\0\0\1", "BSON.@save"),
            "m.jld2": (b"HDF5-based Julia Data Format, version 0.1.1\0", "JLD2"),
            "m.h5": (b"\x89HDF\r\n\x1a\n\0\0", "HDF5"),
            "json.bson": (b"\x1a\0\0\0\2class_name\0\5\0\0\0Sequ\0\0", "Keras"),
            "m.keras": (zipped % (13, b"metadata.json"), "Keras 3"),
            "m.pt": (zipped % (16, b"archive/data.pkl"), "torch.save"),
            "m.pth": (b"\x80\2\x8a\nl\xfc\x9c", "pickle"),
            "empty.bson": (b"", "the file is empty"),
            "empty.npz": (b"", "the file is empty"),
            "empty": (b"", "the file is empty"),
            "m.bson.gz": (b"\x1f\x8b\x08\0", "gzip"),
        }
        told = 0
        for name, (content, words) in others.items():
            path = self.write(name, content)
            self.refused("inspect", path, words=[name, words], out=True)
            self.refused("convert", path, self.path("out.safetensors"), words=[name, words])
            told += 1
        self.assertGreaterEqual(told, 12)

    def test_damaged_files_are_refused_or_read(self):
        """Bytes are changed, cut and repeated at random: there is never a crash, and never more than one line of error."""
        dice = random.Random(7)
        self.write("m.bson", flux_file())
        self.fine("convert", "m.bson", "m.safetensors")
        self.fine("convert", "m.bson", "m.ckpt")
        self.write("m.npz", f.npz(ARRAYS))
        self.write("pets.csv", "weight,kind\n4.5,cat\n30,dog\n" * 3)
        seen = set()
        for name in ["m.bson", "m.safetensors", "m.ckpt", "m.npz", "pets.csv"]:
            good = self.read(name)
            for _ in range(30):
                data = bytearray(good)
                for _ in range(dice.randint(1, 4)):
                    at = dice.randrange(len(data))
                    data[at:at + dice.choice([0, 1, 4])] = dice.choice([b"", b"\xff", b".", data[at // 2:at // 2 + 9]])
                ended = self.run_cli("inspect", self.write("bad" + name[1:], bytes(data)), "--json")
                self.assertIn(ended.status, (0, 2), (bytes(data), ended.err))
                self.assertEqual(ended.json()["refused"] is None, ended.status == 0)
                self.assertLessEqual(ended.err.count("\n"), 1, ended.err)
                seen.add((name, ended.status))
        self.assertGreaterEqual(len(seen), 6)

    def test_damaged_checkpoints(self):
        self.write("m.bson", flux_file())
        self.fine("convert", "m.bson", "m.ckpt")
        told = self.inspect("m.ckpt")
        self.assertEqual((told["format"], told["origin"]), ("checkpoint", "cflux, epoch 0, training step 0"))
        self.assertEqual(told["entries"][0]["notation"], NOTATION)
        data = bytearray(self.read("m.ckpt"))
        data[-20] ^= 1
        self.write("m.ckpt", bytes(data))
        self.refused("inspect", "m.ckpt", words=["checkpoint", "CRC-32"], out=True)

    def test_parameters_are_those_of_layers(self):
        """The scale of the inputs and the state of an optimiser do not count as parameters."""
        adam = f.julia_struct(["Optimisers", "Adam"], 0.001, f.julia_tuple(0.9, 0.999), 1e-8)
        leaf = f.julia_struct(["Optimisers", "Leaf"], adam, f.julia_tuple(
            f.julia_array([3], [1, 2, 3]), f.julia_array([3], [1, 2, 3]), f.julia_tuple(0.9, 0.999)), False)
        path = self.write("m.bson", f.bson({"model": f.dense(3, 2, WEIGHT, BIAS), "mean": f.julia_array([2], [1, 2]),
                                            "opt": {"bias": leaf}}))
        told = self.inspect(path)
        self.assertEqual(told["parameters"], 9)
        self.assertEqual(told["entries"][2]["children"][0]["struct"], "Optimisers.Leaf")
        self.assertEqual(told["warnings"], [])

    def test_models_that_others_saved(self):
        folder = cli.recorded("flux-bson")
        files = sorted(glob.glob(os.path.join(folder, "*.bson"))) if folder else []
        read = found = 0
        for path in files:
            with open(os.path.join(folder, "structure", os.path.basename(path)[:-5] + ".arrays.json"),
                      encoding="utf-8") as file:
                arrays = json.load(file)
            if "Deltadahl" in path:
                self.refused("inspect", path, words="saved from a GPU", out=True)
                continue
            told = self.inspect(path)
            read += 1
            sizes = [a["size"] for a in arrays if a.get("eltype") in ("Float32", "Float64")]
            for a in told["arrays"]:
                if a["type"] in ("Float32", "Float64") and a["size"]:
                    self.assertIn(a["size"], sizes, path)
                    sizes.remove(a["size"])
                    found += 1
        self.assertTrue((read >= 20 and found >= 100) or not folder, (read, found))


class Convert(cli.Cli):
    def setUp(self):
        super().setUp()
        self.write("m.bson", flux_file())

    def notation(self, path):
        told = self.fine("inspect", "--json", path).json()
        return {e["name"]: e.get("notation") for e in told["entries"]}

    def test_a_model_through_safetensors_and_back(self):
        ended = self.fine("convert", "m.bson", "m.safetensors")
        data = self.read("m.safetensors")
        self.assertEqual(ended.out, f"m.safetensors: safetensors, {len(data)} bytes: model\n")
        texts, arrays = f.read_safetensors(data)
        self.assertEqual(texts, {"notation.model": NOTATION})
        self.assertEqual(arrays, ARRAYS)
        self.fine("convert", "m.safetensors", "back.bson")
        self.assertEqual(self.notation("back.bson"), {"model": NOTATION})
        self.fine("convert", "back.bson", "again.safetensors")
        self.assertEqual(self.read("again.safetensors"), data)

    def test_json(self):
        told = self.fine("convert", "m.bson", "m.safetensors", "--json").json()
        self.assertEqual(told, {"in": "m.bson", "out": "m.safetensors", "format": "safetensors",
                                "bytes": len(self.read("m.safetensors")), "entries": ["model"], "lost": None})

    def test_entries_besides_the_model(self):
        self.write("rich.bson", f.bson({
            "model": f.dense(3, 2, WEIGHT, BIAS), "classes": f.julia_tuple("cat", "dög", ""), "target": "kind",
            "mean": f.julia_array([2], [0.5, 0.25], "d"), "epoch": 7,
            "parts": f.julia_tuple(f.julia_array([1], [3]), f.julia_tuple(f.julia_array([2], [4, 5])))}))
        self.fine("convert", "rich.bson", "rich.safetensors")
        texts, arrays = f.read_safetensors(self.read("rich.safetensors"))
        self.assertEqual(texts, {"notation.model": "Dense(2 => 3)", "text.classes.0": "cat", "text.classes.1": "dög",
                                 "text.classes.2": "", "text.target": "kind", "tuple.parts": ""})
        self.assertEqual(arrays["mean"], ((2,), [0.5, 0.25]))
        self.assertEqual(arrays["epoch"], ((), [7]))
        self.assertEqual((arrays["parts.0"], arrays["parts.1.0"]), (((1,), [3.0]), ((2,), [4.0, 5.0])))
        self.fine("convert", "rich.safetensors", "back.bson")
        first, second = ({e["name"]: e for e in self.fine("inspect", "--json", p).json()["entries"]}
                         for p in ("rich.bson", "back.bson"))
        self.assertEqual(first, second)

    def test_numbered_texts_and_arrays_in_any_order(self):
        """A writer may sort the keys of a header: 0, 1, 10, 11, 2, …"""
        names = [f"class {k}" for k in range(12)]
        order = sorted(range(12), key=str)
        self.assertNotEqual(order, list(range(12)))
        texts = {f"text.classes.{k}": names[k] for k in order}
        arrays = {f"parts.{k}": ((1,), [float(k)]) for k in order}
        self.write("s.safetensors", f.safetensors(arrays, dict(texts, **{"tuple.parts": ""})))
        entries = {e["name"]: e["children"] for e in self.fine("inspect", "--json", "s.safetensors").json()["entries"]}
        self.assertEqual([(c["name"], c["text"]) for c in entries["classes"]], [("", name) for name in names])
        self.fine("convert", "s.safetensors", "n.npz", "--only", "parts", "--arrays")
        self.assertEqual(f.read_npz(self.read("n.npz")), {f"parts.{k}": ((1,), [float(k)]) for k in range(12)})
        # If a number is missing, the numbers are names.
        del texts["text.classes.3"]
        self.write("s.safetensors", f.safetensors(arrays, texts))
        entries = self.fine("inspect", "--json", "s.safetensors").json()["entries"]
        children = [e for e in entries if e["name"] == "classes"][0]["children"]
        self.assertEqual({c["name"]: c["text"] for c in children}, {str(k): names[k] for k in order if k != 3})

    def test_arrays_alone(self):
        self.refused("convert", "m.bson", "m.npy", words=["m.npy cannot hold \"model\"", "--lossy"])
        self.assertIn('"model": its structure', self.fine("convert", "m.bson", "m.npz", "--arrays").err)
        self.assertEqual(f.read_npz(self.read("m.npz")), ARRAYS)
        self.fine("convert", "m.npz", "plain.safetensors")
        self.assertEqual(f.read_safetensors(self.read("plain.safetensors")), ({}, ARRAYS))
        self.fine("convert", "m.npz", "one.npy", "--only", "model.layers.0.bias")
        self.assertEqual(f.read_npy(self.read("one.npy")), ((3,), BIAS))

    def test_arrays_into_a_model(self):
        self.write("a.npz", f.npz(ARRAYS))
        self.write("bare.safetensors", f.safetensors({k[6:]: v for k, v in ARRAYS.items()}))
        self.write("list.bson", f.bson({"weights": [f.julia_array([3, 2], WEIGHT), f.julia_array([3], BIAS),
                                                    f.julia_array([2, 3], SECOND), f.julia_array([2], LAST)]}))
        for name in ["a.npz", "bare.safetensors", "list.bson"]:
            self.fine("convert", name, "out.safetensors", "--model", NOTATION)
            self.assertEqual(f.read_safetensors(self.read("out.safetensors")), ({"notation.model": NOTATION}, ARRAYS))
        wrong = NOTATION.replace("3 => 2", "3 => 4")
        self.refused("convert", "a.npz", "o.bson", "--model", wrong, words=["model.layers.1.weight", "2×3"])
        self.refused("convert", "a.npz", "o.bson", "--model", "Chain(Dens(2 => 3))", words=["column 7", "Dens"])

    def test_doubles_stay_doubles(self):
        weight = [0.1, 0.2]
        self.write("d.bson", f.bson({"model": f.julia_struct(
            ["Flux", "Dense"], f.julia_array([1, 2], weight, "d"), False, f.julia_function("identity", "Base"))}))
        self.fine("convert", "d.bson", "d.safetensors")
        self.fine("convert", "d.safetensors", "e.bson")
        self.fine("convert", "e.bson", "e.npz", "--arrays")
        self.assertEqual(f.read_npz(self.read("e.npz")), {"model.weight": ((2, 1), weight)})

    def test_pytorch(self):
        """PyTorch's weight is out×in in C order, so it has the rows of ours."""
        self.fine("convert", "m.bson", "torch.safetensors", "--pytorch")
        texts, arrays = f.read_safetensors(self.read("torch.safetensors"))
        rows = [WEIGHT[3 * k + i] for i in range(3) for k in range(2)]
        self.assertEqual(arrays["0.weight"], ((3, 2), rows))
        self.assertEqual(arrays["1.bias"], ((2,), LAST))
        self.assertEqual((texts, len(arrays)), ({"pytorch.model": NOTATION}, 4))
        self.fine("convert", "torch.safetensors", "back.npz", "--model", NOTATION, "--arrays")
        self.assertEqual(f.read_npz(self.read("back.npz")), ARRAYS)

    def test_checkpoints(self):
        self.fine("convert", "m.bson", "run.safetensors", "--checkpoint")
        self.refused("convert", "run.safetensors", "o.bson", words=["is a checkpoint", "--only model"])
        self.fine("convert", "run.safetensors", "o.bson", "--only", "model")
        self.assertEqual(self.notation("o.bson"), {"model": NOTATION})
        self.write("two.bson", f.bson({"model": f.dense(3, 2, WEIGHT, BIAS), "epoch": 3}))
        self.refused("convert", "two.bson", "two.ckpt", words=['cannot hold "epoch"', "--lossy"])
        self.fine("convert", "two.bson", "two.ckpt", "--only", "model")
        self.assertEqual(sorted(self.contents()), ["m.bson", "o.bson", "run.safetensors", "two.bson", "two.ckpt"])

    def test_what_a_format_cannot_say(self):
        def refuse(model, words):
            self.write("x.bson", f.bson({"model": model}))
            self.refused("convert", "x.bson", "x.safetensors", words=['"model"', *words])
        refuse(f.batchnorm(3, 0.5), ["cannot express epsilon of BatchNorm"])
        refuse(f.chain(f.julia_struct(["Main", "Encoder"], f.julia_array([1], [1]))), ["Main.Encoder"])
        refuse(f.julia_struct(["Main", "Encoder"], f.julia_array([1], [1])), ["Main.Encoder", "not a layer of"])
        refuse(f.julia_tuple(f.julia_array([1], [1]), "text"), ["texts are mixed with arrays"])
        refuse(f.julia_tuple(f.julia_array([1], [1]), None), ["nothing"])
        refuse(f.julia_tuple(), ["empty tuple"])
        self.write("b.bson", f.bson({"model": f.batchnorm(3, 1e-5)}))
        self.fine("convert", "b.bson", "b.safetensors")

    def test_shared_arrays(self):
        tie = {"tag": "backref", "ref": 1}
        layer = f.julia_struct(["Flux", "Dense"], tie, False, f.julia_function("relu"))
        self.write("tied.bson", f.bson({"model": f.chain(layer, layer),
                                        "_backrefs": [f.julia_array([2, 2], [1, 2, 3, 4])]}))
        self.refused("convert", "tied.bson", "t.safetensors", words="which of its arrays are shared")
        self.fine("convert", "tied.bson", "t.npz", "--arrays")
        self.assertEqual(len(f.read_npz(self.read("t.npz"))), 2)
        self.fine("convert", "tied.bson", "t.bson")
        self.assertEqual(len(self.fine("inspect", "--json", "t.bson").json()["arrays"]), 1)

    def test_tables_and_images(self):
        self.fine("convert", cli.DIGITS, "digits.npy")
        shape, values = f.read_npy(self.read("digits.npy"))
        with gzip.open(cli.DIGITS, "rt", encoding="utf-8") as rows:
            self.assertEqual(values, [float(x) for row in csv.reader(rows) for x in row])
        self.assertEqual(shape, (1797, 65))
        self.write("t.csv", "a,b\n1,2\n")
        self.refused("convert", "t.csv", "t.npy", words=["names and labels of its columns", "--lossy"])
        self.fine("convert", "t.csv", "t.npy", "--arrays")
        self.assertEqual(f.read_npy(self.read("t.npy")), ((1, 2), [1.0, 2.0]))

    def test_notation_that_does_not_fit(self):
        wrong = {"notation.model": NOTATION.replace("3 => 2", "3 => 4")}
        self.write("w.safetensors", f.safetensors(ARRAYS, wrong))
        self.refused("convert", "w.safetensors", "w.bson", words=["model.layers.1.weight", "--lossy"])
        told = self.fine("inspect", "--json", "w.safetensors").json()
        self.assertIn("its model cannot be created", told["warnings"][0])
        self.assertEqual([a["path"] for a in told["arrays"]], PATHS)
        extra = dict(ARRAYS, **{"model.layers.2.weight": ((1,), [1.0])})
        self.write("x.safetensors", f.safetensors(extra, {"notation.model": NOTATION}))
        self.refused("convert", "x.safetensors", "x.bson", words=['no array "model.layers.2.weight"'])
        # all arrays of the model have the first 511 bytes of their names in common
        name = "a" * 600
        layers = ", ".join(["Scale(1)"] * 200)
        notation = {"notation.model": f"Chain({name} = Chain({layers}))"}
        self.write("long.safetensors", f.safetensors({("model.layers." + name)[:511]: ((1,), [1.0])}, notation))
        self.refused("convert", "long.safetensors", "x.bson", words="its model cannot be created")
        one = {f"model.layers.{name}.weight": ((3, 2), [1.0] * 6), f"model.layers.{name}.bias": ((2,), [0.0] * 2)}
        self.write("honest.safetensors", f.safetensors(one, {"notation.model": f"Chain({name} = Dense(3 => 2))"}))
        self.fine("convert", "honest.safetensors", "honest.bson")
        deep = {"t." + ".".join("a" * 5000): ((1,), [1.0])}
        self.write("deep.safetensors", f.safetensors(deep, {"tuple.t": ""}))
        self.assertIn(self.run_cli("inspect", "deep.safetensors").status, (0, 2))

    def test_names_that_are_not_there(self):
        self.refused("convert", "m.bson", "x.npz", "--only", "modle", words='did you mean "model"?')
        self.refused("convert", "m.bson", "x.mat", words=["x.mat", ".safetensors"])
        self.refused("convert", "m.bson", "nowhere/x.bson", words="there is no folder nowhere")
        os.mkdir(self.path("sub.bson"))
        self.refused("convert", "m.bson", "sub.bson", words="is a folder")
        self.refused("convert", "n.bson", "x.npz", words=["n.bson", "No such file"])
        self.refused("convert", "m.bson", "x.bson", "--arrays", words="--arrays works only with")
        self.refused("convert", "m.bson", "x.npy", "--pytorch", words="npy")

    def test_in_place(self):
        self.fine("convert", "m.bson", "m.bson")
        self.assertEqual(self.notation("m.bson"), {"model": NOTATION})

    def test_a_full_disk_leaves_the_old_file(self):
        self.write("large.npy", f.npy([4096], [1.0] * 4096))
        self.write("out.npz", "the old one")
        before = self.contents()
        p = subprocess.run(["bash", "-c", 'trap "" XFSZ; ulimit -f 4; exec "$@"', "bash", cli.program, "convert",
                            "large.npy", "out.npz"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((p.returncode, p.stdout), (1, ""))
        self.assertIn("out.npz", p.stderr)
        self.assertEqual(self.contents(), before)

    def test_ctrl_c_leaves_no_half_file(self):
        """The signal comes while the new file is being written; if the file is finished before, it is tried again."""
        size = 1 << 26
        head = f.npy([size // 4], [])
        with open(self.path("large.npy"), "wb") as file:
            file.write(head)
            file.truncate(len(head) + size)
        end, status = time.monotonic() + cli.SECONDS, 0
        while status != 130 and time.monotonic() < end:
            p = subprocess.Popen([cli.program, "convert", "large.npy", "out.npz"], cwd=self.folder,
                                 stdout=subprocess.DEVNULL)
            while p.poll() is None and set(os.listdir(self.folder)) <= {"m.bson", "large.npy", "out.npz"}:
                time.sleep(0.0005)
            p.send_signal(signal.SIGINT)
            status = p.wait(cli.SECONDS)
            self.assertLessEqual(set(os.listdir(self.folder)), {"m.bson", "large.npy", "out.npz"})
        self.assertEqual(status, 130)
        self.assertEqual(self.fine("inspect", "--json", "out.npz").json()["array_bytes"], size)


if __name__ == "__main__":
    cli.main(30)
