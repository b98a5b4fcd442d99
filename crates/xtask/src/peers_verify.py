"""Compares `panoply verify` with Marabou on ten ACAS Xu instances, and proofs for f32 with proofs for real numbers on all of them.

    python peers_verify.py PANOPLY_BINARY DATA_FOLDER TABLE.md [--seconds N] [--turns N] [--marabou-only | --arithmetic-only]

DATA_FOLDER has networks, properties in VNN-LIB, `instances.csv` with rows `NETWORK,PROPERTY,SECONDS` and, if verdicts are known, `expected.csv` with
rows `NETWORK,PROPERTY,sat` or `unsat`. A property is `sat` if there is a counterexample.

Each program runs in a process of its own, one after the other. Marabou runs twice: with its default options, which use one thread, and with
split-and-conquer on two workers. It gets each disjunct of a property as a query of its own, and stops at the first that is satisfiable. Its inputs are
run with onnxruntime, and the outputs are compared with the property.

Exits with 1 if two verdicts differ or one differs from the expected one.
"""

import argparse
import csv
import datetime
import importlib.metadata
import itertools
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time
import warnings

# All eight properties, nine networks, five counterexamples or easy proofs and five proofs that take longer.
INSTANCES = [("1_3", 1), ("1_2", 2), ("1_8", 2), ("3_5", 3), ("1_7", 3), ("3_2", 4), ("1_1", 5), ("1_1", 6), ("1_9", 7), ("3_3", 9)]
MODES = {"one thread": {}, "two workers": {"snc": True, "numWorkers": 2, "initialSplits": 2}}
# Counterexamples of Marabou satisfy constraints up to a tolerance.
TOLERANCE = 1e-4
# Seconds beyond the limit after which a process is ended.
GRACE = 15


def file_names(network, number):
    return f"ACASXU_run2a_{network}_batch_2000.onnx", f"prop_{number}.vnnlib"


def short(network, prop):
    """Returns the instance as a table shows it."""
    return f"{'_'.join(re.findall('[0-9]+', network.split('run2a')[-1])[:2])}, property {''.join(re.findall('[0-9]+', prop))}"


def expressions(text):
    """Parses S-expressions into nested lists of words."""
    found = [[]]
    for word in re.findall(r"[()]|[^\s()]+", re.sub(";.*", "", text)):
        if word == "(":
            found.append([])
        elif word == ")":
            last = found.pop()
            found[-1].append(last)
        else:
            found[-1].append(word)
    return found[0]


def disjuncts(condition):
    """Returns the disjunctive normal form of a condition: lists of pairs (a, b) of variables or numbers with a <= b."""
    operator, *operands = condition
    if operator == "or":
        return [conjunct for operand in operands for conjunct in disjuncts(operand)]
    if operator == "and":
        return [sum(parts, []) for parts in itertools.product(*map(disjuncts, operands))]
    if operator in ("<=", ">=") and len(operands) == 2 and all(isinstance(operand, str) for operand in operands):
        sides = [operand if operand[0] in "XY" else float(operand) for operand in operands]
        return [[tuple(sides if operator == "<=" else reversed(sides))]]
    raise ValueError(f"a constraint of this form cannot be passed to Marabou: {condition}")


def queries(path):
    """Returns the queries of a property: for each a box, with bounds of each input, and inequalities of outputs."""
    asserts = [words[1] for words in expressions(path.read_text()) if words[0] == "assert"]
    for conjunct in disjuncts(["and", *asserts]):
        box, outputs = {}, []
        for a, b in conjunct:
            names = [side for side in (a, b) if isinstance(side, str)]
            if not any(name[0] == "X" for name in names):
                outputs.append((a, b))
            elif len(names) == 1:
                low, high = box.get(names[0], (-math.inf, math.inf))
                box[names[0]] = (low, min(high, b)) if a == names[0] else (max(low, a), high)
            else:
                raise ValueError(f"{path}: an inequality between inputs cannot be passed to Marabou: {a} <= {b}")
        yield box, outputs


def index(name):
    return int(name[2:])


def violates(network, box, outputs, point):
    """Returns true if onnxruntime computes outputs for a point of the box that satisfy the inequalities, up to the tolerance."""
    import numpy as np
    import onnxruntime
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    x = np.array(point, np.float32).reshape([dim if isinstance(dim, int) else 1 for dim in entry.shape])
    y = session.run(None, {entry.name: x})[0].reshape(-1)
    value = lambda side: float(y[index(side)]) if isinstance(side, str) else side
    inside = all(low - TOLERANCE <= point[index(name)] <= high + TOLERANCE for name, (low, high) in box.items())
    return inside and all(value(a) <= value(b) + TOLERANCE for a, b in outputs)


