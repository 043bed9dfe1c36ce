#!/usr/bin/env python3
"""cflux convert loses nothing silently: trained models through every pair of formats and back, with their
predictions to the last digit, and the printed contents of files. Usage: test_convert.py PROGRAM. ctest: once"""
import itertools
import json
import math

import cli
import formats as f

# The formats that can store everything of a file of `cflux train`: extension and options.
FORMS = {"bson": (".bson", ()), "safetensors": (".safetensors", ()), "npz": (".npz", ()),
         "pytorch": (".safetensors", ("--pytorch",)), "pytorch-npz": (".npz", ("--pytorch",))}
ENTRIES = {"model", "about", "shape", "columns", "classes", "mean", "std"}


class Models(cli.Cli):
    """Three trained models: classes of a table, numbers of a table, classes of images."""

    def setUp(self):
        super().setUp()
        kinds = ("cat", "dög", "a bird, or two")
        rows = [f'{i * 0.37 % 5:.3f},{100 + i * 7 % 31},"{kinds[i % 3]}"' for i in range(60)]
        self.write("animals.csv", "weight,height,kind\n" + "\n".join(rows) + "\n")
        rows = [f"{i % 7},{1e3 + i % 5},{i % 7 * 0.5 - i % 5}" for i in range(40)]
        self.write("line.csv", "a,b,price\n" + "\n".join(rows) + "\n")
        pixels = [float(i * i % 23) for i in range(30 * 36)]
        self.write("images.npz", f.npz({"x": ((30, 1, 6, 6), pixels), "y": ((30,), [i % 4 for i in range(30)])}))

    def train(self, data, notation, *more):
        self.fine("train", "-q", "-d", data, "-m", notation, "-e", "2", "-s", "3", "-S", "m.bson", *more)
        return notation

    MODELS = (("animals.csv", "Chain(Dense(2 => 8, tanh), BatchNorm(8), Dense(8 => 3))", ()),
              ("line.csv", "Chain(Dense(2 => 4, relu), LayerNorm(4), Dense(4 => 1))", ()),
              ("images.npz", "Chain(Conv((3, 3), 1 => 3, relu), BatchNorm(3), MaxPool((2, 2)), Flux.flatten, "
                             "Dense(12 => 4))", ("--classes",)))

    def told(self, path):
        return self.fine("inspect", "--json", "--stats", path).json()

    def results(self, path, data):
        """All results that depend on the model and on the description of the data in its file."""
        more = ("-P",) if data != "line.csv" else ()
        measured = self.fine("eval", path, "-d", data, "--json").json()
        return (self.fine("predict", path, "-d", data, *more).out,
                {k: measured[k] for k in measured if k not in ("seconds", "model", "observations_per_second")})

    def convert(self, source, name, form, *more):
        """Converts and returns the path of the new file. Checks that the printed contents are those that inspect prints."""
        extension, options = FORMS[form]
        path = name + extension
        ended = self.fine("convert", source, path, *options, *more)
        head, _, names = ended.out.strip().partition(" bytes: ")
        told = self.told(path)
        self.assertEqual((names.split(", "), ended.err), ([e["name"] for e in told["entries"]], ""))
        self.assertEqual(head, f"{path}: {told['format']}, {told['bytes']}")
        return path


