#!/usr/bin/env python3
"""make_bson.py: writes files as Flux 0.6 to 0.16 and Optimisers.jl did, for cases that no recorded file covers.

An independent library (python3-bson) writes the documents, which follow BSON.jl's lowering table and
the definitions of the structs. The expected content is written beside them: `layouts.json` has
fields and their values, `steps.json` the parameters after one update by the optimiser that the file
holds, computed here in double precision by the formulas of the library that wrote it.

    make_bson.py all FOLDER         writes all of it
    make_bson.py struct FILE        the types of the structs in a file's entries, their numbers of fields
    make_bson.py mutate FILE OTHER  writes changed copies of a good file, one after the other, into
                                    the other file, and prints how many
"""
import json
import math
import os
import struct
import sys

try:
    import bson
except ImportError:  # an interpreter beside the system's: the package is Debian's
    sys.path.append("/usr/lib/python3/dist-packages")
    import bson

INT = bson.int64.Int64
FORMATS = {"Float32": "f", "Float64": "d", "Int64": "q", "Int32": "i"}


# ---- values of Julia as BSON.jl lowers them -------------------------------------------------------

def dt(path, *params):
    return {"tag": "datatype", "params": list(params), "name": path.split("/")}


def st(path, data, *params):
    return {"tag": "struct", "type": dt(path, *params), "data": list(data)}


def tup(*items):
    return {"tag": "tuple", "data": list(items)}


def array(values, size=None, eltype="Float32"):
    return {"tag": "array", "type": dt("Core/" + eltype), "size": [INT(n) for n in size or [len(values)]],
            "data": struct.pack("<%d%s" % (len(values), FORMATS[eltype]), *values)}


def number(x, eltype="Float32"):
    return {"tag": "struct", "type": dt("Core/" + eltype), "data": struct.pack("<" + FORMATS[eltype], x)}


def named(**fields):
    names = tup(*[{"tag": "symbol", "name": n} for n in fields])
    return {"tag": "struct", "type": dt("Core/NamedTuple", names, dt("Core/Tuple")), "data": list(fields.values())}


def fun(path):
    return st(path, [])


def ints(*n):
    return tup(*[INT(i) for i in n])


def iddict(keys, values, path="Base/IdDict"):
    return st(path, [keys, values], dt("Core/Any"), dt("Core/Any"))


def tracked(x):
    """A parameter of the Tracker era: who tracks it, its data, its gradient."""
    return st("Tracker/TrackedArray", [st("Tracker/Tracked", []), x, array([0.0])])


RELU, IDENTITY = fun("NNlib/#relu"), fun("Main/Base/#identity")


class Refs:
    """The list of objects that a file contains once."""
    def __init__(self):
        self.items = []

    def put(self, x):
        self.items.append(x)
        return {"tag": "backref", "ref": INT(len(self.items))}


def write(folder, name, doc, refs=None):
    if refs and refs.items:
        doc = dict(doc, _backrefs=refs.items)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(bson.encode(doc))


# ---- layouts: (entry, path of the type, [(field, value)…]) ----------------------------------------

def a(k, n=3):
    """A distinct array: k, k + 0.25, …"""
    return array([k + 0.25 * i for i in range(n)])


def w(k, *size):
    return array([k + 0.125 * i for i in range(math.prod(size))], size)


CONV = [("σ", RELU), ("weight", w(10, 2, 2, 1, 2)), ("bias", a(20, 2)), ("stride", ints(1, 1)),
        ("pad", ints(0, 0, 0, 0)), ("dilation", ints(1, 1))]
NORM = [("λ", IDENTITY), ("β", a(1)), ("γ", a(2)), ("μ", a(3)), ("σ²", a(4)), ("ϵ", number(0.5)),
        ("momentum", number(0.25))]
FLAGS = [("affine", True), ("track_stats", True), ("active", None), ("chs", INT(3))]
ACTIVE = [("active", True)]
G = [("G", INT(3))]
RNN = [("σ", fun("Main/Base/#tanh")), ("Wi", w(1, 2, 2)), ("Wh", w(2, 2, 2)), ("b", a(3, 2))]
GATES = [("Wi", w(1, 8, 2)), ("Wh", w(2, 8, 2)), ("b", a(3, 8))]
RNG = [("rng", fun("Random/TaskLocalRNG"))]
DENSE = st("Flux/Dense", [w(5, 2, 2), a(6, 2), RELU])


def cell(name, fields):
    return st("Flux/" + name, [v for _, v in fields])


NODES = [
    ("diagonal", "Diagonal", [("α", a(1)), ("β", a(2))]),
]
# Structs of no library: their fields are known by position only.
NODES += [("foreign_%d" % k, "Foreign%d" % k,
           [("", v) for v in (a(k + 1), number(k + 0.5), tup(a(k + 2), w(k + 3, 2, 2)), 0.25 * k, DENSE, a(k + 4))[:2 + k % 5]])
          for k in range(1, 31)]
CELLS = {"RNNCell": [n for n, _ in RNN], "LSTMCell": [n for n, _ in GATES], "GRUCell": [n for n, _ in GATES]}


