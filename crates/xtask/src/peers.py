"""Compares the rows of `panoply bench tensors` and `panoply bench training` with PyTorch, Burn and candle.

    python peers.py PANOPLY_BINARY TABLE.md [--rust-peers BINARY] [--device cpu|cuda:N] [--seconds S] [--threads N]

Runs Panoply, PyTorch and, on the CPU, the program in `peers/` (Burn and candle) one after the other, and writes medians of warm runs as
Markdown tables: ratios of time and, on the CPU, of memory; smaller is better. A separate table lists the host time of training steps.
Rows that only some frameworks have are included. A GPU needs nothing but the binary and PyTorch.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

M = 1 << 20

# Where PyTorch computes: "cpu" or "cuda:N".
DEVICE = "cpu"


# Maximum ratio to PyTorch that we aim for.
GOALS = {
    **{f"matmul {n}": 0.5 for n in (256, 512, 1024, 2048, 4096)},
    **{f"matmul bf16 {n}": 1.0 for n in (1024, 2048)},
    "x + a, 16 M": 0.35,
    "exp(a x + 1) tanh(x), 16 M": 0.08,
    "sum of 16 M": 1.1,
    "sum over axis 0, 4096²": 0.6,
    "softmax of rows, 4096²": 0.3,
    "layer norm of rows, 4096²": 0.3,
    "transpose copy, 4096²": 0.3,
    "attention, 16 × 1024 × 64, causal": 0.7,
    "conv 64→64, 3×3, 56², batch 8": 1.1,
    "add of two f32[32], captured": 1.0,
    "MLP 784-512-256-10, batch 64": 0.5,
    "MLP 784-512-256-10, batch 1024": 0.5,
    "CNN 28×28, batch 64": 0.9,
    "LSTM 64→128, T = 50, batch 32": 1.0,
    "transformer, d 256, 4 layers, 8 × 128": 0.5,
    "transformer, d 256, 4 layers, 8 × 128, bf16": 1.0,
}


def on_gpu():
    return DEVICE != "cpu"


def wait():
    if on_gpu():
        torch.cuda.synchronize()


def captured(run):
    """Returns the replay of a CUDA graph of a function; on the CPU, the function."""
    if not on_gpu():
        return run
    run()
    wait()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def median(run, seconds):
    for _ in range(10 if on_gpu() else 2):
        run()
    wait()
    times = []
    while len(times) < 10_000 and (sum(times) < seconds or len(times) < 3):
        start = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def status(name):
    """Returns an entry of /proc/self/status, which is in KiB, in bytes."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":"))


def growth(make):
    """Returns the peak growth of the process in bytes while a network is created and trained for four steps."""
    with open("/proc/self/clear_refs", "w") as forget:
        forget.write("5")
    before = status("VmRSS")
    step = make()
    for _ in range(4):
        step()
    return status("VmHWM") - before


def tensors():
    uniform = lambda *shape, dtype=torch.float32: (torch.rand(shape, device=DEVICE) - 0.5).to(dtype)
    for n in (256, 512, 1024, 2048, 4096):
        a, b = uniform(n, n), uniform(n, n)
        yield f"matmul {n}", lambda a=a, b=b: a @ b
    for n in (1024, 2048):
        a, b = uniform(n, n, dtype=torch.bfloat16), uniform(n, n, dtype=torch.bfloat16)
        yield f"matmul bf16 {n}", lambda a=a, b=b: a @ b
    x = uniform(16 * M)
    yield "x + a, 16 M", lambda: x + 1.5
    yield "exp(a x + 1) tanh(x), 16 M", lambda: torch.exp(x * 0.5 + 1.0) * torch.tanh(x)
    yield "sum of 16 M", lambda: x.sum()
    s = uniform(4096, 4096)
    yield "sum over axis 0, 4096²", lambda: s.sum(0)
    yield "softmax of rows, 4096²", lambda: s.softmax(-1)
    yield "layer norm of rows, 4096²", lambda: F.layer_norm(s, (4096,))
    yield "transpose copy, 4096²", lambda: s.t().contiguous()
    q, k, v = (uniform(1, 16, 1024, 64) for _ in range(3))
    yield "attention, 16 × 1024 × 64, causal", lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    image, kernel = uniform(8, 64, 56, 56), uniform(64, 64, 3, 3)
    yield "conv 64→64, 3×3, 56², batch 8", lambda: F.conv2d(image, kernel, padding=1)
    left, right, heavy = uniform(512, 512), uniform(512, 512), 64 * torch.eye(512, device=DEVICE)
    yield "cholesky of x xᵀ, 512", lambda: torch.linalg.cholesky(left @ left.T + heavy)
    yield "triangular solve, 512", lambda: torch.linalg.solve_triangular(left + heavy, right, upper=False)
    yield "lu, 512", lambda: torch.linalg.lu(left + heavy)
    yield "qr, 512", lambda: torch.linalg.qr(left + heavy)
    small, other = uniform(32), uniform(32)
    yield "add of two f32[32]", lambda: small + other
    yield "add of two f32[32], captured", captured(lambda: small + other)
    a, b, c = (uniform(8, 8) for _ in range(3))

    def hundred():
        y = -a
        for _ in range(33):
            y = (y @ b + c).tanh()
        return y

    yield "100 nodes of f32[8, 8]", hundred
    yield "100 nodes of f32[8, 8], captured", captured(hundred)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, activation="gelu", norm_first=True)
        self.encoder, self.out = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(256, 10)

    def forward(self, x):
        return self.out(self.encoder(x).mean(1))


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 49, 10),
    )


