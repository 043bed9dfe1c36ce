#!/usr/bin/env python3
"""Makes images.json: small PNG and JPEG files, and what Pillow 13 reads from them, for test_images.py.

The files are drawn here. Each has its name, its bytes in base64, the size that Pillow finds, and per case (width,
height, channels) the pixels that Pillow's resize with BILINEAR gives. Usage: make_images.py > images.json (needs
Pillow and NumPy)"""
import base64
import io
import json

import numpy
from PIL import Image

WIDTH, HEIGHT = 9, 7
SIZES = [(9, 7), (5, 4), (14, 11), (3, 7)]


def drawing(seed, channels):
    """Smooth colours, so that JPEG keeps them, with some noise."""
    draw = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    base = numpy.stack([128 + 100 * numpy.sin(0.5 * x + 0.4 * c) * numpy.cos(0.6 * y - c) for c in range(channels)], -1)
    return numpy.clip(base + draw.normal(0, 8, base.shape), 0, 255).astype(numpy.uint8)


def files():
    colours, alpha = Image.fromarray(drawing(1, 3)), Image.fromarray(drawing(2, 4))
    grey = Image.fromarray(drawing(3, 1)[:, :, 0])
    yield "colours.png", colours, {}
    yield "alpha.png", alpha, {}
    yield "grey.png", grey, {}
    yield "grey_alpha.png", Image.merge("LA", (grey, Image.fromarray(drawing(4, 1)[:, :, 0]))), {}
    yield "palette.png", colours.quantize(16), {}
    yield "bits.png", grey.convert("1"), {}
    yield "colours.jpg", colours, {"quality": 95}
    yield "progressive.jpeg", colours, {"quality": 80, "progressive": True}
    yield "grey.jpg", grey, {"quality": 90}


def described(name, image, options):
    data = io.BytesIO()
    image.save(data, {"png": "PNG"}.get(name.split(".")[1], "JPEG"), **options)
    data = data.getvalue()
    seen = Image.open(io.BytesIO(data))
    channels = 1 if seen.mode in ("L", "LA", "1") else 3
    cases = []
    for mode in ("L", "RGB"):
        for size in SIZES:
            pixels = seen.convert(mode).resize(size, Image.BILINEAR).tobytes()
            cases.append({"size": [*size, len(mode)], "pixels": pixels.hex()})
    return {"name": name, "bytes": base64.b64encode(data).decode(), "size": [WIDTH, HEIGHT, channels], "cases": cases}


print(json.dumps([described(*f) for f in files()], indent=1))