def recurrent():
    """Recurrent layers: until 0.11 the cell has h (and c), until 0.14 state0; later neither."""
    third = [("Wi", w(1, 6, 2)), ("Wh", w(2, 6, 2)), ("b", a(3, 6))]
    v3 = [third[0], ("Wh", w(2, 4, 2)), third[2], ("Wh_h̃", w(8, 2, 2))]
    h, c, both = ("h", a(4, 2)), ("c", a(5, 2)), tup(w(4, 2, 1), w(5, 2, 1))
    state0 = ("state0", w(4, 2, 1))

    def recur(kind, fields, *others):
        return st("Flux/Recur", [cell(kind, fields), *others])
    return {
        "rnn_0.8": recur("RNNCell", RNN + [h], a(5, 2), a(6, 2)),
        "rnn_0.12": recur("RNNCell", RNN + [state0], w(6, 2, 1)),
        "rnn_zero": recur("RNNCell", RNN + [("state0", array([0.0, 0.0], (2, 1)))], w(6, 2, 1)),
        "lstm_0.8": recur("LSTMCell", GATES + [h, c], tup(a(6, 2), a(7, 2)), tup(a(8, 2), a(9, 2))),
        "lstm_0.12": recur("LSTMCell", GATES + [("state0", both)], tup(w(6, 2, 1), w(7, 2, 1))),
        "gru_0.8": recur("GRUCell", third + [h], a(5, 2), a(6, 2)),
        "gru_0.12": recur("GRUCell", third + [state0], w(6, 2, 1)),
        "gruv3_0.13": recur("GRUv3Cell", v3 + [state0], w(6, 2, 1)),
        "rnn_0.15": cell("RNN", [("cell", cell("RNNCell", RNN[:3] + [("bias", a(3, 2))]))]),
        "lstm_0.15": cell("LSTM", [("cell", cell("LSTMCell", GATES[:2] + [("bias", a(3, 8))]))]),
        "lstm_true": st("Flux/LSTM", [cell("LSTMCell", GATES)], True, dt("Flux/LSTMCell")),
        "gru_0.15": cell("GRU", [("cell", cell("GRUCell", third))]),
        "gruv3_0.15": cell("GRUv3", [("cell", cell("GRUv3Cell", v3))]),
        "recurrence": st("Flux/Recurrence", [cell("GRUCell", third)], False, dt("Flux/GRUCell")),
        "cell": cell("RNNCell", RNN[:3] + [("bias", False)]),
    }


