#!/usr/bin/env python3
"""check_bson.py: checks that Julia's BSON.load could make the objects of a file.

The rules of BSON.jl are applied to the document, which an independent library (python3-bson) reads:
a datatype must name a type that exists, with as many parameters as it has; a struct must have as many
values as its type has fields, and every value must be of the field's type, which follows from the
parameters (BSON.jl converts each value to it); arrays must have as many bytes as their
sizes require; references must refer to an object. Julia is not needed.

    check_bson.py load FILE      checks every entry, and prints the numbers of structs and arrays
    check_bson.py same A B       checks that the two files are equal when references are followed
    check_bson.py selftest FILE  damages the document of FILE in many ways, and checks that each is noticed
"""
import copy
import sys

try:
    import bson
except ImportError:  # an interpreter beside the system's: the package is Debian's
    sys.path.append("/usr/lib/python3/dist-packages")
    import bson

SIZES = {"Float16": 2, "BFloat16": 2, "Float32": 4, "Float64": 8, "Int8": 1, "Int16": 2, "Int32": 4,
         "Int64": 8, "UInt8": 1, "UInt16": 2, "UInt32": 4, "UInt64": 8, "Bool": 1}
PLAIN = {"Symbol", "Nothing", "String", "Missing", "Any", "Colon", "Random.TaskLocalRNG"} | set(SIZES)
NNLIB = ("σ hardσ logσ hardtanh relu relu6 leakyrelu rrelu elu celu selu gelu gelu_tanh gelu_sigmoid "
         "gelu_erf swish hardswish lisht softplus softsign logcosh mish tanhshrink softshrink trelu "
         "softmax logsoftmax").split()
BASE = ("identity tanh exp expm1 sin cos tan atan sinh cosh asinh abs abs2 sign inv sqrt log log1p asin acos acosh "
        "atanh vec reshape size").split()
FUNCTIONS = ({"NNlib.#" + f for f in NNLIB} | {"Flux.#flatten", "MLUtils.#flatten"} |
             {"#" + f for f in BASE} | {"Iterators.#only", "Broadcast.#broadcast"} |
             {"#" + f for f in "*+-/^"})
NORM = [("λ", "F"), ("β", "V"), ("γ", "V"), ("μ", "W"), ("σ²", "W"), ("ϵ", "N"), ("momentum", "N"),
        ("affine", "Bool"), ("track_stats", "Bool"), ("active", ("Bool", "Nothing")), ("chs", "Int64")]
