#!/usr/bin/env python3
"""Tests that the runner of recorded cases ignores nothing: with small data folders that this test writes, it
computes all cases, and fails if a case contains something that it does not understand.

Usage: check_runner.py RUNNER. The expected numbers are worked out here, in Python's own arithmetic.
"""
import copy
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

RUNNER = None


def npy(values, shape, letter="<f4"):
    head = f"{{'descr': '{letter}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    body = b"".join(struct.pack({"<f4": "<f", "<f8": "<d", "<i8": "<q"}[letter], v) for v in values)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + body


def array(name, values, shape, letter="<f4"):
    """(what case.json says of it, the file)."""
    return {"name": name, "file": f"{name}.npy", "dtype": letter, "shape": list(shape)}, npy(values, shape, letter)


def onnx(op, attrs, inputs, outputs, **node):
    arrays = inputs + outputs
    return {"case.json": {"name": op, "source": "this test", "opset": {"ai.onnx": 16},
                          "nodes": [{"op": op, "domain": "", "attrs": attrs, "inputs": [a[0]["name"] for a in inputs],
                                     "outputs": [a[0]["name"] for a in outputs], **node}],
                          "inputs": [a[0] for a in inputs], "initializers": [], "outputs": [a[0] for a in outputs]},
            **{a[0]["file"]: a[1] for a in arrays}}


def torch(op, attrs, inputs, outputs, group="op"):
    return {"case.json": {"name": op, "group": group, "op": op, "attrs": attrs, "note": "", "grads": {},
                          "inputs": {a[0]["name"]: {k: v for k, v in a[0].items() if k != "name"} for a in inputs},
                          "outputs": {a[0]["name"]: {k: v for k, v in a[0].items() if k != "name"} for a in outputs}},
            **{a[0]["file"]: a[1] for a in inputs + outputs}}


def instance_norm():
    """Two observations of one channel: statistics of each, running ones towards their mean."""
    x, eps, momentum = [1.0, 2.0, 6.0, -1.0, 0.0, 4.0], 1e-5, 0.1
    y, means, variances = [], [], []
    for i in (0, 3):
        part = x[i:i + 3]
        mean = sum(part) / 3
        square = sum((v - mean) ** 2 for v in part)
        means.append(mean)
        variances.append(square / 2)
        y += [(v - mean) / (square / 3 + eps) ** 0.5 * 2 + 0.5 for v in part]
    running = [array("new_running_mean", [0.9 * 3 + momentum * sum(means) / 2], [1], "<f8"),
               array("new_running_var", [0.9 * 5 + momentum * sum(variances) / 2], [1], "<f8")]
    return torch("InstanceNorm", {"use_input_stats": True, "eps": eps, "momentum": momentum},
                 [array("x", x, [2, 1, 3]), array("gamma", [2], [1]), array("beta", [0.5], [1]),
                  array("running_mean", [3], [1]), array("running_var", [5], [1])],
                 [array("y", y, [2, 1, 3], "<f8"), *running], "norm")


def good():
    """A folder of cases that contain everything that the recorded data contains in at least one case."""
    pad = {"reflect": [3, 2, 1, 2, 3, 4, 3], "replicate": [1, 1, 1, 2, 3, 4, 4], "circular": [3, 4, 1, 2, 3, 4, 1],
           "constant": [9, 9, 1, 2, 3, 4, 9]}
    norm3 = [v / sum(abs(u) ** 3 for u in (1, -2, 4)) ** (1 / 3) for v in (1, -2, 4)]
    tree = {
        "onnx/constant": onnx("Constant", {"value": {"tensor": [[1, 2, 3], [4, 5, 6]]}}, [],
                              [array("y", range(1, 7), [2, 3], "<i8")]),
        "onnx/scalar": onnx("Constant", {"value": {"tensor": 2.5}}, [], [array("y", [2.5], [])]),
        "onnx/cube": onnx("Constant", {"value": {"tensor": [[[0.5], [1.5]]]}}, [], [array("y", [0.5, 1.5], [1, 2, 1])]),
        "onnx/norm3": onnx("LpNormalization", {"p": 3, "axis": 0}, [array("x", [1, -2, 4], [3])], [array("y", norm3, [3])]),
        "onnx/scatter": onnx("ScatterElements", {"axis": 1, "reduction": "add"},
                             [array("x", [1, 2, 3, 4, 5, 6], [2, 3]), array("i", [1, 1, 0, 2], [2, 2], "<i8"),
                              array("u", [10, 20, 30, 40], [2, 2])],
                             [array("y", [1, 32, 3, 34, 5, 46], [2, 3])]),
        "torch/norm/norm3": torch("lp_normalise", {"p": 3, "dim": 0}, [array("x", [1, -2, 4], [3, 1])],
                                  [array("y", norm3, [3, 1], "<f8")], "norm"),
        "torch/norm/instance": instance_norm(),
    }
    for mode, values in pad.items():
        attrs = {"mode": mode, "pad_last_dim_first": [2, 1], **({"value": 9} if mode == "constant" else {})}
        tree[f"torch/op/pad_{mode}"] = torch("Pad", attrs, [array("x", [1, 2, 3, 4], [1, 4])],
                                             [array("y", values, [1, 7], "<f8")])
    return tree


def write(root, tree):
    for case, files in tree.items():
        for name, content in files.items():
            path = os.path.join(root, case, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(content if isinstance(content, bytes) else json.dumps(content).encode())
    write_json(root, "onnx/index.json", [{"case": c[5:]} for c in tree if c.startswith("onnx/")])
    write_json(root, "torch/index.json", {"cases": [{"dir": c[6:]} for c in tree if c.startswith("torch/")]})
    write_json(root, "flux/nnlib_conv_pool.json", {"source": "none", "facts": {}})


def write_json(root, path, content):
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), "w", encoding="utf-8") as f:
        json.dump(content, f)


