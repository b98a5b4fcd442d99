"""Compares single operations on the CPU with PyTorch in one session.

    python operations.py OPERATIONS_BINARY TABLE.md

Runs the example `operations` of the crate `tensor`, then the same operations in PyTorch with the same number of threads, and writes
milliseconds as a Markdown table, the largest ratio first. Arrays have a few megabytes and fit into caches; `peers-cpu.md` has larger ones.
"""

import datetime
import os
import pathlib
import platform
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(os.cpu_count())


def given(*shape):
    return torch.rand(shape) * 2 - 1


def below(most, *shape):
    return (given(*shape).abs() * most).long()


def contiguous(x):
    return x.contiguous()


big, big2, line, row, column = given(4096, 1024), given(4096, 1024), given(1 << 22), given(1024), given(4096, 1)
half, tall, wide, threes, cube = given(512, 1024), given(65536, 64), given(64, 65536), given(1 << 20, 3), given(64, 256, 256)
square, square512, batch, points = given(1024, 1024), given(512, 512), given(256, 64, 64), given(1024, 32)
image, filters, by_channel, one_by_one = given(8, 64, 56, 56), given(64, 64, 3, 3), given(64, 1, 3, 3), given(128, 64, 1, 1)
sound, filters1, volume, filters3 = given(16, 64, 1024), given(64, 64, 5), given(4, 16, 32, 32, 32), given(16, 16, 3, 3, 3)
complex_, queries, heads, table = torch.view_as_complex(given(1024, 1024, 2)), given(1 << 20), given(8, 8, 512, 64), given(50000, 256)
logits, many, spectra = given(4096, 1000), given(1024, 16, 16), torch.view_as_complex(given(4096, 513, 2))
rows_at, along, tokens, classes = below(4095, 8192), below(1023, 4096, 1024), below(49999, 64, 256), below(999, 4096)
positive, integers, divisors = big.abs() + 0.1, (big * 1e6).int(), (big2 * 1000).int() * 2 + 1
octets, longs, doubles, f16s, bf16s = (big.abs() * 100).to(torch.uint8), integers.long(), big.double(), big.half(), big.bfloat16()
mask, ordered, definite, square16 = big > big2, line.sort()[0], square512 @ square512.T / 512 + torch.eye(512), square.half()