POOL = [("k", ("NTuple", "N")), ("pad", ("NTuple", "M")), ("stride", ("NTuple", "N"))]
STRUCTS = {  # parameters and fields, as Flux 0.16 defines them
    "Flux.Dense": ("F M B", [("weight", "M"), ("bias", "B"), ("σ", "F")]),
    "Flux.Chain": ("T", [("layers", "T")]),
    "Flux.Conv": ("N M F A V", [("σ", "F"), ("weight", "A"), ("bias", "V"), ("stride", ("NTuple", "N")),
                                ("pad", ("NTuple", "M")), ("dilation", ("NTuple", "N")),
                                ("groups", "Int64")]),
    "Flux.MaxPool": ("N M", POOL),
    "Flux.MeanPool": ("N M", POOL),
    "Flux.BatchNorm": ("F V N W", NORM),
    "Flux.LayerNorm": ("F D T N", [("λ", "F"), ("diag", "D"), ("ϵ", "T"), ("size", ("NTuple", "N")),
                                   ("affine", "Bool")]),
    "Flux.Scale": ("F A B", [("scale", "A"), ("bias", "B"), ("σ", "F")]),
    "Flux.Dropout": ("F D R", [("p", "F"), ("dims", "D"), ("active", ("Bool", "Nothing")), ("rng", "R")]),
    "Flux.Parallel": ("F T", [("connection", "F"), ("layers", "T")]),
    "Fix1": ("F T", [("f", "F"), ("x", "T")]),
    "Fix2": ("F T", [("f", "F"), ("x", "T")]),
    "ComposedFunction": ("O I", [("outer", "O"), ("inner", "I")]),
    "Returns": ("V", [("value", "V")]),
    # structs of programs, whose fields have no types
    "Models.Encoder": ("", [(f, "Any") for f in "weight bias act inner rate steps small single on size "
                            "title layers".split()]),
    "Main.Inner": ("", [("x", "Any"), ("scale", "Any")]),
    # and Optimisers.jl 0.4
    "Optimisers.Leaf": ("R S", [("rule", "R"), ("state", "S"), ("frozen", "Bool")]),
    "Optimisers.Descent": ("T", [("eta", "T")]),
    "Optimisers.Momentum": ("E R", [("eta", "E"), ("rho", "R")]),
    "Optimisers.Nesterov": ("E R", [("eta", "E"), ("rho", "R")]),
    "Optimisers.Adam": ("E B P", [("eta", "E"), ("beta", "B"), ("epsilon", "P")]),
    "Optimisers.AdamW": ("E B L P", [("eta", "E"), ("beta", "B"), ("lambda", "L"), ("epsilon", "P"),
                                     ("couple", "Bool")]),
    "Optimisers.Rprop": ("E L G", [("eta", "E"), ("ell", "L"), ("gamma", "G")]),
    "Optimisers.RMSProp": ("E R P C", [("eta", "E"), ("rho", "R"), ("epsilon", "P"), ("centred", "C")]),
    "Optimisers.AdaMax": ("E B P", [("eta", "E"), ("beta", "B"), ("epsilon", "P")]),
    "Optimisers.NAdam": ("E B P", [("eta", "E"), ("beta", "B"), ("epsilon", "P")]),
    "Optimisers.RAdam": ("E B P", [("eta", "E"), ("beta", "B"), ("epsilon", "P")]),
    "Optimisers.AMSGrad": ("E B P", [("eta", "E"), ("beta", "B"), ("epsilon", "P")]),
    "Optimisers.OAdam": ("E B P", [("eta", "E"), ("beta", "B"), ("epsilon", "P")]),
    "Optimisers.AdaBelief": ("E B P", [("eta", "E"), ("beta", "B"), ("epsilon", "P")]),
    "Optimisers.AdaGrad": ("E P", [("eta", "E"), ("epsilon", "P")]),
    "Optimisers.AdaDelta": ("R P", [("rho", "R"), ("epsilon", "P")]),
    "Optimisers.Lion": ("E B", [("eta", "E"), ("beta", "B")]),
    "Optimisers.WeightDecay": ("L", [("lambda", "L")]),
    "Optimisers.SignDecay": ("L", [("lambda", "L")]),
    "Optimisers.ClipGrad": ("D", [("delta", "D")]),
    "Optimisers.ClipNorm": ("O P T", [("omega", "O"), ("p", "P"), ("throw", "T")]),
    "Optimisers.AccumGrad": ("", [("n", "Int64")]),
    "Optimisers.OptimiserChain": ("O", [("opts", "O")]),
    "Optimisers.MixedPrecision": ("T O", [("rule", "O")]),
}
BOUNDS = {  # what Flux asks of parameters: dimensions of arrays
    ("Flux.Dense", "M"): lambda t: t[0] == "Array" and t[1][1] == 2,
    ("Flux.Scale", "A"): lambda t: t[0] == "Array",
    ("Flux.Chain", "T"): lambda t: t[0] in ("Tuple", "NamedTuple", "Array"),
    ("Flux.Parallel", "T"): lambda t: t[0] in ("Tuple", "NamedTuple"),
    ("Optimisers.AdamW", "B"): lambda t: t[0] == "Tuple",
}


