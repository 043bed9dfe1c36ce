"""formats.py: small writers and readers of file formats, with which the tests check the files of the
command line. They follow the descriptions of the formats and use only the standard library."""
import gzip
import io
import json
import struct
import zipfile

CODES = {"f": ("<f4", "F32", "Float32"), "d": ("<f8", "F64", "Float64"), "q": ("<i8", "I64", "Int64"),
         "B": ("|u1", "U8", "UInt8"), "e": ("<f2", "F16", "Float16")}


def packed(code, values):
    return struct.pack(f"<{len(values)}{code}", *values)


def product(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def float32(x):
    """The nearest number of 32 bits."""
    return struct.unpack("<f", packed("f", [x]))[0]


# ---- packs of kernels --------------------------------------------------------------------------------

def hash64(data, seed):
    ones = (1 << 64) - 1
    h = 0xcbf29ce484222325 ^ seed
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 & ones
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9 & ones
    h = (h ^ h >> 27) * 0x94d049bb133111eb & ones
    return h ^ h >> 31


def kernel_pack(version, kernels):
    """kernels: (backend, target, compiler, options, source, code) each. The format is in kernel_pack.h."""
    items = []
    for backend, target, compiler, options, source, code in kernels:
        key = [0, 1]
        for text in (backend, options, source):
            key = [hash64(text.encode() + b"\0", k) for k in key]
        items.append((key, [backend, target, compiler], code))
    items.sort()
    index, texts, codes = b"", b"", b""
    first = 64 + 48 * len(items)
    length = sum(len(t) + 1 for _, names, _ in items for t in names)
    length = (first + length + 16 & ~15) - first if items else 0
    for key, names, code in items:
        at = []
        for text in names:
            at.append(first + len(texts))
            texts += text.encode() + b"\0"
        index += struct.pack("<4Q4I", *key, first + length + len(codes), len(code), *at, 0)
        codes += code.ljust(len(code) + 16 & ~15, b"\0")
    body = index + texts.ljust(length, b"\0") + codes
    head = b"cfluxkrn" + struct.pack("<IIQQ24s", 1, len(items), 64 + len(body), length, version.encode())
    return head + struct.pack("<Q", hash64(body, hash64(head, 0))) + body


# ---- NumPy -------------------------------------------------------------------------------------------

def npy(shape, values, code="f", fortran=False):
    text = repr({"descr": CODES[code][0], "fortran_order": fortran, "shape": tuple(shape)}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + packed(code, values)


def read_npy(data):
    assert data[:8] == b"\x93NUMPY\x01\x00"
    (n,) = struct.unpack("<H", data[8:10])
    head = eval(data[10:10 + n])  # pylint: disable=eval-used
    code = next(c for c, names in CODES.items() if names[0] == head["descr"])
    assert not head["fortran_order"]
    return head["shape"], list(struct.unpack(f"<{product(head['shape'])}{code}", data[10 + n:]))


def zip_of(members, compression=zipfile.ZIP_DEFLATED):
    """members: name: bytes"""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as z:
        for name, data in members.items():
            z.writestr(name, data)
    return out.getvalue()


def npz(arrays, compression=zipfile.ZIP_DEFLATED):
    """arrays: name: (shape, values)"""
    return zip_of({name + ".npy": npy(*array) for name, array in arrays.items()}, compression)


def read_npz(data):
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return {name[:-4]: read_npy(z.read(name)) for name in z.namelist()}


# ---- safetensors -------------------------------------------------------------------------------------

def safetensors(arrays, metadata=None):
    head, body = {"__metadata__": metadata} if metadata else {}, b""
    for name, (shape, values) in arrays.items():
        data = packed("f", values)
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def read_safetensors(data):
    """The texts of the header, and the arrays."""
    (n,) = struct.unpack("<Q", data[:8])
    head, body = json.loads(data[8:8 + n]), data[8 + n:]
    texts, arrays = head.pop("__metadata__", {}), {}
    for name, entry in head.items():
        code = next(c for c, names in CODES.items() if names[1] == entry["dtype"])
        begin, end = entry["data_offsets"]
        arrays[name] = (tuple(entry["shape"]),
                        list(struct.unpack(f"<{product(entry['shape'])}{code}", body[begin:end])))
    return texts, arrays


# ---- IDX ---------------------------------------------------------------------------------------------

def idx(shape, values, compress=False):
    data = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(values)
    return gzip.compress(data) if compress else data


# ---- BSON, as BSON.jl lowers values of Julia ------------------------------------------------------------

def bson(document):
    body = b"".join(element(k, v) for k, v in document.items())
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def element(key, value):
    name = key.encode() + b"\0"
    if value is None:
        return b"\x0a" + name
    if isinstance(value, bool):
        return b"\x08" + name + bytes([value])
    if isinstance(value, int):
        return b"\x12" + name + struct.pack("<q", value)
    if isinstance(value, float):
        return b"\x01" + name + struct.pack("<d", value)
    if isinstance(value, str):
        text = value.encode() + b"\0"
        return b"\x02" + name + struct.pack("<i", len(text)) + text
    if isinstance(value, bytes):
        return b"\x05" + name + struct.pack("<i", len(value)) + b"\0" + value
    if isinstance(value, list):
        return b"\x04" + name + bson({str(i): v for i, v in enumerate(value)})
    return b"\x03" + name + bson(value)


def julia_type(*path):
    return {"tag": "datatype", "params": [], "name": list(path)}


def julia_array(size, values, code="f"):
    return {"tag": "array", "type": julia_type("Core", CODES[code][2]), "size": list(size),
            "data": packed(code, values)}


def julia_struct(path, *fields):
    return {"tag": "struct", "type": julia_type(*path), "data": list(fields)}


def julia_tuple(*items):
    return {"tag": "tuple", "data": list(items)}


def julia_function(name, module="NNlib"):
    return julia_struct([module, "#" + name])


def julia_float32(x):
    return {"tag": "struct", "type": julia_type("Core", "Float32"), "data": packed("f", [x])}


def dense(out, inputs, weight, bias, act="identity"):
    """Flux.Dense; the weight's values in Julia's order."""
    return julia_struct(["Flux", "Dense"], julia_array([out, inputs], weight), julia_array([out], bias),
                        julia_function(act) if act != "identity" else julia_function(act, "Base"))


def chain(*layers):
    return julia_struct(["Flux", "Chain"], julia_tuple(*layers))


def batchnorm(n, epsilon):
    ones = [1.0] * n
    return julia_struct(["Flux", "BatchNorm"], julia_function("identity", "Base"), julia_array([n], ones),
                        julia_array([n], ones), julia_array([n], ones), julia_array([n], ones),
                        julia_float32(epsilon), julia_float32(0.1), True, True, None, n)