class RoundTrips(Models):
    def same(self, first, second):
        def entries(told):
            return sorted((json.dumps(e) for e in told["entries"]))

        def arrays(told):
            return sorted(json.dumps(a) for a in told["arrays"])
        first, second = self.told(first), self.told(second)
        self.assertEqual(entries(first), entries(second))
        self.assertEqual(arrays(first), arrays(second))

    def through(self, data, notation, given):
        self.assertLessEqual({e["name"] for e in self.told("m.bson")["entries"]}, ENTRIES)
        wanted, pairs = self.results("m.bson", data), 0
        more = ("--model", notation) if given else ()
        for a, b in itertools.product(FORMS, repeat=2):
            with self.subTest(data=data, a=a, b=b, given=given):
                first = self.convert("m.bson", "first", a)
                second = self.convert(first, "second", b, *more)
                back = self.convert(second, "back", "bson", *more)
                for path in (first, second, back):
                    self.assertEqual(self.results(path, data), wanted, path)
                self.same("m.bson", back)
                pairs += 1
        return pairs

    def every_pair(self, i):
        data, notation, more = self.MODELS[i]
        self.train(data, notation, *more)
        self.assertEqual(self.through(data, notation, False) + self.through(data, notation, True), 50)

    def test_classes_of_a_table(self):
        self.every_pair(0)
        names = {e["name"] for e in self.told("m.bson")["entries"]}
        self.assertEqual(names, ENTRIES)

    def test_numbers_of_a_table(self):
        self.every_pair(1)

    def test_images(self):
        self.every_pair(2)

    def test_other_types_and_odd_numbers(self):
        """In a file with PyTorch's names other arrays are stored as texts, without losing a bit."""
        real = [0.1, -0.0, 1 / 3, 1e-45, 3.4028234663852886e38, 5e-324]
        arrays = {"d": ((3, 2), real, "d"), "f": ((6,), [f.float32(x) for x in real[:5]] + [-1.5], "f"),
                  "q": ((2,), [2 ** 63 - 1, -2 ** 63], "q"), "u": ((1, 3, 1), [0, 7, 255], "B"),
                  "none": ((0, 4), [], "f"), "one": ((), [2.5], "f")}
        more = {k: f.julia_array(list(reversed(shape)), values, code) for k, (shape, values, code) in arrays.items()}
        more["parts"] = f.julia_tuple(f.julia_array([1], [3.0]), f.julia_tuple(f.julia_array([2], [4.0, 5.0])))
        self.write("m.bson", f.bson({"model": f.dense(1, 2, [1.0, 2.0], [0.5]), **more}))
        for form in FORMS:
            path = self.convert("m.bson", "there", form)
            back = self.convert(path, "back", "bson")
            self.same("m.bson", back)
            self.fine("convert", back, "all.npz", "--arrays")
            found = f.read_npz(self.read("all.npz"))
            for name, (shape, values, code) in arrays.items():
                self.assertEqual(found[name][0], shape, (form, name))
                self.assertEqual(f.packed(code, found[name][1]), f.packed(code, values), (form, name))

    def test_doubles_with_pytorchs_names(self):
        weight = [0.1, 0.2]
        dense = f.julia_struct(["Flux", "Dense"], f.julia_array([1, 2], weight, "d"), False,
                               f.julia_function("identity", "Base"))
        self.write("d.bson", f.bson({"model": dense}))
        self.convert("d.bson", "t", "pytorch")
        self.assertEqual(f.read_safetensors(self.read("t.safetensors"))[1], {"weight": ((1, 2), weight)})
        for more in ((), ("-m", "Dense(2 => 1; bias=false)")):
            self.fine("convert", "t.safetensors", "back.npz", "--arrays", *more)
            self.assertEqual(f.read_npz(self.read("back.npz")), {"model.weight": ((2, 1), weight)})


