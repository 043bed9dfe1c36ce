#!/usr/bin/env python3
"""Writes tests/unit/transformer_blocks.h: results of PyTorch's TransformerEncoderLayer, and gradients of Σ y·cos(0.3 + i)
with respect to the input and to in_proj_weight.
Usage: make_transformer_blocks.py > tests/unit/transformer_blocks.h"""
import torch

torch.set_default_dtype(torch.float64)
SIZE, HEADS, HIDDEN, LEN, BATCH = 4, 2, 6, 3, 2


def wave(phase, factor, *shape):
    n = torch.Size(shape).numel()
    return (factor * torch.sin(phase + 0.7 * torch.arange(n))).reshape(shape)


def results(act, norm_first, causal):
    net = torch.nn.TransformerEncoderLayer(SIZE, HEADS, HIDDEN, dropout=0, activation=act, batch_first=True, norm_first=norm_first)
    for i, (name, p) in enumerate(net.named_parameters()):
        p.data = wave(i, 0.5, *p.shape) + (1 if name in ("norm1.weight", "norm2.weight") else 0)
    x = wave(0.5, 2, BATCH, LEN, SIZE).requires_grad_()
    mask = torch.ones(LEN, LEN).triu(1).bool() if causal else None  # True: no attention
    y = net(x, src_mask=mask)
    (y * torch.cos(0.3 + torch.arange(y.numel())).reshape(y.shape)).sum().backward()
    return [n for n, _ in net.named_parameters()], [("y", y), ("dx", x.grad), ("dw", net.self_attn.in_proj_weight.grad)]


print(f"""/* transformer_blocks.h: results of PyTorch {torch.__version__.split('+')[0]}, made by tests/support/make_transformer_blocks.py. */
#ifndef CFLUX_TEST_TRANSFORMER_BLOCKS_H
#define CFLUX_TEST_TRANSFORMER_BLOCKS_H

#include <stdbool.h>

/* Arrays in the order of PyTorch's memory. */
typedef struct block_case {{
    const char *act;
    bool norm_first, causal;
    double y[24], dx[24], dw[48]; /* dw: of in_proj_weight */
}} block_case;

/* clang-format off */""")
names, _ = results("relu", False, False)
print("static const char *const block_parameters[] = {\n    " + ",\n    ".join(f'"{n}"' for n in names) + "};")
print("static const block_case block_cases[] = {")
for act, norm_first, causal in (("relu", 0, 0), ("relu", 1, 0), ("gelu", 0, 1), ("gelu", 1, 1)):
    _, arrays = results(act, bool(norm_first), causal)
    print(f'    {{.act = "{act}", .norm_first = {norm_first}, .causal = {causal},')
    for name, x in arrays:
        numbers = [f"{v:.15g}" for v in x.flatten().tolist()]
        rows = [", ".join(numbers[i:i + 6]) for i in range(0, len(numbers), 6)]
        print(f"     .{name} = {{" + ",\n         ".join(rows) + "},")
    print("    },")
print("""};
/* clang-format on */

#endif""")