def training():
    for name, make, shape in (
        ("MLP 784-512-256-10, batch 64", mlp, (64, 784)),
        ("MLP 784-512-256-10, batch 1024", mlp, (1024, 784)),
        ("CNN 28×28, batch 64", cnn, (64, 1, 28, 28)),
        ("LSTM 64→128, T = 50, batch 32", Lstm, (32, 50, 64)),
        ("transformer, d 256, 4 layers, 8 × 128", Transformer, (8, 128, 256)),
    ):
        for mixed in (False, True):
            yield f"{name}, bf16" if mixed else name, lambda make=make, shape=shape, mixed=mixed: trainer(make, shape, mixed)


def trainer(make, shape, mixed):
    """Creates a network and returns its training step."""
    model, x, y = make().to(DEVICE), torch.randn(shape, device=DEVICE), torch.randint(0, 10, (shape[0],), device=DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step():
        optimizer.zero_grad()
        with torch.autocast(torch.device(DEVICE).type, dtype=torch.bfloat16, enabled=mixed):
            logits = model(x)
        loss = F.cross_entropy(logits.float(), y)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def ours(binary, what, seconds, *more):
    command = [binary, "bench", what, "--device", DEVICE, "--json", "--min-time", str(seconds), *more]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def column(rows, number):
    return {row["name"]: row[number] for row in rows if row.get(number)}


def memory(arguments, names):
    """Returns the growth of a new process by row, of Panoply and of PyTorch."""
    mine, theirs = {}, {}
    for name in names:
        mine |= column(ours(arguments.binary, "training", 0, "--case", name), "rss_bytes")
        command = [sys.executable, __file__, "--grow", name, str(arguments.threads)]
        theirs[name] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return mine, theirs


def rust_peers(arguments):
    """Returns the rows of each framework by name."""
    threads = dict(os.environ, RAYON_NUM_THREADS=str(arguments.threads))
    run = subprocess.run([arguments.peers, str(arguments.seconds)], check=True, stdout=subprocess.PIPE, text=True, env=threads)
    found = {}
    for row in map(json.loads, run.stdout.splitlines()):
        found.setdefault(row["framework"], {})[row["name"]] = row["seconds"]
    return found


def rust_versions():
    manifest = (pathlib.Path(__file__).parent.parent / "peers" / "Cargo.toml").read_text()
    return dict(re.findall(r'^(burn|candle-nn) = .*?"=([\d.]+)"', manifest, re.M))


def shown(number, scale):
    return "–" if number is None else f"{number * scale:.3f}"


def table(what, mine, peers, unit="ms", scale=1e3):
    """Formats a table of our rows and those of each peer, the first of which has all rows."""
    first = next(iter(peers.values()))
    head = [what, f"ours, {unit}", *(f"{peer}, {unit}" for peer in peers), *(f"ours ÷ {peer}" for peer in peers)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name in [*first, *(name for name in mine if name not in first)]:
        own, others = mine.get(name), [rows.get(name) for rows in peers.values()]
        ratios = [f"{own / other:.2f}" if own and other else "–" for other in others]
        lines.append("| " + " | ".join([name, *(shown(number, scale) for number in [own, *others]), *ratios]) + " |")
    lines.append("")
    for peer, theirs in peers.items():
        both = [(mine[name] / theirs[name], name) for name in theirs if name in mine]
        if not both:
            continue
        best, worst = min(both), max(both)
        lost = sorted((ratio, name) for ratio, name in both if ratio > 1)[::-1]
        summary = "we lose " + ", ".join(f"{name} ({ratio:.2f})" for ratio, name in lost) if lost else "we lose no row"
        missed = [(name, ratio) for ratio, name in sorted(both)[::-1] if peer == "PyTorch" and not on_gpu() and unit == "ms" and ratio > GOALS.get(name, ratio)]
        if missed:
            named = ", ".join(f"{name} ({ratio:.2f} of at most {GOALS[name]})" for name, ratio in missed)
            summary += f". Our own goals are missed in {named}"
        lines.append(f"Beside {peer}: best {best[1]} ({best[0]:.2f}), worst {worst[1]} ({worst[0]:.2f}); {summary}.")
        lines.append("")
    return lines


def processor():
    with open("/proc/cpuinfo") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return f"{names[0]}, {len(names)} logical cores"


def gpu_table(arguments):
    """Returns the lines of the tables of a GPU."""
    # PyTorch multiplies in f32 by default and convolves in TF32; ours is f32 in both.
    torch.backends.cudnn.allow_tf32 = False
    seconds = arguments.seconds
    lines = [
        "# Side by side with PyTorch, on a GPU",
        "",
        f"{datetime.date.today()}, {torch.cuda.get_device_name(DEVICE)}, {processor()}, {platform.system()};",
        f"PyTorch {torch.__version__} in eager mode, TF32 off. Medians of warm runs in the same session, one after the other, each with a",
        "wait for the device; bf16 is mixed precision, parameters in f32. Captured rows replay a CUDA graph in PyTorch. Made by",
        f"`python crates/xtask/src/peers.py PANOPLY TABLE --device {DEVICE}`.",
        "",
    ]
    mine = column(ours(arguments.binary, "tensors", seconds), "seconds")
    lines += table("tensors", mine, {"PyTorch": {name: median(run, seconds) for name, run in tensors()}})
    rows = ours(arguments.binary, "training", seconds)
    theirs = {name: median(make(), seconds) for name, make in training()}
    lines += table("training", column(rows, "seconds"), {"PyTorch": theirs})
    return lines + host_table(rows)


def host_table(rows):
    return [
        "Host time of our training steps: the same steps on a device that computes nothing. The goal for the MLP is 100 µs.",
        "",
        "| training | host time, µs |",
        "|---|---|",
        *(f"| {name} | {shown(host, 1e6)} |" for name, host in column(rows, "host_seconds").items()),
        "",
    ]


def main():
    if sys.argv[1:2] == ["--grow"]:
        torch.set_num_threads(int(sys.argv[3]))
        # Loads everything that any network needs.
        trainer(lambda: nn.Linear(8, 10), (4, 8), False)()
        print(growth(dict(training())[sys.argv[2]]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("table")
    parser.add_argument("--rust-peers", dest="peers")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    global DEVICE
    DEVICE = arguments.device
    torch.manual_seed(0)
    if on_gpu():
        write(arguments.table, gpu_table(arguments))
        return
    torch.set_num_threads(arguments.threads)
    versions = rust_versions()
    lines = [
        "# Side by side with PyTorch, Burn and candle, on the CPU",
        "",
        f"{datetime.date.today()}, {processor()}, {platform.system()}; PyTorch {torch.__version__}, Burn {versions['burn']} on its back end Flex and",
        f"candle {versions['candle-nn']}, {arguments.threads} threads each; ours with as many threads as cores. Medians of warm runs in the same",
        "session, one after the other; bf16 is mixed precision, parameters in f32. Made by `cargo xtask peers`.",
        "",
    ]
    seconds, torch_rows = arguments.seconds, dict(training())
    mine = column(ours(arguments.binary, "tensors", seconds), "seconds")
    lines += table("tensors", mine, {"PyTorch": {name: median(run, seconds) for name, run in tensors()}})
    rows = ours(arguments.binary, "training", seconds)
    peers = {"PyTorch": {name: median(make(), seconds) for name, make in torch_rows.items()}} | rust_peers(arguments)
    lines += table("training", column(rows, "seconds"), peers)
    mine, theirs = memory(arguments, torch_rows)
    lines += [
        "Peak growth of the resident memory of a new process that creates a network and trains it for four steps, after a dense layer as warm-up:",
        "parameters, optimizer state, activations, scratch memory and compiled code.",
        "",
        *table("peak memory of training", mine, {"PyTorch": theirs}, "MiB", 1 / M),
        *host_table(rows),
    ]
    write(arguments.table, lines)


def write(path, lines):
    text = "\n".join(lines)
    with open(path, "w") as file:
        file.write(text)
    print(text)


main()
