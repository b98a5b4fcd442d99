"""Compares CROWN bounds of 50 random networks with `bound-propagation` (PyPI): how tight they are and how long they take.

    python peers_bounds.py EXAMPLE TABLE.md

EXAMPLE is the program `network_bounds` of the crate `panoply`. 30 networks are piecewise linear, 20 have sigmoid and tanh; each is written as
an ONNX file with a box of inputs. Both compute bounds of all layers by CROWN with fixed slopes, in f64; the package with
`adaptive_relu=True`, so that both choose the same lower line of a ReLU: slope 1 if u >= |l|, else 0. All bounds of the package contain 10,000
random samples.
"""

import argparse
import datetime
import json
import pathlib
import importlib.metadata
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnx
import onnx.helper as oh
import torch
from torch import nn

from bound_propagation import BoundActivation, BoundModelFactory, HyperRectangle, Residual
from bound_propagation.activation import assert_bound_order, regimes

LEAK = float(np.float32(0.1))


class BoundLeakyReLU(BoundActivation):
    """The package has no LeakyReLU: max(x, a·x) with its rules for ReLU (lower slope 1 if u >= |l|, else a)."""

    def __init__(self, module, factory, adaptive_relu=False, **kwargs):
        super().__init__(module, factory, **kwargs)
        self.adaptive_relu = adaptive_relu

    @assert_bound_order
    def alpha_beta(self, preactivation):
        lower, upper = preactivation.lower, preactivation.upper
        a = self.module.negative_slope
        zero_width, n, p, np_ = regimes(lower, upper)
        z = (upper - a * lower) / torch.where(zero_width, torch.ones_like(lower), upper - lower)
        below = torch.where(upper >= lower.abs(), 1.0, a).to(lower.dtype) if self.adaptive_relu else z
        pick = lambda crossing: torch.where(np_, crossing, torch.where(p, 1.0, torch.where(n, a, 0.0)).to(lower.dtype))
        zero = torch.zeros_like(lower)
        self.alpha_lower, self.alpha_upper = pick(below), pick(z)
        self.beta_lower = torch.where(zero_width, self(lower), zero)
        self.beta_upper = torch.where(zero_width, self(upper), torch.where(np_, upper - z * upper, zero))

    def parameterize_alpha_beta(self, *bounds):
        return bounds


def factory():
    made = BoundModelFactory(adaptive_relu=True)
    made.register(nn.LeakyReLU, BoundLeakyReLU)
    return made


def plans():
    """Returns for each network its name, kind, sizes of the layers and activations."""
    found = []
    relu = [  # 24 plain ReLU networks with 2 to 6 linear layers of width 8 to 256
        [4, 8, 3], [5, 16, 2], [10, 32, 5], [16, 64, 10], [32, 128, 10], [64, 256, 10],
        [3, 8, 8, 2], [5, 32, 32, 5], [8, 50, 50, 4], [16, 64, 64, 10], [32, 128, 128, 10], [64, 256, 256, 10],
        [5, 16, 16, 16, 5], [8, 48, 32, 24, 3], [10, 64, 64, 64, 10], [24, 128, 64, 32, 6],
        [5, 24, 24, 24, 24, 5], [10, 64, 64, 64, 64, 10], [16, 128, 128, 128, 128, 8], [64, 256, 256, 256, 256, 10],
        [5, 50, 50, 50, 50, 50, 5], [6, 32, 32, 32, 32, 32, 4], [16, 128, 128, 128, 128, 128, 10], [32, 256, 256, 256, 256, 256, 10],
    ]
    found += [("relu", "plain", sizes, ["relu"] * (len(sizes) - 2)) for sizes in relu]
    # Residual additions: x + W2 relu(W1 x + b1) + b2, then a ReLU; `sizes` has the inner width of each block after the first layer.
    found += [("relu", "residual", sizes, ["relu"]) for sizes in ([8, 32, 16, 5], [16, 64, 64, 64, 10], [10, 48, 96, 48, 24, 6])]
    found += [("leaky", "plain", sizes, ["leaky"] * (len(sizes) - 2)) for sizes in ([5, 32, 32, 5], [16, 64, 64, 64, 10], [24, 128, 128, 8])]
    for name, several in [
        ("sigmoid", [[4, 16, 3], [5, 32, 32, 5], [10, 64, 64, 10], [16, 128, 128, 10], [8, 48, 48, 48, 4], [16, 64, 64, 64, 64, 10],
                     [32, 256, 256, 10]]),
        ("tanh", [[4, 16, 3], [5, 32, 32, 5], [10, 64, 64, 10], [16, 128, 128, 10], [8, 48, 48, 48, 4], [16, 64, 64, 64, 64, 10],
                  [32, 256, 256, 10]]),
    ]:
        found += [(name, "plain", sizes, [name] * (len(sizes) - 2)) for sizes in several]
    mixed = [([5, 32, 32, 5], "tanh sigmoid"), ([10, 64, 64, 10], "relu tanh"), ([16, 64, 64, 64, 8], "sigmoid tanh sigmoid"),
             ([8, 48, 48, 48, 4], "relu sigmoid tanh"), ([16, 128, 128, 128, 10], "tanh relu tanh"),
             ([10, 64, 64, 64, 64, 6], "tanh sigmoid relu tanh")]
    found += [("mixed", "plain", sizes, words.split()) for sizes, words in mixed]
    return [(f"{at:02}-{name}{'-residual' if form == 'residual' else ''}-{'-'.join(map(str, sizes))}", form, sizes, acts)
            for at, (name, form, sizes, acts) in enumerate(found)]