class Runner(unittest.TestCase):
    def run_tree(self, tree, after=None, data=True):
        with tempfile.TemporaryDirectory() as root:
            write(root, tree)
            if after:
                after(root)
            environment = {k: v for k, v in os.environ.items() if k != "CFLUX_DATA"}
            if data:
                environment["CFLUX_DATA"] = root
            done = subprocess.run([RUNNER], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  check=False)
        return done.returncode, done.stdout

    def fails(self, message, case, change, after=None):
        """With one change in one good case, that case alone fails, and says why."""
        tree = copy.deepcopy(good())
        if case:
            change(tree[case])
        status, out = self.run_tree(tree, after)
        self.assertEqual(status, 1, out)
        self.assertIn(message, out)
        self.assertEqual(out.count("FAIL"), 1, out)

    def test_good(self):
        status, out = self.run_tree(good())
        self.assertEqual(status, 0, out)
        self.assertIn(f"{len(good())} passed, 0 failed, 0 skipped", out)
        self.assertGreaterEqual(len(good()), 11)

    def test_wrong_value(self):
        def change(case):
            case["y.npy"] = npy([1, 2, 3, 4, 5, 7], [2, 3], "<i8")
        self.fails("output y[5]: expected 7, got 6", "onnx/constant", change)

    def test_unknown_attribute(self):
        self.fails("LpNormalization: field sharpness = 3 is not understood", "onnx/norm3",
                   lambda case: case["case.json"]["nodes"][0]["attrs"].update(sharpness=3))
        self.fails("lp_normalise: field formula = \"new\" is not understood", "torch/norm/norm3",
                   lambda case: case["case.json"]["attrs"].update(formula="new"))

    def test_attribute_of_another_kind(self):
        self.fails("LpNormalization: field p = [3] is not understood", "onnx/norm3",
                   lambda case: case["case.json"]["nodes"][0]["attrs"].update(p=[3]))
        self.fails("field dim = \"0\" is not understood", "torch/norm/norm3",
                   lambda case: case["case.json"]["attrs"].update(dim="0"))

    def test_unknown_form(self):
        self.fails("unknown operator Pad, form mode", "torch/op/pad_reflect",
                   lambda case: case["case.json"]["attrs"].update(mode="mirror"))
        self.fails("unknown form of operator ScatterElements: reduction", "onnx/scatter",
                   lambda case: case["case.json"]["nodes"][0]["attrs"].update(reduction="median"))

    def test_unknown_fields(self):
        self.fails("case: field tolerance = 0.1 is not understood", "onnx/norm3",
                   lambda case: case["case.json"].update(tolerance=0.1))
        self.fails("case: field steps = 3 is not understood", "torch/norm/norm3",
                   lambda case: case["case.json"].update(steps=3))
        self.fails("node: field repeat = 2 is not understood", "onnx/norm3",
                   lambda case: case["case.json"]["nodes"][0].update(repeat=2))
        self.fails("x.npy: field order = \"F\" is not understood", "onnx/norm3",
                   lambda case: case["case.json"]["inputs"][0].update(order="F"))
        self.fails("LpNormalization: unknown domain com.other", "onnx/norm3",
                   lambda case: case["case.json"]["nodes"][0].update(domain="com.other"))

    def test_shape_of_a_file(self):
        self.fails("x.npy: its shape is not the one that case.json says", "onnx/norm3",
                   lambda case: case["case.json"]["inputs"][0].update(shape=[3, 1]))

    def test_input_that_nobody_reads(self):
        def change(case):
            case["w.npy"] = npy([1], [1])
            case["case.json"]["inputs"]["w"] = {"file": "w.npy", "dtype": "<f4", "shape": [1]}
        self.fails("lp_normalise: input w is not used", "torch/norm/norm3", change)

    def test_ragged_constant(self):
        self.fails("a constant that is not an array of numbers", "onnx/constant",
                   lambda case: case["case.json"]["nodes"][0]["attrs"].update(value={"tensor": [[1, 2], [3]]}))

    def test_index(self):
        for path in ("onnx/index.json", "torch/index.json", "flux/nnlib_conv_pool.json"):
            with tempfile.TemporaryDirectory() as root:
                write(root, good())
                os.remove(os.path.join(root, path))
                done = subprocess.run([RUNNER], env={**os.environ, "CFLUX_DATA": root}, stdout=subprocess.PIPE, text=True,
                                      check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"{path} is missing", done.stdout)

    def test_folder_that_is_not_listed(self):
        for extra in ("onnx/more", "torch/op/more"):
            self.fails(f"FAIL {extra}: its folder is there, but index.json does not list it", None, None,
                       lambda root, e=extra: write_json(root, f"{e}/case.json", {}))

    def test_tables(self):
        for kind, entry in (("conv", {"dx_mirror": {"size": [1], "data": [1]}}), ("medianpool", {"y": {"size": [1], "data": [1]}}),
                            ("maxpool", {"y": 3}), ("maxpool", {"p": 3})):
            self.fails("a table that is not understood", None, None,
                       lambda root, k=kind, e=entry: write_json(root, "flux/nnlib_conv_pool.json",
                                                                {"facts": {k: {"meaning": "", "ranks": {"1": e}}}}))

    def test_without_data(self):
        status, out = self.run_tree(good(), data=False)
        self.assertEqual(status, 0)
        self.assertIn("skipped:", out)


if __name__ == "__main__":
    RUNNER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