# Rows by the names that the example prints.
ROWS = {
    "exp": ([big], torch.exp),
    "log": ([positive], torch.log),
    "tanh": ([big], torch.tanh),
    "erf": ([big], torch.erf),
    "sin": ([big], torch.sin),
    "tan": ([big], torch.tan),
    "atan": ([big], torch.atan),
    "asinh": ([big], torch.asinh),
    "erfinv": ([big], torch.erfinv),
    "lgamma": ([positive], torch.lgamma),
    "sigmoid": ([big], torch.sigmoid),
    "gelu": ([big], F.gelu),
    "silu": ([big], F.silu),
    "mish": ([big], F.mish),
    "softplus": ([big], F.softplus),
    "elu": ([big], F.elu),
    "relu": ([big], F.relu),
    "round": ([big], torch.round),
    "sqrt": ([positive], torch.sqrt),
    "add": ([big, big2], torch.add),
    "div": ([big, big2], torch.div),
    "pow": ([positive, big2], torch.pow),
    "pow 3": ([positive], lambda x: x**3.0),
    "fmod": ([big, positive], torch.fmod),
    "maximum": ([big, big2], torch.maximum),
    "atan2": ([big, big2], torch.atan2),
    "hypot": ([big, big2], torch.hypot),
    "logaddexp": ([big, big2], torch.logaddexp),
    "add row": ([big, row], torch.add),
    "mul col": ([big, column], torch.mul),
    "lt": ([big, big2], torch.lt),
    "where": ([mask, big, big2], torch.where),
    "masked_fill": ([big, mask], lambda x, m: x.masked_fill(m, -1)),
    "clamp": ([big], lambda x: x.clamp(-.5, .5)),
    "f32 to f16": ([big], lambda x: x.half()),
    "f32 to bf16": ([big], lambda x: x.bfloat16()),
    "f32 to i32": ([big], lambda x: x.int()),
    "f32 to u8": ([positive], lambda x: x.to(torch.uint8)),
    "i64 to f32": ([longs], lambda x: x.float()),
    "u8 to f32": ([octets], lambda x: x.float()),
    "i32 div": ([integers, divisors], lambda x, y: torch.div(x, y, rounding_mode="trunc")),
    "i64 mul": ([longs], lambda x: x*x),
    "u8 add": ([octets], lambda x: x+x),
    "f16 add": ([f16s], lambda x: x+x),
    "bf16 gelu": ([bf16s], F.gelu),
    "f64 exp": ([doubles], torch.exp),
    "f64 tanh": ([doubles], torch.tanh),
    "not": ([mask], torch.logical_not),
    "sum all": ([big], torch.sum),
    "sum 0": ([big], lambda x: x.sum(0)),
    "sum 1": ([big], lambda x: x.sum(1)),
    "sum middle": ([cube], lambda x: x.sum(1)),
    "sum wide": ([wide], lambda x: x.sum(1)),
    "sum tall 1": ([tall], lambda x: x.sum(1)),
    "sum tall 0": ([tall], lambda x: x.sum(0)),
    "sum 3": ([threes], lambda x: x.sum(1)),
    "sum i32 1": ([integers], lambda x: x.sum(1, dtype=torch.int32)),
    "sum bf16 1": ([bf16s], lambda x: x.sum(1)),
    "sum bf16 0": ([bf16s], lambda x: x.sum(0)),
    "sum f64": ([doubles], torch.sum),
    "var 0": ([big], lambda x: x.var(0)),
    "var 1": ([big], lambda x: x.var(1)),
    "std all": ([big], torch.std),
    "norm 1": ([big], lambda x: x.norm(dim=1)),
    "max 0": ([big], lambda x: x.amax(0)),
    "max 1": ([big], lambda x: x.amax(1)),
    "max all": ([big], lambda x: x.amax()),
    "argmax 0": ([big], lambda x: x.argmax(0)),
    "argmax 1": ([big], lambda x: x.argmax(1)),
    "argmax line": ([line], lambda x: x.argmax(0)),
    "prod 1": ([big], lambda x: x.prod(1)),
    "logsumexp 0": ([big], lambda x: x.logsumexp(0)),
    "logsumexp 1": ([big], lambda x: x.logsumexp(1)),
    "any 1": ([mask], lambda x: x.any(1)),
    "count_nonzero": ([big], torch.count_nonzero),
    "median 1": ([half], lambda x: x.median(1)[0]),
    "quantile 1": ([half], lambda x: x.quantile(.3, 1)),
    "cumsum 1": ([big], lambda x: x.cumsum(1)),
    "cumsum 0": ([big], lambda x: x.cumsum(0)),
    "cumsum line": ([line], lambda x: x.cumsum(0)),
    "cumprod 1": ([big], lambda x: x.cumprod(1)),
    "cummax 1": ([big], lambda x: x.cummax(1)[0]),
    "logcumsumexp 1": ([big], lambda x: x.logcumsumexp(1)),
    "sort 1": ([big], lambda x: x.sort(dim=1, stable=True)[0]),
    "sort 0": ([big], lambda x: x.sort(dim=0, stable=True)[0]),
    "sort line": ([line], lambda x: x.sort(stable=True)[0]),
    "sort i32": ([integers], lambda x: x.sort(dim=1, stable=True)[0]),
    "argsort 1": ([big], lambda x: x.argsort(dim=1, stable=True)),
    "topk 10": ([big], lambda x: x.topk(10, 1)[0]),
    "searchsorted": ([ordered, queries], lambda s, v: torch.searchsorted(s, v, right=True)),
    "transpose": ([big], lambda x: contiguous(x.T)),
    "permute": ([cube], lambda x: contiguous(x.permute(2, 0, 1))),
    "permute 201": ([cube], lambda x: contiguous(x.permute(1, 2, 0))),
    "nchw to nhwc": ([image], lambda x: contiguous(x.permute(0, 2, 3, 1))),
    "flip 1": ([big], lambda x: x.flip(1)),
    "roll 1": ([big], lambda x: x.roll(100, 1)),
    "pad": ([image], lambda x: F.pad(x, (1, 1, 1, 1))),
    "concat 0": ([big, big2], lambda x, y: torch.cat([x, y], 0)),
    "concat 1": ([big, big2], lambda x, y: torch.cat([x, y], 1)),
    "stack 2": ([big, big2], lambda x, y: torch.stack([x, y], 2)),
    "tile": ([half], lambda x: x.repeat(1, 8)),
    "repeat_interleave": ([half], lambda x: x.repeat_interleave(8, 1)),
    "step": ([big], lambda x: contiguous(x[:, ::3])),
    "unfold": ([line], lambda x: contiguous(x.unfold(0, 16, 4))),
    "tril": ([square], torch.tril),
    "diagonal": ([square], lambda x: contiguous(x.diagonal())),
    "broadcast_to": ([row], lambda x: contiguous(x.expand(4096, 1024))),
    "index_select 0": ([big, rows_at], lambda x, i: x[i]),
    "index_select 1": ([big, rows_at], lambda x, i: x[:, i%1024]),
    "take_along_dim 1": ([big, along], lambda x, i: x.gather(1, i)),
    "scatter add": ([big, along, big2], lambda x, i, v: x.scatter_add(1, i, v)),
    "scatter replace": ([big, along, big2], lambda x, i, v: x.scatter(1, i, v)),
    "index_add rows": ([big, rows_at], lambda x, i: x.index_add(0, i, x[i])),
    "embedding": ([table, tokens], lambda t, i: F.embedding(i, t)),
    "one_hot": ([classes], lambda c: F.one_hot(c, 1000).float()),
    "bincount": ([rows_at], lambda x: torch.bincount(x, minlength=4096)),
    "softmax 1": ([big], lambda x: x.softmax(1)),
    "softmax 0": ([big], lambda x: x.softmax(0)),
    "softmax middle": ([cube], lambda x: x.softmax(1)),
    "softmax bf16": ([bf16s], lambda x: x.softmax(1)),
    "log_softmax 1": ([big], lambda x: x.log_softmax(1)),
    "layer_norm": ([big], lambda x: F.layer_norm(x, (1024, ))),
    "rms_norm": ([big], lambda x: F.rms_norm(x, (1024, ), eps=1e-5)),
    "group_norm": ([image], lambda x: F.group_norm(x, 8)),
    "max_pool 2": ([image], lambda x: F.max_pool2d(x, 2)),
    "max_pool 3s2": ([image], lambda x: F.max_pool2d(x, 3, 2, 1)),
    "avg_pool 2": ([image], lambda x: F.avg_pool2d(x, 2)),
    "avg_pool 3s1": ([image], lambda x: F.avg_pool2d(x, 3, 1, 1)),
    "adaptive avg": ([image], lambda x: F.adaptive_avg_pool2d(x, 7)),
    "conv 3": ([image, filters], lambda x, w: F.conv2d(x, w, padding=1)),
    "conv 3 s2": ([image, filters], lambda x, w: F.conv2d(x, w, padding=1, stride=2)),
    "conv 1": ([image, one_by_one], F.conv2d),
    "conv depth": ([image, by_channel], lambda x, w: F.conv2d(x, w, padding=1, groups=64)),
    "conv dilated": ([image, filters], lambda x, w: F.conv2d(x, w, padding=2, dilation=2)),
    "conv transposed": ([image, filters], lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)),
    "conv 1d": ([sound, filters1], lambda x, w: F.conv1d(x, w, padding=2)),
    "conv 3d": ([volume, filters3], lambda x, w: F.conv3d(x, w, padding=1)),
    "nearest": ([image], lambda x: F.interpolate(x, (112, 112))),
    "linear": ([image], lambda x: F.interpolate(x, (112, 112), mode="bilinear")),
    "linear down": ([image], lambda x: F.interpolate(x, (28, 28), mode="bilinear")),
    "cross_entropy": ([logits, classes], F.cross_entropy),
    "attention": ([heads], lambda x: F.scaled_dot_product_attention(x, x, x)),
    "attention causal": ([heads], lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)),
    "uniform": ([], lambda: torch.rand(4096, 1024)),
    "normal": ([], lambda: torch.randn(4096, 1024)),
    "matvec": ([big, row], torch.mv),
    "vecmat": ([big, column], lambda x, y: y.T@x),
    "matmul bt": ([square, square], lambda x, y: x@y.T),
    "matmul at": ([square, square], lambda x, y: x.T@y),
    "matmul tall": ([tall], lambda x: x.T@x),
    "matmul batched": ([batch], lambda x: x@x),
    "matmul f16": ([square16], lambda x: x@x),
    "matmul f64": ([doubles], lambda x: x[:1024]@x[:1024]),
    "outer": ([row], lambda x: torch.outer(x, x)),
    "einsum bij,bkj->bik": ([batch], lambda x: torch.einsum("bij,bkj->bik", x, x)),
    "cdist": ([points], lambda x: torch.cdist(x, x)),
    "cdist 1": ([points], lambda x: torch.cdist(x, x, 1)),
    "fft rows": ([complex_], torch.fft.fft),
    "fft2": ([complex_], torch.fft.fft2),
    "rfft rows": ([big], torch.fft.rfft),
    "rfft 1000": ([logits], torch.fft.rfft),
    "irfft rows": ([spectra], torch.fft.irfft),
    "fft long": ([complex_], lambda x: torch.fft.fft(x.reshape(-1))),
    "fft prime": ([complex_], lambda x: torch.fft.fft(x.reshape(-1)[:1000003])),
    "cholesky": ([definite], torch.linalg.cholesky),
    "inv": ([definite], torch.linalg.inv),
    "solve": ([definite, square512], torch.linalg.solve),
    "det": ([definite], lambda x: torch.linalg.slogdet(x)[1]),
    "qr": ([square512], lambda x: torch.linalg.qr(x)[0]),
    "eigh": ([definite], lambda x: torch.linalg.eigh(x)[0]),
    "inv many": ([many], torch.linalg.inv),
    "qr many": ([many], lambda x: torch.linalg.qr(x)[0]),
    "eye": ([], lambda: torch.eye(2048)),
    "arange": ([], lambda: torch.arange(1<<22, dtype=torch.int32)),
}


