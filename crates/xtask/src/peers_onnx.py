"""Compares the latency of `panoply bench onnx` with that of onnxruntime on six networks of well-known shapes.

    python peers_onnx.py PANOPLY_BINARY MODEL_FOLDER TABLE.md [--turns N] [--min-time S] [--only NAME ...]

The networks have fixed random weights and are written as ONNX files with opset 17 and batch 1. Both programs take turns, each turn in a process of its
own, with one and with two threads. A time is that from an input in host memory to the output in host memory; the median of a turn's runs is taken. A
ratio is that of one turn; the table has the median of the ratios with a 95 % interval from order statistics.

Outputs for the same inputs must differ by at most 1e-5 of the largest; otherwise it exits with 1.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import numpy as np

from peers_stats import interval

THREADS = (1, 2)
GOAL, TOLERANCE = 1.5, 1e-5


class Builder:
    """Appends nodes to a graph; methods take and return names of values."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.count, self.params = [], [], 0, 0

    def node(self, op, *operands, outputs=1, **attributes):
        import onnx.helper as oh
        self.count += 1
        names = [f"v{self.count}_{n}" if n else f"v{self.count}" for n in range(outputs)]
        self.nodes.append(oh.make_node(op, list(operands), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, array):
        from onnx import numpy_helper
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def weight(self, shape, deviation):
        self.params += math.prod(shape)
        return self.constant((self.rng.standard_normal(shape) * deviation).astype(np.float32))

    def gemm(self, x, k, n, gain=2.0):
        return self.node("Gemm", x, self.weight([n, k], math.sqrt(gain / k)), self.weight([n], 0.1), transB=1)

    def dense(self, x, k, n, gain=1.0):
        """Multiplies the last axis, as exporters write a linear layer of sequences."""
        return self.node("Add", self.node("MatMul", x, self.weight([k, n], math.sqrt(gain / k))), self.weight([n], 0.1))

    def conv(self, x, inputs, outputs, kernel, stride=1, groups=1, bias=True, gain=2.0):
        fan_in = inputs // groups * kernel * kernel
        operands = [x, self.weight([outputs, inputs // groups, kernel, kernel], math.sqrt(gain / fan_in))]
        if bias:
            operands.append(self.weight([outputs], 0.1))
        return self.node("Conv", *operands, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups)

    def batch_norm(self, x, channels):
        scale, variance = (self.constant(self.rng.uniform(0.8, 1.2, channels).astype(np.float32)) for _ in range(2))
        mean = self.constant((self.rng.standard_normal(channels) * 0.1).astype(np.float32))
        self.params += channels
        return self.node("BatchNormalization", x, scale, self.weight([channels], 0.1), mean, variance)

    def layer_norm(self, x, width):
        self.params += width
        scale = self.constant(self.rng.uniform(0.8, 1.2, width).astype(np.float32))
        return self.node("LayerNormalization", x, scale, self.weight([width], 0.1), axis=-1)

    def integers(self, *values):
        return self.constant(np.array(values, np.int64))

    def save(self, path, input_shape, output, output_shape, is_tokens=False):
        import onnx
        import onnx.helper as oh
        self.nodes.append(oh.make_node("Identity", [output], ["y"]))
        info = lambda name, kind, shape: oh.make_tensor_value_info(name, kind, shape)
        kind = onnx.TensorProto.INT64 if is_tokens else onnx.TensorProto.FLOAT
        graph = oh.make_graph(self.nodes, path.stem, [info("x", kind, input_shape)],
                              [info("y", onnx.TensorProto.FLOAT, output_shape)], self.weights)
        model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def mlp(path):
    """Three linear layers with ReLU between them."""
    build, x = Builder(1), "x"
    for k, n in [(784, 512), (512, 256)]:
        x = build.node("Relu", build.gemm(x, k, n))
    build.save(path, [1, 784], build.gemm(x, 256, 10), [1, 10])
    return build


def lenet(path):
    """LeNet-5 (LeCun et al. 1998) with ReLU and max pooling, on 1 × 28 × 28."""
    build = Builder(2)
    pool = lambda x: build.node("MaxPool", build.node("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
    x = pool(build.conv("x", 1, 6, 5))
    w = build.weight([16, 6, 5, 5], math.sqrt(2 / 150))
    x = pool(build.node("Conv", x, w, build.weight([16], 0.1), kernel_shape=[5, 5]))
    x = build.node("Flatten", x)
    for k, n in [(400, 120), (120, 84)]:
        x = build.node("Relu", build.gemm(x, k, n))
    build.save(path, [1, 1, 28, 28], build.gemm(x, 84, 10), [1, 10])
    return build


def resnet(path):
    """ResNet-18 (He et al. 2016) on 3 × 224 × 224, with its batch norms folded, as PyTorch's exporter writes it."""
    build = Builder(3)
    relu = lambda x: build.node("Relu", x)
    x = relu(build.conv("x", 3, 64, 7, stride=2))
    x = build.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for width, stride in [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]:
        short = x if (width, stride) == (channels, 1) else build.conv(x, channels, width, 1, stride, gain=1.0)
        inner = relu(build.conv(x, channels, width, 3, stride))
        x = relu(build.node("Add", build.conv(inner, width, width, 3, gain=0.5), short))
        channels = width
    x = build.node("Flatten", build.node("GlobalAveragePool", x))
    build.save(path, [1, 3, 224, 224], build.gemm(x, 512, 1000, gain=1.0), [1, 1000])
    return build


def mobilenet(path):
    """MobileNetV2 (Sandler et al. 2018) on 3 × 224 × 224, with batch norms and ReLU6."""
    build = Builder(4)
    zero, six = build.constant(np.array(0, np.float32)), build.constant(np.array(6, np.float32))
    relu6 = lambda x: build.node("Clip", x, zero, six)

    def layer(x, inputs, outputs, kernel, stride=1, groups=1):
        return build.batch_norm(build.conv(x, inputs, outputs, kernel, stride, groups, bias=False), outputs)

    x, channels = relu6(layer("x", 3, 32, 3, stride=2)), 32
    for factor, width, count, first in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
        for n in range(count):
            stride, inner, before = first if n == 0 else 1, channels * factor, x
            if factor > 1:
                x = relu6(layer(x, channels, inner, 1))
            x = layer(relu6(layer(x, inner, inner, 3, stride, groups=inner)), inner, width, 1)
            if stride == 1 and width == channels:
                x = build.node("Add", before, x)
            channels = width
    x = relu6(layer(x, channels, 1280, 1))
    x = build.node("Flatten", build.node("GlobalAveragePool", x))
    build.save(path, [1, 3, 224, 224], build.gemm(x, 1280, 1000, gain=1.0), [1, 1000])
    return build


def lstm(path):
    """Two LSTM layers of 128 units on 50 vectors of 64 numbers, and a linear layer on the last output."""
    build = Builder(5)
    steps, hidden, inputs = 50, 128, 64
    x = build.node("Transpose", "x", perm=[1, 0, 2])
    for width in (inputs, hidden):
        weights = [build.weight([1, 4 * hidden, width], math.sqrt(1 / width)), build.weight([1, 4 * hidden, hidden], math.sqrt(1 / hidden)),
                   build.weight([1, 8 * hidden], 0.1)]
        x, last, _ = build.node("LSTM", x, *weights, outputs=3, hidden_size=hidden)
        x = build.node("Squeeze", x, build.integers(1))
    last = build.node("Squeeze", last, build.integers(0))
    build.save(path, [1, steps, inputs], build.gemm(last, hidden, 10), [1, 10])
    return build


def transformer(path):
    """An encoder of BERT's form (Devlin et al. 2019): 128 tokens, 4 layers of width 256 with 4 heads; a classifier on the first token."""
    build = Builder(6)
    length, width, heads, inner, vocab = 128, 256, 4, 1024, 30522
    x = build.node("Gather", build.weight([vocab, width], 0.5), "x", axis=0)
    x = build.layer_norm(build.node("Add", x, build.weight([1, length, width], 0.5)), width)
    split, merged = build.integers(1, length, heads, width // heads), build.integers(1, length, width)
    scale, root, one, half = (build.constant(np.array(value, np.float32)) for value in (math.sqrt(width // heads), math.sqrt(2), 1, 0.5))
    for _ in range(4):
        part = lambda perm: build.node("Transpose", build.node("Reshape", build.dense(x, width, width), split), perm=perm)
        q, k, v = part([0, 2, 1, 3]), part([0, 2, 3, 1]), part([0, 2, 1, 3])
        weights = build.node("Softmax", build.node("Div", build.node("MatMul", q, k), scale), axis=-1)
        attended = build.node("Transpose", build.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        x = build.layer_norm(build.node("Add", build.dense(build.node("Reshape", attended, merged), width, width), x), width)
        z = build.dense(x, width, inner)
        gelu = build.node("Add", build.node("Erf", build.node("Div", z, root)), one)
        z = build.node("Mul", build.node("Mul", z, gelu), half)
        x = build.layer_norm(build.node("Add", build.dense(z, inner, width), x), width)
    first = build.node("Gather", x, build.constant(np.array(0, np.int64)), axis=1)
    pooled = build.node("Tanh", build.gemm(first, width, width, gain=1.0))
    build.save(path, [1, length], build.gemm(pooled, width, 2), [1, 2], is_tokens=True)
    return build


# Name, function that writes the network, shape of the input.
NETWORKS = {
    "MLP 784-512-256-10": (mlp, [1, 784]),
    "LeNet-5, 28²": (lenet, [1, 1, 28, 28]),
    "ResNet-18, 224²": (resnet, [1, 3, 224, 224]),
    "MobileNetV2, 224²": (mobilenet, [1, 3, 224, 224]),
    "LSTM 64→128, 2 layers, T = 50": (lstm, [1, 50, 64]),
    "BERT encoder, d 256, 4 layers, 128 tokens": (transformer, [1, 128]),
}


def onnxruntime(model, input_path, output_path, threads, min_time):
    """Prints the median seconds of a run as JSON and saves the output; runs in a process of its own."""
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    x = np.load(input_path)
    # Values that are bound once cost less per run than arrays.
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    output = ort.OrtValue.ortvalue_from_numpy(np.zeros(session.get_outputs()[0].shape, np.float32))
    binding.bind_ortvalue_output("y", output)
    run = lambda: session.run_with_iobinding(binding)
    run()
    np.save(output_path, output.numpy())
    times = []
    # As many runs as `panoply bench onnx` does.
    while not times or (len(times) < 10_000 and sum(times) < min_time):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    print(json.dumps({"seconds": statistics.median(times)}))


def difference(ours, theirs):
    """Returns the largest difference of two saved outputs relative to the largest magnitude."""
    ours, theirs = np.load(ours).astype(np.float64), np.load(theirs).astype(np.float64)
    assert ours.shape == theirs.shape and np.isfinite(theirs).all(), (ours.shape, theirs.shape)
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def compare(args, name, write, shape):
    """Returns for each number of threads the ratios, both medians and the largest difference, and the number of parameters."""
    stem = args.models / write.__name__
    model, data, ours_path, theirs_path = (stem.with_suffix(end) for end in (".onnx", ".input.npy", ".ours.npy", ".theirs.npy"))
    params = write(model).params
    rng = np.random.default_rng(7)
    tokens = write is transformer
    np.save(data, rng.integers(0, 30522, shape) if tokens else rng.standard_normal(shape).astype(np.float32))
    found = {}
    for threads in THREADS:
        ratios, own, other, worst = [], [], [], 0.0
        for _ in range(args.turns):
            ours = subprocess.run(
                [args.panoply, "bench", "onnx", model, "--input", data, "--save-output", ours_path, "--min-time", str(args.min_time),
                 "--threads", str(threads), "--device", "cpu", "--json"], capture_output=True, text=True)
            if ours.returncode != 0:
                sys.exit(f"peers onnx: {name}: {ours.stderr.strip()}")
            theirs = subprocess.run([sys.executable, __file__, "--onnxruntime", model, data, theirs_path, str(threads), str(args.min_time)],
                                    capture_output=True, text=True)
            if theirs.returncode != 0:
                sys.exit(f"peers onnx: {name}: onnxruntime: {theirs.stderr.strip()}")
            own.append(json.loads(ours.stdout)["seconds"])
            other.append(json.loads(theirs.stdout.splitlines()[-1])["seconds"])
            ratios.append(own[-1] / other[-1])
            worst = max(worst, difference(ours_path, theirs_path))
        found[threads] = (*interval(ratios), statistics.median(own), statistics.median(other), worst)
        print(f"{name}, {threads} threads: ours {1e3 * found[threads][3]:.3f} ms, onnxruntime {1e3 * found[threads][4]:.3f} ms, "
              f"ratio {found[threads][0]:.2f}, difference {worst:.1e}", flush=True)
    return found, params


def main():
    import onnxruntime as ort
    parser = argparse.ArgumentParser()
    parser.add_argument("panoply", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--min-time", type=float, default=1.0)
    parser.add_argument("--only", nargs="+", default=[], help="beginnings of names of networks")
    args = parser.parse_args()
    args.panoply = args.panoply.resolve()
    args.models.mkdir(parents=True, exist_ok=True)
    table, slower, beyond, wrong = [], [], [], []
    for name, (write, shape) in NETWORKS.items():
        if args.only and not name.startswith(tuple(args.only)):
            continue
        found, params = compare(args, name, write, shape)
        for threads, (middle, low, high, own, other, worst) in found.items():
            table.append(f"| {name} | {params / 1e6:.2f} M | {threads} | {1e3 * own:.3f} | {1e3 * other:.3f} | {middle:.2f} ({low:.2f}–{high:.2f}) | {worst:.1e} |")
            label = f"{name} with {threads} thread{'s' * (threads > 1)} ({middle:.2f})"
            if middle > 1:
                slower.append(label)
            if middle > GOAL:
                beyond.append(label)
            if not worst <= TOLERANCE:
                wrong.append(f"{name} with {threads} threads ({worst:.1e})")
    machine = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    listed = lambda labels: "; ".join(labels) if labels else "none"
    lines = [
        "# Latency of ONNX networks beside onnxruntime", "",
        f"{datetime.date.today()}, {machine}, {len(os.sched_getaffinity(0))} cores; onnxruntime {ort.__version__} with its default graph optimizations. Networks of fixed random weights, batch 1,",
        f"f32. Both programs took turns, {args.turns} times, in processes of their own; a time is the median of the runs in at least {args.min_time:g} s, or of 10,000, from an input in host memory to",
        "the output in host memory, without the start. Ratios are medians of the turns with a 95 % interval. Differences are relative to the largest output. Written by",
        "`cargo xtask peers onnx`.", "",
        "| network | parameters | threads | ours, ms | onnxruntime, ms | ours ÷ onnxruntime | difference |", "|---|---|---|---|---|---|---|", *table, "",
        f"Slower than onnxruntime: {listed(slower)}.",
        f"Beyond the goal of {GOAL}: {listed(beyond)}. Beyond a difference of {TOLERANCE:g}: {listed(wrong)}.",
    ]
    args.table.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--onnxruntime":
        onnxruntime(*sys.argv[2:5], int(sys.argv[5]), float(sys.argv[6]))
    else:
        main()