def marabou(network, prop, seconds, mode):
    """Prints verdict and seconds as JSON; runs in a process of its own. Time is measured after modules are imported."""
    warnings.simplefilter("ignore")
    from maraboupy import Marabou
    started = time.perf_counter()
    verdict, is_checked = "unsat", None
    for box, outputs in queries(prop):
        left = seconds - (time.perf_counter() - started)
        if left <= 0:
            verdict = "undecided"
            break
        query = Marabou.read_onnx(str(network))
        x, y = query.inputVars[0].flatten(), query.outputVars[0].flatten()
        for name, (low, high) in box.items():
            query.setLowerBound(x[index(name)], low)
            query.setUpperBound(x[index(name)], high)
        for a, b in outputs:
            terms = [(y[index(side)], sign) for side, sign in ((a, 1.0), (b, -1.0)) if isinstance(side, str)]
            bound = (0.0 if isinstance(b, str) else b) - (0.0 if isinstance(a, str) else a)
            query.addInequality([variable for variable, _ in terms], [sign for _, sign in terms], bound)
        options = Marabou.createOptions(verbosity=0, timeoutInSeconds=math.ceil(left), **MODES[mode])
        answer, values, _ = query.solve(verbose=False, options=options)
        if answer == "sat":
            verdict, point = "sat", [values[variable] for variable in x]
            break
        if answer != "unsat":
            verdict = "undecided"
            break
    taken = time.perf_counter() - started
    if verdict == "sat":
        is_checked = violates(str(network), box, outputs, point)
    print(json.dumps({"verdict": verdict, "seconds": taken, "is_checked": is_checked}))


def run_marabou(network, prop, seconds, mode):
    command = [sys.executable, __file__, "--marabou", network, prop, str(seconds), mode]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GRACE)
    except subprocess.TimeoutExpired:
        return {"verdict": "undecided", "seconds": seconds, "is_checked": None}
    if run.returncode != 0:
        last = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
        print(f"Marabou, {mode}: {last}", flush=True)
        return {"verdict": "failed", "seconds": seconds, "is_checked": None}
    return json.loads(run.stdout.splitlines()[-1])


def run_panoply(args, network, prop, arithmetic):
    """Returns the verdict and the seconds of the whole process."""
    started = time.perf_counter()
    command = [args.panoply, "verify", network, prop, "--device", "cpu", "--seconds", str(args.seconds), "--arithmetic", arithmetic]
    code = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    verdict = {0: "unsat", 5: "sat", 4: "undecided"}.get(code, "failed")
    return {"verdict": verdict, "seconds": time.perf_counter() - started}


def rows(path, length):
    with open(path, newline="") as file:
        found = [row for row in csv.reader(file) if len(row) == length]
    return [row for row in found if row[0].endswith((".onnx", ".onnx.gz"))]


def is_decided(run):
    return run["verdict"] in ("sat", "unsat")


def penalized(args, run):
    """Returns the seconds, and the limit for an instance that is not decided."""
    return run["seconds"] if is_decided(run) else args.seconds


def beside_marabou(args, expected):
    """Returns the lines of the comparison, and the number of wrong verdicts."""
    programs = ["panoply", *MODES]
    table, all_runs, wrong = [], {name: [] for name in programs}, []
    for network, number in INSTANCES:
        names = file_names(network, number)
        files = [args.data / name for name in names]
        runs = {name: [] for name in programs}
        for _ in range(args.turns):
            runs["panoply"].append(run_panoply(args, *files, "both"))
            for mode in MODES:
                runs[mode].append(run_marabou(*files, args.seconds, mode))
        label, want = short(*names), expected.get(names, "")
        verdicts = {run["verdict"] for found in runs.values() for run in found if is_decided(run)} | ({want} - {""})
        unchecked = any(run.get("is_checked") is False for found in runs.values() for run in found)
        if len(verdicts) > 1:
            wrong.append(f"{label}: the verdicts differ")
        if unchecked:
            wrong.append(f"{label}: onnxruntime does not confirm Marabou's counterexample")
        cells = []
        for name, found in runs.items():
            # One verdict for all turns: undecided if a turn was.
            undecided = [run for run in found if not is_decided(run)]
            one = (undecided or found)[0] | {"seconds": statistics.median(run["seconds"] for run in found)}
            all_runs[name].append(one)
            cells += [one["verdict"], f"{one['seconds']:.2f}"]
        table.append(f"| {label} | {want} | " + " | ".join(cells) + " |")
        print(table[-1], flush=True)
    summary = []
    for name, runs in all_runs.items():
        times = [penalized(args, run) for run in runs]
        title = name if name == "panoply" else f"Marabou, {name}"
        summary.append(f"| {title} | {sum(map(is_decided, runs))} | {statistics.mean(times):.2f} | {statistics.median(times):.2f} | {max(times):.2f} |")
    best = [min(penalized(args, all_runs[mode][n]) for mode in MODES) for n in range(len(INSTANCES))]
    slower = [short(*file_names(*instance)) for n, instance in enumerate(INSTANCES) if penalized(args, all_runs["panoply"][n]) > best[n]]
    lines = [
        "## Ten instances beside Marabou", "",
        f"Limit of {args.seconds} s for each. `unsat` means proven, `sat` a counterexample, seconds are {'medians of ' + str(args.turns) + ' turns' if args.turns > 1 else 'of one turn'}.",
        "Ours are those of the whole process with `--arithmetic both` on all threads. Marabou's are those of reading the network and solving, without the start of",
        "Python and its imports: with the default options, which use one thread, and with split-and-conquer on two workers. Its wheel has the native solver of linear",
        "programs, not Gurobi. It proves for real numbers with f64 arithmetic and tolerances; rounding is not covered.", "",
        "| instance | expected | panoply | s | Marabou, one thread | s | Marabou, two workers | s |", "|---|---|---|---|---|---|---|---|",
        *table, "",
        f"| | decided of {len(INSTANCES)} | mean, s (undecided: {args.seconds}) | median, s | slowest, s |", "|---|---|---|---|---|", *summary, "",
        "Slower than the faster of Marabou's two: " + ("; ".join(slower) if slower else "none") + ".",
        "Wrong verdicts: " + ("; ".join(wrong) if wrong else "none; each agrees with the expected one, and onnxruntime confirms Marabou's counterexamples") + ".", "",
    ]
    return lines, len(wrong)


