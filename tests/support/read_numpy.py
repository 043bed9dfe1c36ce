#!/usr/bin/env python3
"""Prints what NumPy finds in an .npy or .npz file: element type, shape and elements."""
import sys

import numpy as np


def show(name, x):
    print(*name, x.dtype, x.shape, x.ravel().tolist())


sys.stdout.reconfigure(encoding="utf-8")
loaded = np.load(sys.argv[1], allow_pickle=False)
if isinstance(loaded, np.ndarray):
    show([], loaded)
else:
    assert loaded.zip.testzip() is None
    for key in loaded.files:
        show([key], loaded[key])
