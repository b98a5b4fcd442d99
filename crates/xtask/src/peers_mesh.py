"""Compares `panoply bench mesh` with Dask, Ray and PyTorch's DistributedDataParallel.

    python peers_mesh.py PANOPLY_BINARY TABLE.md [--turns N]
    python peers_mesh.py --peer torch_ddp    # one peer alone; prints its seconds

All programs take turns, each turn in processes of their own. Times are medians over the turns; a ratio is the median of the ratios of the turns.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

TASKS, SIZE, BLOCK, BATCH, WORKERS = 10_000, 4096, 1024, 1024, 2
LAYERS = [784, 512, 256, 10]


def median(values):
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def dask_tasks():
    """Seconds of one task of Dask's threaded scheduler; the graph is built before."""
    from dask.threaded import get
    graph = {f"task-{n}": (lambda: None,) for n in range(TASKS)}
    get(graph, list(graph), num_workers=WORKERS)
    start = time.perf_counter()
    get(graph, list(graph), num_workers=WORKERS)
    return (time.perf_counter() - start) / TASKS


def ray_tasks():
    """Seconds of one task of Ray on this machine."""
    import logging
    import ray
    ray.init(num_cpus=WORKERS, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)

    @ray.remote
    def empty():
        return None

    ray.get([empty.remote() for _ in range(TASKS // 10)])
    start = time.perf_counter()
    ray.get([empty.remote() for _ in range(TASKS)])
    seconds = (time.perf_counter() - start) / TASKS
    ray.shutdown()
    return seconds


def dask_matmul():
    """Seconds of a product of blocks on two threads, each with one thread of BLAS."""
    import dask
    import dask.array as da
    import numpy as np
    rng = np.random.default_rng(0)
    a, b = (da.from_array(rng.random((SIZE, SIZE), np.float32), chunks=BLOCK).persist() for _ in range(2))
    times = []
    with dask.config.set(scheduler="threads", num_workers=WORKERS):
        for _ in range(4):
            start = time.perf_counter()
            (a @ b).persist()
            times.append(time.perf_counter() - start)
    return median(times[1:])


def train(model, batch):
    """Median seconds of an SGD step."""
    import torch
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch, LAYERS[0], generator=generator)
    y = torch.randint(LAYERS[-1], (batch,), generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    times = []
    for _ in range(60):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - start)
    return median(times[20:])


def mlp():
    import torch
    torch.manual_seed(0)
    layers = []
    for one, next in zip(LAYERS, LAYERS[1:]):
        layers += [torch.nn.Linear(one, next), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def torch_rank(rank, store, results):
    import torch
    import torch.distributed as distributed
    torch.set_num_threads(1)
    # The ranks meet in a file and talk over the loopback interface: no host name, no route and no port that something else can use.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORKERS)
    seconds = train(torch.nn.parallel.DistributedDataParallel(mlp()), BATCH // WORKERS)
    if rank == 0:
        results.put(seconds)
    # A rank that closes its connections while the other one still reads makes that one fail.
    distributed.barrier()
    distributed.destroy_process_group()
    # The figure is written. PyTorch 2.15 sometimes aborts when the interpreter ends: it destroys a thread that still runs.
    os._exit(0)


def torch_ddp():
    """Seconds of a step of two processes with one thread each."""
    import torch.multiprocessing as multiprocessing
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(torch_rank, (os.path.join(folder, "store"), results), nprocs=WORKERS)
    return results.get()


PEERS = {"dask_tasks": ("dask", dask_tasks), "ray_tasks": ("ray", ray_tasks), "dask_matmul": ("dask", dask_matmul),
         "torch_ddp": ("torch", torch_ddp)}


def measured(name):
    """The figure of a peer, measured in a process of its own; None if it fails, whose output is printed then."""
    # A process that ends by a signal prints where it was.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONFAULTHANDLER": "1"}
    try:
        done = subprocess.run([sys.executable, __file__, "--peer", name], capture_output=True, text=True, env=env, timeout=600)
    except subprocess.TimeoutExpired as late:
        print(f"{name}: not done after {late.timeout:.0f} s; its output follows\n{(late.stderr or b'').decode(errors='replace')}", flush=True)
        return None
    if done.returncode != 0:
        print(f"{name}: exit code {done.returncode}; its output follows\n{done.stdout}{done.stderr}", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("panoply", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    peers = [name for name, (module, _) in PEERS.items() if importlib.util.find_spec(module)]
    ours, theirs = [], {name: [] for name in peers}
    for turn in range(args.turns):
        done = subprocess.run([args.panoply, "bench", "mesh", "--json", "--min-time", "2"], check=True, stdout=subprocess.PIPE, text=True)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        ours.append({row["name"].split(" ")[0].rstrip(","): row for row in rows})
        for name in list(theirs):
            figure = measured(name)
            if figure is None:
                del theirs[name]
            else:
                theirs[name].append(figure)
        print(f"turn {turn + 1}: " + ", ".join(f"{name} {values[-1]:.3g} s" for name, values in theirs.items()), flush=True)
    write(args, ours, theirs)


def version(module):
    from importlib.metadata import version
    return version(module)


def write(args, ours, theirs):
    figures = lambda row, key="seconds": [turn[row][key] for turn in ours if row in turn]
    lost, missed, lines = [], [], []

    def compare(title, own, peer, name, unit, scale, goal):
        """A row beside a peer; the goal is the largest ratio."""
        if not peer or not own:
            lines.append(f"| {title} | {median(own) * scale:.4g} {unit} | {name}: not installed or failed | – | ≤ {goal} |" if own else
                         f"| {title} | – | {name} | – | ≤ {goal} |")
            return
        ratio = median([own / other for own, other in zip(own, peer)])
        lines.append(f"| {title} | {median(own) * scale:.4g} {unit} | {name}: {median(peer) * scale:.4g} {unit} | {ratio:.3g} | ≤ {goal} |")
        lost.extend([f"{title} ({name}, {ratio:.2f})"] if ratio > 1 else [])
        missed.extend([f"{title} ({name}, {ratio:.3g} of at most {goal})"] if ratio > goal else [])

    compare("empty task", figures("empty"), theirs.get("dask_tasks"), "Dask, threads", "µs", 1e6, 0.05)
    compare("empty task", figures("empty"), theirs.get("ray_tasks"), "Ray", "µs", 1e6, 0.05)
    compare(f"matmul {SIZE}², blocks of {BLOCK}", figures("matmul"), figures("matmul", "plain_seconds"), "our plain product", "ms", 1e3, 1.05)
    compare(f"matmul {SIZE}², blocks of {BLOCK}", figures("matmul"), theirs.get("dask_matmul"), "Dask", "ms", 1e3, 0.9)
    step = "MLP 784-512-256-10, batch 1024, SGD step, 2 ranks × 1 thread"
    compare(step, figures("SGD"), figures("SGD", "one_process_seconds"), "ours, one process with 2 threads", "ms", 1e3, 1.15)
    compare(step, figures("SGD"), theirs.get("torch_ddp"), "PyTorch DDP, gloo", "ms", 1e3, 0.7)
    share, residual = median(figures("cholesky", "fraction_of_product")), max(figures("cholesky", "residual"))
    if share < 0.55:
        missed.append(f"Cholesky ({share:.2f} of at least 0.55)")
    seconds = median(figures("empty"))
    if seconds > 5e-6:
        missed.append(f"empty task ({seconds * 1e6:.2f} µs of at most 5)")
    machine = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    versions = [f"{name} {version(module)}" for name, module in [("Dask", "dask"), ("Ray", "ray"), ("PyTorch", "torch")]
                if importlib.util.find_spec(module)]
    head = [
        "# Tasks, block matrices and data-parallel training on the CPU, beside Dask, Ray and PyTorch", "",
        f"{datetime.date.today()}, {machine}, {len(os.sched_getaffinity(0))} logical cores, {platform.system()}; {', '.join(versions)}.",
        f"Medians of {args.turns} turns, in which all programs ran one after the other. Each has two threads or two processes with one thread.",
        "Dask uses its threaded scheduler, with one thread of BLAS in each worker. Ranks are processes under Open MPI. Made by `cargo xtask peers mesh`.", "",
        "| row | ours | beside | ours ÷ beside | goal |", "|---|---|---|---|---|",
    ]
    tail = [
        f"| Cholesky {SIZE}², tiles of 512 | {median(figures('cholesky')) * 1e3:.4g} ms, residual {residual:.1e} | rate of our plain product | "
        f"{share:.2f} of the rate | ≥ 0.55 |", "",
        "Rows we lose: " + (", ".join(lost) if lost else "none") + ". Goals missed: " + (", ".join(missed) if missed else "none") + ".",
    ]
    args.table.write_text("\n".join(head + lines + tail) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        print(json.dumps(PEERS[sys.argv[2]][1]()))
    else:
        main()