def expected(path, value, out):
    """Arrays and numbers below a field as rows (path, length, first value)."""
    if isinstance(value, dict) and value.get("tag") == "array":
        first = struct.unpack("<f", value["data"][:4])[0]
        out.append({"path": path, "length": len(value["data"]) // 4, "first": first})
    elif isinstance(value, dict) and value.get("tag") == "tuple":
        for i, v in enumerate(value["data"]):
            expected("%s/%d" % (path, i), v, out)
    elif isinstance(value, dict) and isinstance(value["data"], bytes):
        out.append({"path": path, "length": 1, "first": struct.unpack("<f", value["data"])[0]})
    elif isinstance(value, dict):
        kind = value["type"]["name"][-1]
        names = ["weight", "bias", "σ"] if kind == "Dense" else CELLS.get(kind, [])
        for i, v in enumerate(value["data"]):  # the last fields have other names by version
            if isinstance(v, dict) and v.get("tag") == "array" and i < len(names):
                last = kind != "Dense" and i == len(names) - 1
                expected("%s/%s" % (path, "#%d" % i if last else names[i]), v, out)
            else:
                expected("%s/#%d" % (path, i), v, out)
    elif isinstance(value, (int, float)):
        out.append({"path": path, "length": 1, "first": float(value)})


def layouts(folder):
    doc, index = {}, []
    for entry, kind, fields in NODES:
        doc[entry] = cell(kind, fields)
        rows = []
        for i, (name, value) in enumerate(fields):
            expected(name or "#%d" % i, value, rows)
        index.append({"entry": entry, "type": "Flux." + kind, "fields": [n for n, _ in fields], "values": rows})
    write(folder, "nodes.bson", doc)
    with open(os.path.join(folder, "layouts.json"), "w") as f:
        json.dump(index, f)
    known = {
        "norm_0.7": cell("BatchNorm", NORM + ACTIVE), "norm_0.10.0": cell("BatchNorm", NORM),
        "norm_0.10.2": cell("BatchNorm", NORM + [("active", None)]),
        "norm_0.12": cell("BatchNorm", NORM + FLAGS),
        "norm_off": cell("BatchNorm", NORM + FLAGS[:2] + [("active", False)] + FLAGS[3:]),
        # Flux 0.6: chains are lists, and BatchNorm keeps the standard deviation
        "norm_0.6": st("Flux/Chain", [[cell("BatchNorm", NORM + ACTIVE)]]),
        "layer_0.6": st("Flux/LayerNorm", [st("Flux/Diagonal", [a(1), a(2)])]),
        "layer_0.12": st("Flux/LayerNorm", [RELU, st("Flux/Diagonal", [a(1), a(2)]), number(0.5), ints(3), True]),
        "layer_0.13": st("Flux/LayerNorm", [RELU, st("Flux/Scale", [a(1), a(2), RELU]), number(0.5), ints(3), True]),
        "layer_bare": st("Flux/LayerNorm", [IDENTITY, IDENTITY, number(0.5), ints(3), False]),
        "instance_0.8": cell("InstanceNorm", NORM + ACTIVE),
        "instance_0.10.0": cell("InstanceNorm", NORM), "instance_0.12": cell("InstanceNorm", NORM + FLAGS),
        "group_0.8": cell("GroupNorm", G + NORM + ACTIVE), "group_0.10.0": cell("GroupNorm", G + NORM),
        "group_0.12": cell("GroupNorm", G + NORM + FLAGS),
        "group_0.14": cell("GroupNorm", G + NORM[:3] + [("μ", None), ("σ²", None)] + NORM[5:] + FLAGS[:1] +
                           [("track_stats", False)] + FLAGS[2:]),
        "alpha_0.10": st("Flux/AlphaDropout", [0.5, None]), "alpha_0.13": st("Flux/AlphaDropout", [0.5, None, RNG[0][1]]),
        "dropout_0.6": st("Flux/Dropout", [0.25, True]),
        "dropout_0.9": st("Flux/Dropout", [0.25, fun("Main/Base/Colon"), True]),
        "dropout_0.10.0": st("Flux/Dropout", [0.25, INT(1)]),
        "dropout_0.13": st("Flux/Dropout", [0.25, ints(1, 2), False, RNG[0][1]]),
        "conv_0.8.2": cell("Conv", CONV[:4] + [("pad", ints(1, 0))] + CONV[5:]),
        "conv_0.8.3": cell("Conv", CONV),
        "pool_0.7": st("Flux/MaxPool", [ints(2, 2), ints(0, 0), ints(2, 2)]),
        "pool_0.8.3": st("Flux/MeanPool", [ints(2, 2), ints(0, 0, 0, 0), ints(2, 2)]),
    }
    known.update(recurrent())
    write(folder, "known.bson", known)
    plus = fun("Main/Base/#+")
    write(folder, "containers.bson", {
        "skip": cell("SkipConnection", [("layers", DENSE), ("connection", plus)]),
        "parallel": cell("Parallel", [("connection", fun("Main/Base/#vcat")), ("layers", tup(DENSE, DENSE))]),
        "vector": cell("Parallel", [("connection", plus), ("layers", [DENSE, DENSE])]),
        "fusion": cell("PairwiseFusion", [("connection", plus), ("layers", tup(DENSE, DENSE))]),
        "maxout": cell("Maxout", [("layers", tup(DENSE, DENSE))]),
        "embedding_0.12": cell("Embedding", [("weight", w(7, 2, 3))]),
        "embedding_0.16": cell("Embedding", [("weight", w(7, 2, 3)), ("padding_idx", INT(1))]),
        "embedding_none": cell("Embedding", [("weight", w(7, 2, 3)), ("padding_idx", None)]),
        "bag": cell("EmbeddingBag", [("weight", w(7, 2, 3)), ("reduction", fun("Statistics/#mean"))]),
        "bag_sum": cell("EmbeddingBag", [("weight", w(7, 2, 3)), ("reduction", fun("Main/Base/#sum"))]),
        "bilinear": cell("Bilinear", [("weight", w(8, 2, 2, 2)), ("bias", a(9, 2)), ("σ", RELU)]),
        "scale": cell("Scale", [("scale", a(1, 3)), ("bias", False), ("σ", RELU)]),
    })
    back = CONV[:2] + [("bias", a(20, 1))] + CONV[3:]
    write(folder, "windows.bson", {
        "transpose_0.8": cell("ConvTranspose", back),
        "transpose_0.12": cell("ConvTranspose", back + [("groups", INT(1))]),
        "transpose_0.14": cell("ConvTranspose", back[:5] + [("outpad", ints(1, 0))] + back[5:] + [("groups", INT(1))]),
        "adaptive": st("Flux/AdaptiveMeanPool", [ints(3, 2)], INT(4), INT(2)),
        "global": st("Flux/GlobalMaxPool", []),
        "upsample": st("Flux/Upsample", [INT(2), None], sym("bilinear"), dt("Core/Int64"), dt("Core/Nothing")),
        "upsample_size": st("Flux/Upsample", [None, ints(4, 6)], sym("nearest"), dt("Core/Nothing"), dt("Core/Tuple")),
        "shuffle": st("Flux/PixelShuffle", [INT(2)]),
        "crosscor_0.9": cell("CrossCor", CONV),
        "depthwise_0.7": cell("DepthwiseConv", CONV[:1] + [("weight", w(10, 2, 2, 3, 2)), ("bias", a(20, 6))] + CONV[3:]),
    })
    # The layout of a LayerNorm does not show its formula; the struct beside it narrows the versions
    norm = st("Flux/LayerNorm", [IDENTITY, st("Flux/Scale", [a(1), a(2), IDENTITY]), number(0.5), ints(3), True])
    beside = {
        "layernorm_0.13.bson": st("Flux/Recur", [cell("RNNCell", RNN + [("state0", w(4, 2, 1))]), w(6, 2, 1)]),
        "layernorm_0.16.10.bson": st("Flux/Embedding", [w(7, 2, 3)]),
        "layernorm_0.16.11.bson": st("Flux/Embedding", [w(7, 2, 3), None]),
        "layernorm.bson": None,
    }
    for name, other in beside.items():
        write(folder, name, {"layer": norm, "other": other})


# ---- whole files, by kind ------------------------------------------------------------------------

def kinds(folder):
    dense = st("Main/Flux/Dense", [w(5, 2, 2), a(6, 2), fun("Main/NNlib/#relu")])
    write(folder, "main.bson", {"model": st("Main/Flux/Chain", [tup(dense, dense)])})
    chain = st("Flux/Chain", [tup(DENSE)])
    write(folder, "dict.bson", st("Base/Dict", [["model", "epoch"], [chain, INT(7)]], dt("Core/String"), dt("Core/Any")))
    # dictionaries: keys and values are lists, or typed arrays where all are numbers of one type
    def dictionary(keys, values, k="String", v="Any", path="Base/Dict"):
        return st(path, [keys, values], dt("Core/" + k), dt("Core/" + v))

    def symbols(*names):
        return [{"tag": "symbol", "name": n} for n in names]
    write(folder, "dicts.bson", {
        "metrics": dictionary(["loss", "acc"], array([0.25, 0.97], eltype="Float64"), v="Float64"),
        "narrow": dictionary(["loss", "a much longer key, with spaces"], array([0.25, -1.5]), v="Float32"),
        "counts": dictionary(array([3, -7], eltype="Int64"), array([30, 70], eltype="Int64"), "Int64", "Int64"),
        "classes": dictionary(array([0, 1], eltype="Int32"), ["cat", "dog"], "Int32", "String"),
        "symbols": dictionary(symbols("α", "tag"), [INT(1), a(5)], "Symbol"),
        "iddict": dictionary(symbols("w"), [w(1, 2, 2)], "Symbol", path="Base/IdDict"),
        "empty": dictionary([], []), "empty_numbers": dictionary(array([], eltype="Int64"), array([]), "Int64", "Float32"),
        "nested": dictionary(["inner"], [dictionary(array([5], eltype="Int64"), [DENSE], "Int64")]),
        "plain": {"x": INT(4), "deep": {"y": 0.5}},
        "floats": dictionary(array([0.5, 1.5], eltype="Float64"), [INT(1), INT(2)], "Float64", "Int64"),
    })
    write(folder, "dict_twice.bson", {"d": dictionary(["a", "b", "a"], array([1, 2, 3], eltype="Int64"))})
    write(folder, "dict_short.bson", {"d": dictionary(["a", "b"], array([1], eltype="Int64"))})
    # a 32-bit Julia: Int is Int32, parameters too
    pool = {"tag": "struct", "data": [tup(2, 2), tup(0, 0, 0, 0), tup(2, 2)], "type": {
        "tag": "datatype", "name": ["Flux", "MaxPool"],
        "params": {"tag": "array", "data": struct.pack("<2i", 2, 4), "type": dt("Core/Int32"), "size": [2]}}}
    narrow = dict(w(5, 2, 2), size=[2, 2])
    write(folder, "32bit.bson", {"model": st("Flux/Chain", [tup(pool, st("Flux/Dense", [narrow, dict(a(6, 2), size=[2]), RELU]))])})
    # Flux.params(m), as a list of Tracker's and in Zygote's buffer
    write(folder, "tracker_params.bson", {"weights": st("Tracker/Params", [[tracked(w(5, 2, 2)), tracked(a(6, 2))], {}])})
    refs = Refs()
    x, y = refs.put(w(5, 2, 2)), refs.put(a(6, 2))
    write(folder, "zygote_params.bson", {"weights": st("Zygote/Params", [
        st("Zygote/Buffer", [[x, y], False]), st("Zygote/IdSet", [iddict([x, y], [None, None])])])}, refs)
    # each refers twice to the next: 2^18 ways to the last, 2^30 for the optimiser
    for name, levels, around in (("wide_model.bson", 18, lambda x: st("Flux/Chain", [tup(x, x)])),
                                 ("wide_opt.bson", 30, lambda x: tup(x, x))):
        refs = Refs()
        last = refs.put(DENSE if "model" in name else st("Optimisers/Leaf", [st("Optimisers/Descent", [0.5]), None, False]))
        for _ in range(levels):
            last = refs.put(around(last))
        other = {"opt": st("Optimisers/Leaf", [st("Optimisers/Descent", [0.5]), None, False])}
        doc = {"model": last, **other} if "model" in name else {"model": st("Flux/Chain", [tup(DENSE)]), "opt": last}
        write(folder, name, doc, refs)
    gpu = st("CUDA/CuArray", [INT(0), INT(16), INT(0), ints(2, 2)], dt("Core/Float32"), INT(2))
    write(folder, "gpu.bson", {"model": st("Flux/Chain", [tup(st("Flux/Dense", [gpu, False, RELU]))])})


# ---- optimisers ----------------------------------------------------------------------------------

ETA, RHO, B1, B2, EPS, DECAY, GRADIENT = 0.05, 0.8, 0.7, 0.95, 1e-6, 0.01, 0.5
W0, M, V, T = [0.1 * (i + 1) for i in range(6)], 0.02, 0.003, 3  # T updates were made


def adam(x, m, v, eps=EPS):
    m, v = B1 * m + (1 - B1) * GRADIENT, B2 * v + (1 - B2) * GRADIENT ** 2
    return m / (1 - B1 ** (T + 1)) / (math.sqrt(v / (1 - B2 ** (T + 1))) + eps)


# name: (rule of Optimisers.jl, its state of an array, the change of an element) and
# (optimiser of Flux.Optimise, its state of an array), with the velocity negated where that library negates it
def rules():
    def like(x, value):
        return array([value * (i + 1) for i in range(len(x["data"]) // 4)], x["size"])

    def moments(x, powers):
        return tup(like(x, M), like(x, V), powers)
    beta = tup(B1, B2)
    powers = tup(number(B1 ** (T + 1)), number(B2 ** (T + 1)))
    doubles = tup(B1 ** (T + 1), B2 ** (T + 1))
    vector = array([B1 ** (T + 1), B2 ** (T + 1)], eltype="Float64")
    new_adam = st("Optimisers/Adam", [ETA, beta, EPS])

    def adam_step(x, i):
        return ETA * adam(x, M * (i + 1), V * (i + 1))

    def coarse(x, i):
        return ETA * adam(x, M * (i + 1), V * (i + 1), 1e-8)

    def velocity(x, i):
        return RHO * M * (i + 1) + ETA * GRADIENT

    def nesterov(x, i):
        return -RHO ** 2 * M * (i + 1) + (1 + RHO) * ETA * GRADIENT
    def radam_step(x, i):
        most, power = 2 / (1 - B2) - 1, B2 ** (T + 1)
        rho = most - 2 * (T + 1) * power / (1 - power)
        m = (B1 * M * (i + 1) + (1 - B1) * GRADIENT) / (1 - B1 ** (T + 1))
        v = (B2 * V * (i + 1) + (1 - B2) * GRADIENT ** 2) / (1 - power)
        if rho <= 4:
            return ETA * m
        r = math.sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))
        return ETA * m * r / (math.sqrt(v) + 1e-8)

    def adabelief_step(x, i):
        m = B1 * M * (i + 1) + (1 - B1) * GRADIENT
        s = B2 * V * (i + 1) + (1 - B2) * (GRADIENT - m) ** 2 + EPS
        return ETA * m / (1 - B1 ** (T + 1)) / (math.sqrt(s / (1 - B2 ** (T + 1))) + EPS)
    return {
        "descent": ("new", st("Optimisers/Descent", [ETA]), lambda x: None, lambda x, i: ETA * GRADIENT),
        "momentum": ("new", st("Optimisers/Momentum", [ETA, RHO]), lambda x: like(x, M), velocity),
        "nesterov": ("new", st("Optimisers/Nesterov", [ETA, RHO]), lambda x: like(x, M), nesterov),
        "adam": ("new", new_adam, lambda x: moments(x, powers), adam_step),
        "adamw": ("new", st("Optimisers/AdamW", [ETA, beta, DECAY, EPS, True]), lambda x: moments(x, powers),
                  lambda x, i: ETA * (adam(x, M * (i + 1), V * (i + 1)) + DECAY * x)),
        "chain": ("new", st("Optimisers/OptimiserChain", [tup(new_adam, st("Optimisers/WeightDecay", [DECAY]))]),
                  lambda x: tup(moments(x, powers), None), lambda x, i: adam_step(x, i) + DECAY * x),
        "rmsprop": ("new", st("Optimisers/RMSProp", [ETA, RHO, EPS, False]), lambda x: tup(like(x, V), False),
                    lambda x, i: ETA * GRADIENT / (math.sqrt(RHO * V * (i + 1) + (1 - RHO) * GRADIENT ** 2) + EPS)),
        "lion": ("new", st("Optimisers/Lion", [ETA, beta]), lambda x: like(x, M), lambda x, i: ETA),
        "adamax": ("new", st("Optimisers/AdaMax", [ETA, beta, EPS]), lambda x: moments(x, powers),
                   lambda x, i: ETA * (B1 * M * (i + 1) + (1 - B1) * GRADIENT) / (1 - B1 ** (T + 1)) /
                   (max(B2 * V * (i + 1), GRADIENT) + EPS)),
        "nested": ("new", st("Optimisers/OptimiserChain", [tup(
            st("Optimisers/ClipGrad", [0.25]), st("Optimisers/AccumGrad", [INT(2)]), st("Optimisers/OptimiserChain", [
                tup(st("Optimisers/ClipNorm", [10.0, 2.0, True]), st("Optimisers/Momentum", [ETA, RHO]))]))]),
            lambda x: tup(None, tup(like(x, M), INT(2)), tup(None, like(x, M))),
            lambda x, i: RHO * M * (i + 1) + ETA * (M * (i + 1) + 0.125)),
        "mixed": ("new", st("Optimisers/MixedPrecision", [st("Optimisers/Momentum", [ETA, RHO])]),
                  lambda x: like(x, M), velocity),
        "old_rmsprop": ("old", lambda d: st("Flux/Optimise/RMSProp", [ETA, RHO, EPS, d]), lambda x: like(x, V),
                        lambda x, i: ETA * GRADIENT /
                        (math.sqrt(RHO * V * (i + 1) + (1 - RHO) * GRADIENT ** 2) + EPS)),
        "old_descent": ("old", lambda d: st("Flux/Optimise/Descent", [ETA]), None, lambda x, i: ETA * GRADIENT),
        # v = ρv − ηΔ; x += v
        "old_momentum": ("old", lambda d: st("Flux/Optimise/Momentum", [ETA, RHO, d]), lambda x: like(x, -M), velocity),
        "old_nesterov": ("old", lambda d: st("Flux/Optimise/Nesterov", [ETA, RHO, d]), lambda x: like(x, M), nesterov),
        "old_adam_0.9": ("tracked", lambda d: st("Flux/Optimise/ADAM", [ETA, beta, d]), lambda x: moments(x, doubles),
                         coarse),
        "old_adam_0.12": ("old", lambda d: st("Flux/Optimise/ADAM", [ETA, beta, d]), lambda x: moments(x, vector), coarse),
        "old_adam_0.13": ("old", lambda d: st("Flux/Optimise/Adam", [ETA, beta, EPS, d]), lambda x: moments(x, vector),
                          adam_step),
        "old_radam": ("old", lambda d: st("Flux/Optimise/RADAM", [ETA, beta, d]),
                      lambda x: tup(like(x, M), like(x, V), doubles, INT(T + 1)), radam_step),
        "old_adamax": ("old", lambda d: st("Flux/Optimise/AdaMax", [ETA, beta, EPS, d]), lambda x: moments(x, vector),
                       lambda x, i: ETA * (B1 * M * (i + 1) + (1 - B1) * GRADIENT) / (1 - B1 ** (T + 1)) /
                       (max(B2 * V * (i + 1), GRADIENT) + EPS)),
        # d = Adam's step; x -= 2d − previous d
        "old_oadam": ("old", lambda d: st("Flux/Optimise/OADAM", [ETA, beta, EPS, d]),
                      lambda x: tup(like(x, M), like(x, V), like(x, V), vector),
                      lambda x, i: 2 * adam_step(x, i) - V * (i + 1)),
        "old_adagrad": ("old", lambda d: st("Flux/Optimise/ADAGrad", [ETA, d]), lambda x: like(x, V),
                        lambda x, i: ETA * GRADIENT / (math.sqrt(V * (i + 1) + GRADIENT ** 2) + 1e-8)),
        "old_adadelta": ("old", lambda d: st("Flux/Optimise/AdaDelta", [RHO, EPS, d]),
                         lambda x: tup(like(x, V), like(x, M)), lambda x, i: GRADIENT * math.sqrt(
                             (M * (i + 1) + EPS) / (RHO * V * (i + 1) + (1 - RHO) * GRADIENT ** 2 + EPS))),
        "old_amsgrad": ("old", lambda d: st("Flux/Optimise/AMSGrad", [ETA, beta, EPS, d]),
                        lambda x: tup(like(x, M), like(x, V), like(x, 10 * V)),
                        lambda x, i: ETA * (B1 * M * (i + 1) + (1 - B1) * GRADIENT) / (math.sqrt(max(
                            10 * V * (i + 1), B2 * V * (i + 1) + (1 - B2) * GRADIENT ** 2)) + EPS)),
        "old_nadam": ("old", lambda d: st("Flux/Optimise/NADAM", [ETA, beta, d]), lambda x: moments(x, doubles),
                      lambda x, i: ETA * (B1 * (B1 * M * (i + 1) + (1 - B1) * GRADIENT) / (1 - B1 ** (T + 2)) +
                                          (1 - B1) * GRADIENT / (1 - B1 ** (T + 1))) /
                      (math.sqrt(B2 * (B2 * V * (i + 1) + (1 - B2) * GRADIENT ** 2) / (1 - B2 ** (T + 1))) + 1e-8)),
        "old_adabelief": ("old", lambda d: st("Flux/Optimise/AdaBelief", [ETA, beta, EPS, d]),
                          lambda x: moments(x, vector), adabelief_step),
        # Δ is cut to 0.25, then λx is added
        "old_chain": ("old", lambda d: st("Flux/Optimise/Optimiser", [[
            st("Flux/Optimise/ClipValue", [0.25]), st("Flux/Optimise/WeightDecay", [DECAY]),
            st("Flux/Optimise/Momentum", [ETA, RHO, d])]]), lambda x: like(x, -M),
            lambda x, i: RHO * M * (i + 1) + ETA * (0.25 + DECAY * x)),
        "old_adamw": ("old", lambda d: st("Flux/Optimise/Optimiser", [[
            st("Flux/Optimise/ADAM", [ETA, beta, EPS, d]), st("Flux/Optimise/WeightDecay", [DECAY])]]),
            lambda x: moments(x, vector), lambda x, i: adam_step(x, i) + DECAY * x),
    }


def optimisers(folder):
    steps = []
    for name, (kind, rule, state, step) in rules().items():
        refs = Refs()
        weight, bias = array(W0[:4], [INT(2), INT(2)]), array(W0[4:])
        both = [weight, bias]
        inner = [tracked(x) for x in both] if kind == "tracked" else both
        put = [refs.put(x) for x in inner]
        model = st("Flux/Chain", [tup(st("Flux/Dense", put + [IDENTITY]), RELU)])
        if kind == "new":
            leaves = [st("Optimisers/Leaf", [rule, state(x), False]) for x in both]
            opt = named(layers=tup(named(weight=leaves[0], bias=leaves[1], σ=tup()), tup()))
        else:  # the dictionary is in no order
            values = [state(x) for x in both] if state else []
            opt = rule(iddict(put[1::-1], values[::-1]))
        write(folder, name + ".bson", {"model": model, "opt": opt}, refs)
        write(folder, name + ".alone.bson", {"opt": opt}, None if kind == "new" else refs)
        after = [[x - step(x, i) for i, x in enumerate(xs)] for xs in (W0[:4], W0[4:])]
        steps.append({"file": name + ".bson", "after": after})
    with open(os.path.join(folder, "steps.json"), "w") as f:
        json.dump(steps, f)
    # rules that cflux does not have, and a state that fits no model
    other = st("Optimisers/Leaf", [st("Optimisers/Unheard", [ETA, RHO, EPS, False]), tup(a(1), False), False])
    write(folder, "unheard.bson", {"opt": named(weight=other), "twins": tup(other)})
    frozen = st("Optimisers/Leaf", [st("Optimisers/Descent", [ETA]), None, True])
    write(folder, "frozen.bson", {"opt": named(weight=frozen, bias=frozen, σ=tup())})
    # rules of Flux.Optimise that Optimisers.jl does not have, and more than one rule with a state
    model = st("Flux/Dense", [array(W0[:4], [INT(2), INT(2)]), array(W0[4:]), IDENTITY])
    for name, first in (("old_decay", st("Flux/Optimise/ExpDecay", [ETA, 0.1, INT(1000), 1e-4, iddict([], [])])),
                        ("old_two", st("Flux/Optimise/RMSProp", [ETA, RHO, EPS, iddict([], [])]))):
        write(folder, name + ".bson", {"model": model, "opt": st("Flux/Optimise/Optimiser", [[
            first, st("Flux/Optimise/Momentum", [ETA, RHO, iddict([], [])])]])})
    # rules that no library would make
    model = st("Flux/Dense", [array(W0[:4], [INT(2), INT(2)]), array(W0[4:]), IDENTITY])
    negative = st("Optimisers/Leaf", [st("Optimisers/Descent", [-0.7]), None, False])
    write(folder, "negative.bson", {"model": model, "opt": named(weight=negative, bias=negative, σ=tup()),
                                    "old": st("Flux/Optimise/Descent", [-0.7])})
    # a rule of the library that is made of another rule, and that no file stores
    shared = st("Optimisers/Leaf", [st("Optimisers/DistributedOptimizer", [None]), None, False])
    write(folder, "shared.bson", {"model": model, "opt": named(weight=shared, bias=shared, σ=tup())})


# ---- anonymous functions -------------------------------------------------------------------------

def sym(name):
    return {"tag": "symbol", "name": name}


def call(f, *args):
    return st("Core/Expr", [sym("call"), [st("Core/GlobalRef", [{"tag": "ref", "path": ["Main"]}, sym(f)])] + list(args)])


X, COLON = st("Core/SlotNumber", [INT(2)]), fun("Core/Colon")


def ssa(k):
    return st("Core/SSAValue", [INT(k)])


def anonymous(*code):
    """x -> …, whose calls refer to each other; the last one is returned."""
    code = list(code) + [st("Core/Expr", [sym("return"), [ssa(len(code))]])]
    method = st("Core/Method", [{"tag": "ref", "path": ["Main"]}, st("Core/CodeInfo", [code])])
    typename = st("Core/TypeName", ["1.9", sym("#1"), [sym("#1"), [method], INT(2), None]])
    return {"tag": "struct", "data": [], "type": {"tag": "jl_anonymous", "params": [], "typename": typename}}


def glob(f):
    return st("Core/GlobalRef", [{"tag": "ref", "path": ["Main"]}, sym(f)])


def dotted(f, *args):
    return anonymous(call("broadcasted", glob(f), *args), call("materialize", ssa(1)))


def value(k, n):
    """The statements k and k + 1: Val(n), the exponent of x^n."""
    return [call("apply_type", glob("Val"), INT(n)), st("Core/Expr", [sym("call"), [ssa(k)]])]


def closures(folder):
    fixed = tup(INT(8), fun("Core/Colon"))
    fix2 = st("Base/Fix2", [fun("Base/#reshape"), fixed])
    write(folder, "closures.bson", {
        "flatten4": anonymous(call("size", X, INT(4)), call("reshape", X, COLON, ssa(1))),
        "rows": anonymous(call("size", X, INT(1)), call("reshape", X, ssa(1), COLON)),
        "sizes": anonymous(call("size", X, INT(3)), call("reshape", X, INT(4), COLON, ssa(1))),
        "fixed": anonymous(call("reshape", X, fixed)),
        "twice": dotted("*", INT(2), X), "half": dotted("*", X, 0.5), "plus": dotted("+", X, number(0.1)),
        "minus": dotted("-", 1.5, X), "less": dotted("-", X, INT(1)), "over": dotted("/", INT(1), X),
        "divided": dotted("/", X, INT(3)), "power": dotted("*", X, 2.0),
        "tanh": dotted("tanh", X), "softmax": anonymous(call("softmax", X)), "same": anonymous(call("identity", X)),
        "squared": anonymous(*value(1, 2), call("broadcasted", glob("literal_pow"), glob("^"), X, ssa(2)),
                             call("materialize", ssa(3))),
        "powers": dotted("^", INT(2), X), "leaky": dotted("leakyrelu", X, number(0.25)),
        "sine": dotted("sin", X), "vector": anonymous(call("vec", X)), "bare": fun("Base/#abs2"),
        "flat": anonymous(call("flatten", X)), "pool": anonymous(call("maxpool", X, ints(2, 2))),
        "mean": anonymous(call("meanpool", X, ints(2, 2))),
        "several": anonymous(call("size", X, INT(4)), call("reshape", X, COLON, ssa(1)),
                             call("broadcasted", st("Core/GlobalRef", [{"tag": "ref", "path": ["Main"]}, sym("tanh")]), ssa(2)),
                             call("materialize", ssa(3)), call("softmax", ssa(4))),
        "value": fix2,
        "chain": st("Flux/Chain", [tup(anonymous(call("size", X, INT(4)), call("reshape", X, COLON, ssa(1))),
                                       dotted("tanh", X), anonymous(call("softmax", X)))])})
    # a chain that begins with something that is not a layer: a node
    write(folder, "first_is_no_layer.bson", {"model": st("Flux/Chain", [tup(a(1), DENSE)]),
                                             "list": st("Flux/Chain", [[a(1), DENSE]])})
    # reshapes that no array has: they stay nodes
    write(folder, "odd_callables.bson", {
        "two": st("Base/Fix2", [fun("Base/#reshape"), tup(COLON, COLON)]),
        "negative": st("Base/Fix2", [fun("Base/#reshape"), ints(-3, 2)]),
        "axis": st("Flux/Parallel", [fun("Base/#reshape"), tup(IDENTITY, st("Base/Fix2", [fun("Base/#size"), INT(0)]))]),
        "other": st("Flux/Parallel", [fun("Base/#reshape"), tup(RELU, st("Base/Returns", [COLON]))]),
        "many": st("Base/Fix2", [fun("Base/#reshape"), ints(*([1] * 40))]),
        "operator": st("Base/Fix1", [fun("Base/Broadcast/#broadcast"), st("Base/Fix2", [fun("Base/#rem"), INT(2)])])})


def activations(folder):
    """Anonymous functions of a number as σ, as Julia lowers them and as the library writes them."""
    def dense(act):
        return st("Flux/Dense", [w(5, 2, 2), a(6, 2), act])
    square = [*value(1, 2), call("literal_pow", glob("^"), X, ssa(2))]
    fixed = st("Base/Fix2", [fun("Base/#^"), INT(2)])
    write(folder, "activations.bson", {
        "square": dense(anonymous(*square)),
        "sine": dense(anonymous(call("sin", X))),
        "line": dense(anonymous(call("*", INT(2), X), call("-", ssa(1), INT(1)))),
        "dotted": dense(anonymous(call("broadcasted", glob("tanh"), X), call("broadcasted", glob("*"), 0.5, ssa(1)),
                                  call("materialize", ssa(2)))),
        "several": dense(anonymous(*square, call("tanh", ssa(3)), call("/", ssa(4), INT(2)), call("-", INT(1), ssa(5)))),
        "leaky": dense(anonymous(call("leakyrelu", X, number(0.25)))),
        "fixed": dense(fixed),
        "composed": dense(st("Base/ComposedFunction", [fun("Base/#tanh"), fixed]))})
    # functions that a number has no value of, and one without an argument: the layers stay nodes
    write(folder, "odd_activations.bson", {
        "soft": dense(anonymous(call("softmax", X))),
        "unknown": dense(anonymous(call("sec", X))),
        "number": dense(anonymous(call("tanh", INT(2)))),
        "two": dense(anonymous(call("*", X, X))),
        "composed": dense(st("Base/ComposedFunction", [fun("NNlib/#softmax"), fixed]))})


# ---- structs of programs --------------------------------------------------------------------------

def structs(folder):
    def inner(x, module="Main"):
        return st(module + "/Inner", [x, 0.25])

    def encoder(**other):
        fields = {"weight": w(5, 2, 3), "bias": None, "act": RELU, "inner": inner(a(6, 2)), "rate": 0.125, "steps": INT(7),
                  "small": INT(-3), "single": number(0.5), "on": True, "size": ints(4, 5), "title": "an encoder",
                  "layers": tup(DENSE, RELU), **other}
        return st("Models/Encoder", fields.values())
    refs = Refs()
    x = refs.put(w(1, 2, 2))
    write(folder, "own.bson", {"model": encoder(), "bare": inner(a(1, 2), "Other/Deep"), "unknown": st("Main/Stranger", [a(1)]),
                               "tied": tup(inner(x), inner(x))}, refs)
    bad = {"count": st("Models/Encoder", [a(1)]), "weight": encoder(weight=DENSE), "inner": encoder(inner=a(1)),
           "bias": encoder(bias=a(1)), "act": encoder(act=inner(a(1))), "rate": encoder(rate="fast"),
           "small": encoder(small=INT(2 ** 40)), "on": encoder(on=INT(1)), "layers": encoder(layers=a(1)),
           "title": encoder(title=INT(1)), "size": encoder(size=tup(0.5)),
           "type": {"tag": "struct", "data": [], "type": dict(dt("Models/Encoder"), name=[INT(1), "Encoder"])}}
    for name, v in bad.items():
        write(folder, "own_bad_%s.bson" % name, {"model": v})
    # Structs in structs, written inside each other, and as references.
    for levels in (60, 70):
        inside, linked, refs = None, None, Refs()
        for _ in range(levels):
            inside = st("Models/Link", [inside])
            linked = refs.put(st("Models/Link", [linked]))
        write(folder, "own_inside_%d.bson" % levels, {"model": inside})
        write(folder, "own_linked_%d.bson" % levels, {"model": linked}, refs)


# ---- changed copies ------------------------------------------------------------------------------

def positions(x, path=()):
    for k, v in (list(x.items()) if isinstance(x, dict) else list(enumerate(x))):
        yield path + (k,), v
        if isinstance(v, (dict, list)):
            yield from positions(v, path + (k,))


def changes(value):
    """The values that replace a value."""
    wrong = [INT(2 ** 62), "x", {"tag": "backref", "ref": INT(1)}, {"tag": "tuple", "data": []}, [], None, b"abc"]
    if isinstance(value, list) and len(value) > 1:
        yield value[::-1]
        yield value[:-1]
    if isinstance(value, list):
        yield value + [INT(-1)] * 3
    if isinstance(value, dict):
        for k in value:
            yield {q: v for q, v in value.items() if q != k}
        yield dict(reversed(list(value.items())))
    if isinstance(value, bytes):
        yield value[:-1]
        yield value + b"\0"
    if isinstance(value, int) and not isinstance(value, bool):
        yield from (INT(0), INT(-1), INT(2 ** 31), INT(2 ** 63 - 1))
    if isinstance(value, str):
        for tag in ("struct", "array", "tuple", "datatype", "backref", "symbol", "jl_anonymous", "unionall", "svec", ""):
            yield tag
    yield from wrong


def changed(doc, path, value):
    if not path:
        return value
    copy = dict(doc) if isinstance(doc, dict) else list(doc)
    copy[path[0]] = changed(doc[path[0]], path[1:], value)
    return copy


def mutate(file, other):
    with open(file, "rb") as f:
        doc = bson.decode(f.read())
    n = 0
    refs = doc.get("_backrefs", [])
    copies = [doc]
    for k in range(len(refs)):  # references to themselves and in cycles
        copies.append(changed(doc, ("_backrefs", k), {"tag": "backref", "ref": INT(k + 1)}))
        copies.append(changed(doc, ("_backrefs", k), {"tag": "backref", "ref": INT((k + 1) % len(refs) + 1)}))
        copies.append(changed(doc, ("_backrefs", k), {"tag": "tuple", "data": [{"tag": "backref", "ref": INT(k + 1)}] * 2}))
    copies += [changed(doc, path, value) for path, v in positions(doc) for value in changes(v)]
    with open(other, "wb") as f:  # a document begins with its length
        for d in copies:
            data = bson.encode(d)
            f.write(data)
            n += 1
    print(n)


if __name__ == "__main__":
    if sys.argv[1] == "mutate":
        mutate(*sys.argv[2:4])
    elif sys.argv[1] == "struct":
        with open(sys.argv[2], "rb") as f:
            rows = bson.decode(f.read()).values()
        assert all(v["tag"] == "struct" and v["type"]["params"] == [] for v in rows)
        print(" ".join("%s %d" % (".".join(v["type"]["name"]), len(v["data"])) for v in rows))
    else:
        for make in (layouts, kinds, optimisers, closures, activations, structs):
            make(sys.argv[2])
