"""Shapes of cases, for the peers and for limits.py: those of bench_convolutions.c."""

CONVOLUTIONS = {  # name: axes, size, kernel, channels of x and of y, batch, then the options of bench_convolutions.c
    "3x3-64x64-56-b4": (2, 56, 3, 64, 64, 4, {"pad": 1}),
    "3x3-64x64-56-b1": (2, 56, 3, 64, 64, 1, {"pad": 1}),
    "1x1-256x64-56-b4": (2, 56, 1, 256, 64, 4, {}),
    "1x1-stride-2-128x256-28-b4": (2, 28, 1, 128, 256, 4, {"stride": 2}),
    "depthwise-3x3-64-56-b4": (2, 56, 3, 64, 64, 4, {"pad": 1, "groups": 64}),
    "depthwise-5x5-stride-2-64-28-b4": (2, 28, 5, 64, 64, 4, {"stride": 2, "pad": 2, "groups": 64}),
    "32-groups-3x3-512x512-28-b4": (2, 28, 3, 512, 512, 4, {"pad": 1, "groups": 32}),
    "3x3-stride-2-64x64-56-b4": (2, 56, 3, 64, 64, 4, {"stride": 2, "pad": 1}),
    "3x3-dilation-2-64x64-56-b4": (2, 56, 3, 64, 64, 4, {"pad": 2, "dilation": 2}),
    "transposed-4x4-stride-2-64x64-28-b4": (2, 28, 4, 64, 64, 4, {"stride": 2, "pad": 1, "transposed": True}),
    "1d-5-64x64-1024-b16": (1, 1024, 5, 64, 64, 16, {"pad": 2}),
    "3d-3x3x3-32x32-16-b4": (3, 16, 3, 32, 32, 4, {"pad": 1}),
}