class OtherReaders(Models):
    def test_names_in_the_files(self):
        """PyTorch requires a file with exactly the arrays of its model; NumPy reads the texts."""
        data, notation, more = self.MODELS[0]
        self.train(data, notation, *more)
        self.convert("m.bson", "t", "pytorch")
        texts, arrays = f.read_safetensors(self.read("t.safetensors"))
        wanted = {"0.weight", "0.bias", "2.weight", "2.bias"} | {
            "1." + x for x in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")}
        self.assertEqual(set(arrays), wanted)
        self.assertEqual(texts["pytorch.model"], notation)
        self.assertEqual([texts[f"text.classes.{i}"] for i in range(3)], ["a bird, or two", "cat", "dög"])
        self.convert("m.bson", "n", "npz")
        arrays = f.read_npz(self.read("n.npz"))
        shape, values = arrays.pop("__metadata__")
        self.assertEqual(json.loads(bytes(values).decode()), {k: v for k, v in texts.items() if not k.startswith(
            ("pytorch.", "array."))} | {"notation.model": notation})
        self.assertEqual(shape, (len(values),))
        mean, text = arrays["mean"], texts["array.mean"]
        self.assertEqual(mean[0], (2,))
        self.assertEqual(text.split(":")[0], "Float64 2")
        self.assertEqual([float(x) for x in text.split(":")[1].split()], mean[1])

    def test_members_that_are_called_as_the_texts(self):
        """A member with the name of the texts that is not a JSON object is an ordinary array."""
        data = [ord(c) for c in "[1, 2]"]
        plain = f.npz({"x": ((1,), [1.0])})
        self.write("a.npz", plain)
        out = f.zip_of({"x.npy": f.npy((1,), [1.0]), "__metadata__.npy": f.npy((len(data),), data, "B")})
        self.write("b.npz", out)
        self.assertEqual([e["name"] for e in self.told("b.npz")["entries"]], ["x", "__metadata__"])
        for bad in ('{"a": 1}', '{"a": "b"} x', '{"a": "\\ud800"}', '{"a'):
            codes = list(bad.encode())
            self.write("c.npz", f.zip_of({"__metadata__.npy": f.npy((len(codes),), codes, "B")}))
            self.refused("inspect", "c.npz", words=["c.npz: npz: offset"], out=True)


class Losses(Models):
    def test_a_checkpoint_holds_the_model_alone(self):
        data, notation, more = self.MODELS[0]
        self.train(data, notation, *more)
        lost = ENTRIES - {"model"}
        self.refused("convert", "m.bson", "m.ckpt", words=[f'"{name}"' for name in lost] + ["--lossy"])
        ended = self.fine("convert", "m.bson", "m.ckpt", "--lossy", "--json")
        told = ended.json()
        self.assertEqual((told["entries"], set(told["lost"].split('"')[1::2]) - {"model"}), (["model"], lost))
        ended = self.fine("convert", "m.bson", "m.ckpt", "--lossy")
        self.assertEqual(ended.out.split(" bytes: ")[1], "model\n")
        for name in lost:
            self.assertIn(f'"{name}"', ended.err)
        self.refused("convert", "m.ckpt", "n.bson", "-m", notation, words=["training run", "--lossy", "--only model"])
        self.assertIn("training run", self.fine("convert", "m.ckpt", "n.bson", "--lossy").err)
        self.assertEqual([e["name"] for e in self.told("n.bson")["entries"]], ["model"])

    def test_arrays_alone_name_what_they_leave_out(self):
        data, notation, more = self.MODELS[0]
        self.train(data, notation, *more)
        wanted = self.results("m.bson", data)[0]
        ended = self.fine("convert", "m.bson", "a.npz", "--arrays")
        for name in ("model", "about", "columns", "classes"):
            self.assertIn(f'"{name}"', ended.err)
        self.assertNotIn('"mean"', ended.err)
        self.assertIn("model.layers.0.weight, ", ended.out)
        # The scale of the inputs is stored as arrays, so a model that is made from the arrays keeps it.
        ended = self.fine("convert", "a.npz", "b.bson", "-m", notation)
        self.assertEqual(set(ended.out.split(" bytes: ")[1].strip().split(", ")), {"model", "shape", "mean", "std"})
        out = self.fine("predict", "b.bson", "-d", data, "-l", "logitcrossentropy").out
        scores = [[float(x) for x in line.split(",")] for line in out.splitlines()[1:]]
        shares = [[float(x) for x in line.split(",")[-len(scores[0]):]] for line in wanted.splitlines()[1:]]
        self.assertEqual((len(scores), len(shares)), (60, 60))
        for row, share in zip(scores, shares):
            total = sum(math.exp(x) for x in row)
            for x, p in zip(row, share):
                self.assertAlmostEqual(math.exp(x) / total, p, delta=1e-5)

    def test_settings_that_the_notation_does_not_say(self):
        self.write("x.bson", f.bson({"model": f.chain(f.dense(3, 2, [1.0] * 6, [0.0] * 3), f.batchnorm(3, 0.5))}))
        for out, *more in (("o.safetensors",), ("o.npz",), ("o.safetensors", "--pytorch"), ("o.npz", "--pytorch"),
                           ("o.ckpt",)):
            self.refused("convert", "x.bson", out, *more, words=['"model"', "epsilon of BatchNorm", "--lossy"])
            ended = self.fine("convert", "x.bson", out, *more, "--lossy")
            self.assertIn("epsilon of BatchNorm", ended.err)
            self.assertEqual(ended.out.split(" bytes: ")[1], "model\n")

    def test_what_no_text_can_say(self):
        encoder = f.julia_struct(["Main", "Encoder"], f.julia_array([1], [1.5]))
        self.write("x.bson", f.bson({"net": encoder, "note": f.julia_tuple(f.julia_array([1], [1.0]), "text"),
                                     "nothing": None, "empty": f.julia_tuple(), "rate": f.julia_array([1], [0.5])}))
        self.refused("convert", "x.bson", "x.safetensors",
                     words=['"net": it contains a Main.Encoder', '"note": its texts', '"nothing": ', '"empty": '])
        self.assertEqual(self.fine("convert", "x.bson", "x.safetensors", "--lossy").err.count('": '), 4)
        arrays = f.read_safetensors(self.read("x.safetensors"))[1]
        self.assertEqual(arrays, {"net.children.0": ((1,), [1.5]), "note.0": ((1,), [1.0]), "rate": ((1,), [0.5])})

    def test_two_models_and_one_set_of_names(self):
        one = f.dense(1, 2, [1.0, 2.0], [0.5])
        self.write("two.bson", f.bson({"model": one, "critic": one}))
        self.refused("convert", "two.bson", "t.safetensors", "--pytorch", words=['"critic": ', "--lossy"])
        self.write("two.bson", f.bson({"actor": one, "critic": one}))
        self.refused("convert", "two.bson", "t.safetensors", "--pytorch", words='no entry "model"')
        self.write("one.bson", f.bson({"net": one}))
        self.fine("convert", "one.bson", "t.safetensors", "--pytorch")
        self.assertEqual([e["name"] for e in self.told("t.safetensors")["entries"]], ["net"])

    def test_many_losses_are_counted(self):
        self.write("many.bson", f.bson({f"text{i}": "a" for i in range(200)} | {"x": f.julia_array([1], [1.0])}))
        ended = self.refused("convert", "many.bson", "x.npy", words=['"text0", "text1"', " more; --lossy"])
        self.assertLess(len(ended.err), 1500)
        named = ended.err.count('"text')
        self.assertIn(f"and {200 - named} more", ended.err)
        self.fine("convert", "many.bson", "x.npy", "--lossy")
        self.assertEqual(f.read_npy(self.read("x.npy")), ((1,), [1.0]))

    def test_names_that_are_printed_are_few(self):
        self.write("many.npz", f.npz({f"a{i}": ((1,), [1.0]) for i in range(40)}))
        ended = self.fine("convert", "many.npz", "many.safetensors")
        self.assertTrue(ended.out.endswith("a11, and 28 more\n"), ended.out)
        self.assertEqual(len(self.fine("convert", "many.npz", "m.safetensors", "--json").json()["entries"]), 40)


if __name__ == "__main__":
    cli.main(14)