ACTIVATIONS = {"relu": (nn.ReLU, "Relu"), "leaky": (lambda: nn.LeakyReLU(LEAK), "LeakyRelu"), "sigmoid": (nn.Sigmoid, "Sigmoid"),
               "tanh": (nn.Tanh, "Tanh")}


class Builder:
    """Builds a network as a list of torch modules and as ONNX nodes. All numbers are exact in f32."""

    def __init__(self, index, inputs):
        self.rng = np.random.default_rng(1000 + index)
        self.is_gemm = index % 2 == 0
        self.nodes, self.weights, self.count = [], [], 0
        self.value = "x"
        self.inputs = inputs

    def node(self, op, operands, **attributes):
        self.count += 1
        self.value = f"v{self.count}"
        self.nodes.append(oh.make_node(op, operands, [self.value], **attributes))
        return self.value

    def constant(self, array):
        name = f"c{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def linear(self, k, n, gain):
        weight = self.rng.normal(0.0, gain / np.sqrt(k), (n, k)).astype(np.float32)
        bias = self.rng.normal(0.0, 0.2, n).astype(np.float32)
        if self.is_gemm:
            self.node("Gemm", [self.value, self.constant(weight), self.constant(bias)], transB=1)
        else:
            self.node("Add", [self.node("MatMul", [self.value, self.constant(weight.T)]), self.constant(bias)])
        layer = nn.Linear(k, n)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
            layer.bias.copy_(torch.from_numpy(bias))
        return layer

    def activation(self, name):
        module, op = ACTIVATIONS[name]
        self.node(op, [self.value], **({"alpha": LEAK} if name == "leaky" else {}))
        return module()

    def save(self, outputs, path):
        self.nodes[-1].output[0] = "y"
        info = lambda name, size: oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, size])
        graph = oh.make_graph(self.nodes, path.stem, [info("x", self.inputs)], [info("y", outputs)], self.weights)
        model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def make(index, plan, folder):
    """Writes a network and its input box, and returns the torch module and the box."""
    name, form, sizes, acts = plan
    build = Builder(index, sizes[0])
    gain = {"relu": 1.4, "leaky": 1.4, "sigmoid": 2.0, "tanh": 1.3}
    modules = []
    if form == "residual":
        width = sizes[1]
        modules += [build.linear(sizes[0], width, 1.4), build.activation("relu")]
        for inner in sizes[2:-1]:
            before = build.value
            block = [build.linear(width, inner, 1.4), build.activation("relu"), build.linear(inner, width, 0.7)]
            build.node("Add", [before, build.value])
            modules += [Residual(nn.Sequential(*block)), build.activation("relu")]
        modules.append(build.linear(width, sizes[-1], 1.0))
    else:
        for k, n, act in zip(sizes, sizes[1:-1], acts):
            modules += [build.linear(k, n, gain[act]), build.activation(act)]
        modules.append(build.linear(sizes[-2], sizes[-1], 1.0))
    build.save(sizes[-1], folder / f"{name}.onnx")
    center = build.rng.uniform(-1.0, 1.0, sizes[0])
    radius = float(np.exp(build.rng.uniform(np.log(0.01), np.log(0.2))))
    lower, upper = (center - radius).astype(np.float32), (center + radius).astype(np.float32)
    box = {"name": name, "onnx": f"{name}.onnx", "form": form, "sizes": sizes, "activations": acts, "radius": radius,
           "lower": [float(x) for x in lower], "upper": [float(x) for x in upper]}
    (folder / f"{name}.json").write_text(json.dumps(box))
    return nn.Sequential(*modules).eval(), box