class Refused(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Refused(text)


def read(path):
    with open(path, "rb") as f:
        return bson.decode(f.read())


class Raiser:
    def __init__(self, doc):
        self.refs = doc.get("_backrefs", [])
        self.structs = self.arrays = 0

    def follow(self, x):
        for _ in range(len(self.refs) + 1):
            if not (isinstance(x, dict) and x.get("tag") == "backref"):
                return x
            need(isinstance(x["ref"], int) and 1 <= x["ref"] <= len(self.refs), "a reference to nothing")
            x = self.refs[x["ref"] - 1]
        raise Refused("references form a cycle")

    def type_name(self, path):
        need(isinstance(path, list) and path and all(isinstance(p, str) for p in path), "a type's name")
        path = path[1:] if path[0] == "Main" and len(path) > 1 and path[1] in ("Base", "Core") else path
        return ".".join(path[1:] if path[0] in ("Base", "Core") else path)

    def param(self, x):
        x = self.follow(x)
        if isinstance(x, int):
            return x
        need(isinstance(x, dict), "a type parameter")
        if x.get("tag") == "tuple":
            return tuple(self.value(s)[1] for s in x["data"])
        return self.type(x)

    def params(self, x):
        """A list, or the tagged array that a list of integers is."""
        x = self.follow(x)
        if isinstance(x, dict):
            kind, value = self.value(x)
            need(kind == ("Array", (("Int64", ()), 1)), "type parameters")
            data = x["data"]
            return [int.from_bytes(data[i:i + 8], "little", signed=True) for i in range(0, len(data), 8)]
        out = [self.param(p) for p in x]
        need(not out or not all(isinstance(p, int) for p in out), "integers are written as an array")
        return out

    def type(self, x):
        """(name, parameters) of a datatype that exists."""
        x = self.follow(x)
        need(isinstance(x, dict) and x.get("tag") == "datatype", "no datatype: %r" % (x,))
        name, params = self.type_name(x["name"]), tuple(self.params(x["params"]))
        if name in PLAIN or name in FUNCTIONS:
            need(not params, name + " has no parameters")
        elif name == "Array":
            need(len(params) == 2 and isinstance(params[0], tuple) and isinstance(params[1], int), "Array")
        elif name in ("Dict", "IdDict"):
            need(len(params) == 2 and all(isinstance(p, tuple) for p in params), name)
        elif name == "Tuple":
            need(all(isinstance(p, tuple) for p in params), "the types of a tuple")
        elif name == "NamedTuple":
            need(len(params) == 2 and params[1][0] == "Tuple", "NamedTuple")
            need(len(params[0]) == len(params[1][1]), "names and types")
        else:
            need(name in STRUCTS, "no type " + name)
            names = STRUCTS[name][0].split()
            need(len(names) == len(params), "%s has %d parameters" % (name, len(names)))
            for n, p in zip(names, params):
                need(BOUNDS.get((name, n), lambda t: True)(p), "%s{%s = %r}" % (name, n, p))
        return (name, params)

    def field_type(self, spec, params):
        if isinstance(spec, tuple) and spec[0] == "NTuple":
            need(isinstance(params[spec[1]], int), "a number for " + spec[1])
            return ("Tuple", (("Int64", ()),) * params[spec[1]])
        return params.get(spec, (spec, ()))

    def struct(self, x):
        kind = self.type(x["type"])
        name, params = kind
        self.structs += 1
        if name in SIZES:
            need(isinstance(x["data"], bytes) and len(x["data"]) == SIZES[name], "the bytes of a " + name)
            return kind, x["data"]
        data = self.follow(x["data"])
        need(isinstance(data, list), "the data of a struct")
        values = [self.value(v) for v in data]
        if name in FUNCTIONS or name in PLAIN:
            need(not data, name + " has no fields")
        elif name in ("Dict", "IdDict"):
            need(len(data) == 2, "keys and values")
            keys, items = [self.items(self.follow(v)) for v in data]
            need(len(keys) == len(items) and len(set(keys)) == len(keys), "as many values as keys")
            need(params[0][0] == "Any" or all(k[0] == params[0] for k in keys), "keys of the key type")
        elif name == "NamedTuple":
            need(tuple(v[0] for v in values) == params[1][1], "the values of a named tuple")
        else:
            need(name in STRUCTS, name + " is not a struct")
            names, fields = STRUCTS[name]
            bound = dict(zip(names.split(), params))
            need(len(values) == len(fields), "%s has %d fields" % (name, len(fields)))
            for (field, spec), v in zip(fields, values):
                union = isinstance(spec, tuple) and spec[0] != "NTuple"
                wanted = [(s, ()) for s in spec] if union else [self.field_type(spec, bound)]
                need(wanted == [("Any", ())] or v[0] in wanted, "%s.%s is a %r, not a %r" % (name, field, v[0], wanted))
        return kind, values

    def items(self, x):
        """(type, value) of each item of a bare list or of an array of numbers."""
        if isinstance(x, list):
            return [(v[0], repr(v[1])) for v in map(self.value, x)]
        (_, (element, _)), data = self.array(x)
        n = SIZES[element[0]]
        return [(element, data[i:i + n]) for i in range(0, len(data), n)]

    def array(self, x):
        element, size = self.type(x["type"]), self.follow(x["size"])
        need(isinstance(size, list) and all(isinstance(n, int) and n >= 0 for n in size), "sizes")
        need(element[0] in SIZES and isinstance(x["data"], bytes), "elements")
        n = SIZES[element[0]]
        for d in size:
            n *= d
        need(n == len(x["data"]), "an array of %r has %d bytes" % (size, len(x["data"])))
        self.arrays += 1
        return ("Array", (element, len(size))), x["data"]

    def value(self, x):
        """(type, value)"""
        x = self.follow(x)
        simple = {type(None): "Nothing", bool: "Bool", float: "Float64", str: "String"}
        if type(x) in simple:
            return (simple[type(x)], ()), x
        if isinstance(x, int):  # Int64 is a class of its own in python3-bson
            return ("Int64" if isinstance(x, bson.int64.Int64) else "Int32", ()), int(x)
        if isinstance(x, bytes):
            return ("Array", (("UInt8", ()), 1)), x
        if isinstance(x, list):
            return ("Array", (("Any", ()), 1)), [self.value(v) for v in x]
        if "tag" not in x:
            return ("Dict", ()), {k: self.value(v) for k, v in x.items()}
        if x["tag"] == "struct":
            return self.struct(x)
        if x["tag"] == "array":
            return self.array(x)
        if x["tag"] == "tuple":
            values = [self.value(v) for v in self.follow(x["data"])]
            return ("Tuple", tuple(v[0] for v in values)), values
        need(x["tag"] == "symbol", "tag " + str(x["tag"]))
        return ("Symbol", ()), x["name"]


def load(doc):
    r = Raiser(doc)
    for name, x in doc.items():
        if name != "_backrefs":
            r.value(x)
    return r


def resolved(doc):
    """The document with every reference followed and Main. left out before Base and Core."""
    r = Raiser(doc)

    def go(x):
        x = r.follow(x)
        if isinstance(x, dict):
            if x.get("tag") == "datatype":
                return {"datatype": r.type_name(x["name"]), "params": go(x["params"])}
            return {k: go(v) for k, v in x.items() if k != "_backrefs"}
        return [go(v) for v in x] if isinstance(x, list) else x
    return go(doc)


def damages(doc):
    """Copies of the document, each with one thing changed that BSON.load would reject."""
    paths = []

    def walk(x, path):
        for k, v in (x.items() if isinstance(x, dict) else enumerate(x)):
            if isinstance(v, (dict, list)):
                paths.append(path + [k])
                walk(v, path + [k])
    walk({k: v for k, v in doc.items() if k != "_backrefs"}, [])
    for path in paths:
        def at(d):
            for k in path:
                d = d[k]
            return d
        x = at(doc)
        changes = []
        if isinstance(x, dict) and x.get("tag") == "struct" and isinstance(x["data"], list):
            changes.append(lambda d: d["data"].append(1.5))
            if x["data"]:
                changes.append(lambda d: d["data"].pop())
        if isinstance(x, dict) and x.get("tag") == "datatype":
            changes.append(lambda d: d["name"].append("Missing2"))
            if isinstance(x["params"], list) and x["params"]:
                changes.append(lambda d: d["params"].pop())
        if isinstance(x, dict) and x.get("tag") == "array":
            changes.append(lambda d: d.update(data=d["data"] + b"\0"))
        if isinstance(x, dict) and x.get("tag") == "backref":
            changes.append(lambda d: d.update(ref=0))
        for change in changes:
            copied = copy.deepcopy(doc)
            change(at(copied))
            yield path, copied


def selftest(path):
    n = 0
    doc = read(path)
    load(doc)
    for where, damaged in damages(doc):
        try:
            load(damaged)
        except Refused:
            n += 1
        else:
            raise Refused("a change at %s was not noticed" % "/".join(map(str, where)))
    return n


def main():
    what, paths = sys.argv[1], [p for p in sys.argv[2:] if p]
    try:
        if what == "load":
            r = load(read(paths[0]))
            print("%d structs, %d arrays" % (r.structs, r.arrays))
        elif what == "same":
            a, b = [resolved(read(p)) for p in paths]
            need(a == b, "the files differ")
            print("the same")
        else:
            print("%d changes noticed" % selftest(paths[0]))
    except Refused as e:
        print("%s: %s" % (" ".join(paths), e))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
