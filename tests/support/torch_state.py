#!/usr/bin/env python3
"""torch_state.py: PyTorch's side of the tests of its state dicts.

    torch_state.py record FOLDER   writes FOLDER/torch-NAME.safetensors for every model below, after a
                                   little training: "state.…" is state_dict(), "x" an input, "y" the output of the model
    torch_state.py check FILE NAME the file, written by cflux, has a state for that model: loaded with
                                   strict=True, it must compute "y" from "x"; prints the largest difference
    torch_state.py                 succeeds where PyTorch can be imported

Files are written and read here by the description of safetensors, with the standard library.
"""
import collections
import json
import os
import struct
import sys

import numpy as np
import torch
from torch import nn

DTYPES = {"F32": np.float32, "I64": np.int64}


def networks():
    """Sizes differ along every axis, so that no wrong order fits."""
    return {
        "convolutions": (nn.Sequential(
            nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=(1, 0)), nn.BatchNorm2d(4), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(4, 6, (2, 3), groups=2, bias=False, dilation=(1, 1)), nn.Flatten(),
            nn.Linear(24, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3, bias=False)), (3, 2, 6, 16)),
        "names": (nn.Sequential(collections.OrderedDict([
            ("features", nn.Sequential(nn.Conv1d(3, 4, 3, dilation=2), nn.BatchNorm1d(4, affine=False), nn.GELU())),
            ("classifier", nn.Sequential(nn.Flatten(), nn.Linear(20, 4)))])), (2, 3, 9)),
        "volumes": (nn.Sequential(nn.Conv3d(1, 2, (2, 3, 1)), nn.BatchNorm3d(2, track_running_stats=False),
                                  nn.Flatten(), nn.Linear(24, 2)), (2, 1, 3, 4, 3)),
    }


def write(path, arrays):
    header, at, body = {}, 0, b""
    for name, x in arrays.items():
        x = np.asarray(x, order="C")
        dtype = next(k for k, v in DTYPES.items() if v == x.dtype.type)
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
        body += x.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def read(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header, body = json.loads(f.read(n)), f.read()
    header.pop("__metadata__", None)
    return {name: np.frombuffer(body[e["data_offsets"][0]:e["data_offsets"][1]], DTYPES[e["dtype"]]).reshape(e["shape"])
            for name, e in header.items()}


def record(folder):
    for name, (model, shape) in networks().items():
        torch.manual_seed(7)
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):  # so that no array has its initial value
            optimiser.zero_grad()
            model(2 + torch.randn(shape)).square().mean().backward()
            optimiser.step()
        model.eval()
        x = torch.randn(shape)
        arrays = {"state." + key: value.numpy() for key, value in model.state_dict().items()}
        with torch.no_grad():
            arrays.update(x=x.numpy(), y=model(x).numpy())
        write(os.path.join(folder, f"torch-{name}.safetensors"), arrays)


def check(path, name):
    model = networks()[name][0]
    arrays = {key: torch.tensor(value) for key, value in read(path).items()}
    x, y = arrays.pop("x"), arrays.pop("y")
    model.load_state_dict({key[len("state."):]: value for key, value in arrays.items()}, strict=True)
    model.eval()
    with torch.no_grad():
        difference = (model(x) - y).abs().max().item()
    print(f"{len(arrays)} arrays, difference {difference:.3g}")
    assert difference < 1e-5 and y.abs().max().item() > 0.01


if __name__ == "__main__" and len(sys.argv) > 1:
    {"record": record, "check": check}[sys.argv[1]](*sys.argv[2:])