# Passes whose median time is taken, after some that are not.
PASSES, WARM_UP = 31, 5


def seconds(run, threads):
    """Returns the median time of a pass."""
    torch.set_num_threads(threads)
    times = []
    for _ in range(WARM_UP + PASSES):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times[WARM_UP:])


@torch.no_grad()
def bounds(module, box):
    """Returns the bounds of the package, and its median time with one or two threads, whichever is less."""
    module.to(torch.float64)
    region = HyperRectangle(*(torch.tensor([box[side]], dtype=torch.float64) for side in ("lower", "upper")))
    network = factory().build(module)
    run = lambda: network.crown(region).concretize()
    found = run()
    lower, upper = found.lower[0].numpy(), found.upper[0].numpy()
    rng = np.random.default_rng(7)
    low, high = np.array(box["lower"]), np.array(box["upper"])
    unit = rng.uniform(size=(10_000, len(low)))
    # Half of the samples are vertices of the box.
    unit[::2] = unit[::2] > 0.5
    values = module(torch.from_numpy(low + (high - low) * unit)).numpy()
    slack = 1e-12 * np.abs(values).max()
    assert (values >= lower - slack).all() and (values <= upper + slack).all(), box["name"]
    return {"lower": lower, "upper": upper, "seconds": min(seconds(run, threads) for threads in (1, 2)), "values": values}


def row(kind, networks):
    """Returns the line of a table for networks of one kind."""
    looser, tighter, widths, times = [], [], [], []
    for ours, theirs in networks:
        lower, upper = np.array(ours["lower"]), np.array(ours["upper"])
        slack = 1e-9 * np.abs(theirs["values"]).max()
        assert (theirs["values"] >= lower - slack).all() and (theirs["values"] <= upper + slack).all(), ours["name"]
        width = theirs["upper"] - theirs["lower"]
        inside = np.concatenate([lower - theirs["lower"], theirs["upper"] - upper]) / width.max()
        looser.append(max(-inside.min(), 0.0))
        tighter.append(max(inside.max(), 0.0))
        widths.append((upper - lower).sum() / width.sum())
        times.append((ours["median_seconds"] / theirs["seconds"], ours["name"], ours["median_seconds"], theirs["seconds"]))
    worst = max(times)
    return (
        f"| {kind} | {len(networks)} | {max(looser):.1e} | {max(tighter):.1e} | {np.mean(widths):.4f} | "
        f"{statistics.median(time[0] for time in times):.2f} | {worst[0]:.2f}: {worst[1]}, {1e3 * worst[2]:.1f} and {1e3 * worst[3]:.1f} ms |"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("example", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    arguments = parser.parse_args()
    kinds = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        made = [make(index, plan, folder) for index, plan in enumerate(plans())]
        theirs = [bounds(module, box) for module, box in made]
        lines = subprocess.run([arguments.example, folder], capture_output=True, text=True, check=True).stdout.splitlines()
        ours = {line["name"]: line for line in map(json.loads, lines)}
        for (_, box), found in zip(made, theirs):
            kind = "relu, residual" if box["form"] == "residual" else box["name"].split("-")[1]
            kinds.setdefault(kind, []).append((ours[box["name"]], found))
    version = importlib.metadata.version
    lines = [
        "# CROWN bounds beside a Python library",
        "",
        f"{datetime.date.today()}; bound-propagation {version('bound-propagation')} with PyTorch {version('torch')}, f64, one or two threads, whichever is",
        f"faster; ours on up to two threads. Median of {PASSES} passes, each of which bounds all layers. Differences are fractions of the widest output. Made by",
        "`cargo xtask peers bounds`.",
        "",
        "| networks | number | looser by at most | tighter by at most | width ÷ theirs, mean | time ÷ theirs, median | worst time |",
        "|---|---|---|---|---|---|---|",
        *(row(kind, networks) for kind, networks in kinds.items()),
        "",
    ]
    print("\n".join(lines))
    arguments.table.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
