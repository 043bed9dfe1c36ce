"""The cases of the GPU table: what each must move or compute at least, and what it must reach.

bench/bench_gpu.c and bench/bench_gpu_networks.c measure them with cflux, bench/peer_torch_gpu.py with PyTorch, and
scripts/gpu-check joins both. A rate is `work` over the median time.
"""
GIGA = 1e9
N = 1 << 28
ROWS, COLUMNS = 8192, 4096


class Case:
    """unit: "B" for bytes that must move, "op" for operations, "" where only times are compared."""

    def __init__(self, unit, work, reach):
        self.unit, self.work, self.reach = unit, work, reach


def arrays(n, size, times):
    return n * size * times


def build():
    table = {
        "gpu/matmul-8192-bf16": Case("op", 2 * 8192**3, "≥ 0.97 of PyTorch, ≥ 0.95 of cuBLASLt; without cuBLASLt ≥ 0.5 of its rate"),
        "gpu/matmul-4096-tf32": Case("op", 2 * 4096**3, "≥ 0.97 of PyTorch, ≥ 0.95 of cuBLASLt"),
        "gpu/matmul-4096-f32": Case("op", 2 * 4096**3, "≥ 0.97 of PyTorch, ≥ 0.95 of cuBLASLt; without cuBLASLt ≥ 0.6 of its rate"),
        "gpu/copy": Case("B", 8 * N, "the reference for the others: the faster of both programs"),
        "gpu/sum-all": Case("B", 4 * N, "≥ 0.85 of copy bandwidth"),
        "gpu/sum-first": Case("B", 4 * N, "≥ 0.85 of copy bandwidth"),
        "gpu/sum-last": Case("B", 4 * N, "≥ 0.85 of copy bandwidth"),
        "gpu/transpose": Case("B", 8 * N, "≥ 0.80 of copy bandwidth"),
        "gpu/gather": Case("B", 8 * 16384 * 1024, "≥ 0.70 of copy bandwidth"),
        "gpu/scatter-add": Case("B", 8 * 16384 * 1024, "≥ 0.40 of copy bandwidth"),
        # Read: gradient, parameter, two moments; written: parameter, two moments.
        "gpu/adam": Case("B", 7 * 4 * 100_000_000, "≥ 0.90 of copy bandwidth, one launch"),
        "gpu/train-mlp-1-256-1-b16": Case("", 0, "≤ 35 µs, ≥ 5× eager, ≥ 1.0× a training step in a CUDA graph with fused Adam"),
        "gpu/train-mlp-784-256-10-b64": Case("", 0, "≤ 45 µs, ≥ 5× eager, ≥ 1.0× a training step in a CUDA graph with fused Adam"),
        "gpu/train-lenet-b128": Case("", 0, "≤ 110 µs, ≥ 1.0× the better torch.compile"),
        "gpu/train-gpt2-b8-bf16": Case("", 0, "≥ 0.75× torch.compile, ≥ 1.0× llm.c's tokens a second"),
        "gpu/train-block-b16-bf16": Case("", 0, "≥ 0.75× torch.compile, ≥ 0.9× with cuDNN's attention"),
        "gpu/first-step-cold": Case("", 0, "≤ 4 s"),
        "gpu/first-step-warm": Case("", 0, "≤ 1.2 s"),
    }
    for name, size in (("f32", 4), ("bf16", 2)):
        table[f"gpu/unary-{name}"] = Case("B", arrays(N, size, 2), "≥ 0.90 of copy bandwidth")
        table[f"gpu/chain-{name}"] = Case("B", arrays(N, size, 2), "≥ 0.90 of copy bandwidth, ≥ 5× eager")
        least = "≥ 0.80 of copy bandwidth for the fewest possible bytes, ≥ torch.compile"
        # Read and written once; a cross-entropy writes one number. With the gradient: x and gy are read, and y
        # and gx written; the gradient of a cross-entropy needs neither gy nor y.
        for kind, forward, both in (("softmax", 2, 4), ("layernorm", 2, 4), ("crossentropy", 1, 2)):
            table[f"gpu/{kind}-{name}"] = Case("B", arrays(ROWS * COLUMNS, size, forward), least)
            table[f"gpu/{kind}-gradient-{name}"] = Case("B", arrays(ROWS * COLUMNS, size, both), least)
        for net in ("vgg-b256", "resnet18-b64"):
            table[f"gpu/train-{net}-{name}"] = Case("", 0, "≥ 0.9× the better torch.compile")
    return table


CASES = build()