def median(run):
    run()
    run()
    start, times = time.perf_counter(), []
    while len(times) < 3 or (len(times) < 25 and time.perf_counter() - start < 0.1):
        before = time.perf_counter()
        run()
        times.append((time.perf_counter() - before) * 1e3)
    return sorted(times)[len(times) // 2]


def theirs(name):
    alone = name.removesuffix(" with gradients")
    inputs, op = ROWS[alone]
    if name == alone:
        with torch.no_grad():
            return median(lambda: op(*inputs))
    inputs = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    grad_output, wanted = torch.ones_like(op(*inputs).detach()), [x for x in inputs if x.requires_grad]
    # A gradient that is a view of the cotangent is copied, as in Panoply.
    return median(lambda: [grad.contiguous() for grad in torch.autograd.grad(op(*inputs), wanted, grad_output)])


def main():
    binary, out = sys.argv[1:]
    lines = subprocess.run([binary], check=True, capture_output=True, text=True).stdout.splitlines()
    ours = {name: float(time) for name, time in (line.split("\t") for line in lines)}
    rows = sorted(((name, ours[name], theirs(name)) for name in ours), key=lambda row: row[2] / row[1])
    lost = sum(ours > theirs for _, ours, theirs in rows)
    head = [
        "# Operations on the CPU beside PyTorch",
        "",
        f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} threads, PyTorch {torch.__version__}: medians in milliseconds of arrays of some "
        "megabytes, which caches",
        "hold; with gradients: forwards and backwards. The shapes are in `crates/xtask/src/operations.py`. Made by `cargo xtask peers`.",
        "",
        f"{lost} of {len(rows)} rows take us longer; those come first.",
        "",
        "| operation | ours | PyTorch | ours ÷ PyTorch |",
        "|---|---|---|---|",
    ]
    body = [f"| {name} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.2f} |" for name, ours, theirs in rows]
    pathlib.Path(out).write_text("\n".join(head + body) + "\n")
    print(f"{out}: {lost} of {len(rows)} rows take us longer")


if __name__ == "__main__":
    main()
