#!/usr/bin/env python3
"""Writes tests/unit/packed_sequences.h: results of PyTorch's packed sequences of different lengths, and gradients of
Σ y·cos(0.3 + i) with respect to the input and to the last weight_hh.
Usage: make_packed_sequences.py > tests/unit/packed_sequences.h"""
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.set_default_dtype(torch.float64)
IN, OUT, LEN, BATCH, LENGTHS = 3, 2, 4, 3, [2, 4, 3]


def wave(phase, factor, *shape):
    n = torch.Size(shape).numel()
    return (factor * torch.sin(phase + 0.7 * torch.arange(n))).reshape(shape)


def results(kind, both):
    net = getattr(torch.nn, kind)(IN, OUT, batch_first=True, bidirectional=both)
    for i, (name, p) in enumerate(net.named_parameters()):
        p.data = wave(i, 0.5, *p.shape)
        if kind == "GRU" and "bias_hh" in name:
            p.data[2 * OUT:] = 0  # cflux's GRU has no bias there
    x = wave(0.5, 2, BATCH, LEN, IN).requires_grad_()
    h, c = (wave(phase, 0.5, 1 + both, BATCH, OUT) for phase in (1.5, 2.5))
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    y, last = net(packed, (h, c) if kind == "LSTM" else h)
    y, _ = pad_packed_sequence(y, batch_first=True, total_length=LEN)
    (y * torch.cos(0.3 + torch.arange(y.numel())).reshape(y.shape)).sum().backward()
    weight = [p for name, p in net.named_parameters() if name.startswith("weight_hh")][-1]
    lasts = zip(("h", "c"), last) if kind == "LSTM" else [("h", last)]
    return [("y", y), *lasts, ("dx", x.grad), ("dw", weight.grad)]


print(f"""/* packed_sequences.h: results of PyTorch {torch.__version__.split('+')[0]}, made by tests/support/make_packed_sequences.py. */
#ifndef CFLUX_TEST_PACKED_SEQUENCES_H
#define CFLUX_TEST_PACKED_SEQUENCES_H

#include <stdbool.h>

/* Arrays in the order of PyTorch's memory. */
typedef struct packed_case {{
    const char *text;
    bool both, lstm;                         /* both: bidirectional */
    double y[48], h[12], c[12], dx[36], dw[16]; /* dw: of the last weight_hh */
}} packed_case;

/* clang-format off */
static const packed_case packed_cases[] = {{""")
for kind in ("RNN", "LSTM", "GRU"):
    for both in (False, True):
        print(f'    {{.text = "{kind}", .both = {int(both)}, .lstm = {int(kind == "LSTM")},')
        for name, x in results(kind, both):
            numbers = [f"{v:.15g}" for v in x.flatten().tolist()]
            rows = [", ".join(numbers[i:i + 6]) for i in range(0, len(numbers), 6)]
            print(f"     .{name} = {{" + ",\n         ".join(rows) + "},")
        print("    },")
print("""};
/* clang-format on */

#endif""")