def real_and_float(args, expected):
    """Returns the lines on instances that are proven for real numbers and for f32, and the number of wrong verdicts."""
    proven, lost, slow, wrong, times = 0, [], [], 0, {"real": [], "both": []}
    for network, prop, _ in rows(args.data / "instances.csv", 3):
        want = expected.get((network, prop), "")
        if want == "sat":
            continue
        files = [args.data / network, args.data / prop]
        real = run_panoply(args, *files, "real")
        if real["verdict"] != "unsat":
            wrong += real["verdict"] == "sat" and want == "unsat"
            slow.append(f"{short(network, prop)} ({real['verdict']})")
            print(f"{short(network, prop)}: {real['verdict']} for real numbers", flush=True)
            continue
        both = run_panoply(args, *files, "both")
        proven += 1
        wrong += both["verdict"] == "sat"
        for name, run in (("real", real), ("both", both)):
            times[name].append(run["seconds"])
        if both["verdict"] != "unsat":
            lost.append(f"{short(network, prop)} ({both['verdict']})")
        print(f"{short(network, prop)}: real {real['seconds']:.2f} s; both {both['verdict']} in {both['seconds']:.2f} s", flush=True)
    share = 100 * (proven - len(lost)) / max(proven, 1)
    middle = {name: statistics.mean(found) if found else 0.0 for name, found in times.items()}
    lines = [
        "## Proofs for real numbers and for f32", "",
        f"All instances that are not known to be violated, limit of {args.seconds} s for each: those proven with `--arithmetic real` were run again with",
        "`--arithmetic both`.", "",
        "| proven for real numbers | of these proven for f32 | share | goal | mean, s: real | both |", "|---|---|---|---|---|---|",
        f"| {proven} | {proven - len(lost)} | {share:.1f} % | ≥ 98 % | {middle['real']:.2f} | {middle['both']:.2f} |", "",
        "Not proven for f32: " + ("; ".join(lost) if lost else "none") + ". Not proven for real numbers: " + ("; ".join(slow) if slow else "none") + ".", "",
    ]
    return lines, wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("panoply", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=116)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--marabou-only", action="store_true")
    parser.add_argument("--arithmetic-only", action="store_true")
    args = parser.parse_args()
    args.panoply = args.panoply.resolve()
    missing = [name for instance in INSTANCES for name in file_names(*instance) if not (args.data / name).is_file()]
    if missing:
        sys.exit(f"peers verify: {args.data} has no {missing[0]}; the folder must have the ACAS Xu networks and properties of VNN-COMP")
    has_verdicts = (args.data / "expected.csv").is_file()
    expected = {(network, prop): verdict for network, prop, verdict in rows(args.data / "expected.csv", 3)} if has_verdicts else {}
    machine = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    lines = [
        "# ACAS Xu beside Marabou", "",
        f"{datetime.date.today()}, {machine}, {len(os.sched_getaffinity(0))} threads; maraboupy {importlib.metadata.version('maraboupy')}. Both programs took turns. Written by",
        "`cargo xtask peers verify --data DIR`.", "",
    ]
    wrong = 0
    for is_wanted, part in [(not args.arithmetic_only, beside_marabou), (not args.marabou_only, real_and_float)]:
        if is_wanted:
            found, count = part(args, expected)
            lines += found
            wrong += count
    args.table.write_text("\n".join(lines).rstrip() + "\n")
    print("\n".join(lines))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--marabou":
        marabou(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
    else:
        main()
