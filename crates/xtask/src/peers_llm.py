"""Compares `panoply bench llm` with llama.cpp and candle.

    python peers_llm.py PANOPLY_BINARY MODEL_FOLDER TABLE.md [--candle BINARY] [--turns N] [--threads N] [--types TYPE …]

Makes a LLaMA of 1.1 billion random weights in F16, quantizes it with `panoply quantize`, and lets the programs take turns on each file, each turn
in processes of their own. A ratio is that of one turn; the table has the median of the ratios with a 95 % interval from order statistics. candle,
which is much slower, takes part in the first turns only.

A section with the tables is written to TABLE.md, before those of other days and machines.

The logits after a short prompt are compared with ours in exact mode: decoded weights in f32, f32 activations, no fast product.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

from peers_stats import interval

TYPES = ["f16", "q8_0", "q4_0", "q4_k_m"]
PREFILL, DECODE = 512, 64
# Tokens of the prompts after which logits are compared: the exact mode takes seconds for each.
COMPARED = [8, 12, 16]
CANDLE_TURNS = 3
TITLE = "# Language models on the CPU, beside llama.cpp"
# The shape of TinyLlama.
HIDDEN, BLOCKS, HEADS, KV_HEADS, WIDTH, VOCAB = 2048, 22, 32, 4, 5632, 32000


def make_model(path):
    """Writes a model whose vocabulary are the 256 bytes and names of further tokens."""
    import gguf
    import numpy as np
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random 1.1B")
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>"] + [f"<0x{n:02X}>" for n in range(256)] +
                          [f"token{n}" for n in range(259, VOCAB)])
    writer.add_token_scores([float(-n) for n in range(VOCAB)])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    head, narrow = HIDDEN, HIDDEN // HEADS * KV_HEADS
    tensors = [("token_embd", [VOCAB, HIDDEN]), ("output_norm", [HIDDEN]), ("output", [VOCAB, HIDDEN])]
    for n in range(BLOCKS):
        block = [("attn_norm", [HIDDEN]), ("attn_q", [head, HIDDEN]), ("attn_k", [narrow, HIDDEN]),
                 ("attn_v", [narrow, HIDDEN]), ("attn_output", [HIDDEN, head]), ("ffn_norm", [HIDDEN]),
                 ("ffn_gate", [WIDTH, HIDDEN]), ("ffn_up", [WIDTH, HIDDEN]), ("ffn_down", [HIDDEN, WIDTH])]
        tensors += [(f"blk.{n}.{name}", shape) for name, shape in block]
    for name, shape in tensors:
        norm = len(shape) == 1
        values = np.ones(shape, np.float32) if norm else (rng.standard_normal(shape, np.float32) * 0.02).astype(np.float16)
        writer.add_tensor(name + ".weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def open_llama(path, threads, context_length):
    """Returns the module of llama.cpp and a context, which keeps the model alive."""
    import ctypes
    import llama_cpp as l
    # The library calls it until the process ends.
    open_llama.silent = l.llama_log_callback(lambda *_: None)
    l.llama_log_set(open_llama.silent, ctypes.c_void_p(0))
    l.llama_backend_init()
    model = l.llama_model_load_from_file(str(path).encode(), l.llama_model_default_params())
    params = l.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = context_length, PREFILL, threads, threads
    return l, l.llama_init_from_model(model, params)


def llama_prefill(l, context, count):
    """Runs the prompt of `panoply bench llm` with `count` tokens; returns a pointer to the logits of the last one."""
    tokens = (l.llama_token * count)(*[n * 7919 % VOCAB for n in range(count)])
    assert l.llama_decode(context, l.llama_batch_get_one(tokens, count)) == 0
    return l.llama_get_logits_ith(context, -1)


def llama_times(path, threads):
    """Prints the seconds of prefill and of decode as JSON, measured after one run; runs in a process of its own."""
    l, context = open_llama(path, threads, PREFILL + DECODE)
    for _ in range(2):
        l.llama_memory_clear(l.llama_get_memory(context), True)
        start = time.perf_counter()
        llama_prefill(l, context, PREFILL)
        prefill = time.perf_counter() - start
        one = (l.llama_token * 1)(17)
        for _ in range(DECODE):
            assert l.llama_decode(context, l.llama_batch_get_one(one, 1)) == 0
            l.llama_get_logits_ith(context, -1)
        times = [prefill, time.perf_counter() - start - prefill]
    print(json.dumps(times))


def llama_logits(path, threads, count, logits_path):
    """Saves the logits after a prompt of `count` tokens; runs in a process of its own."""
    import numpy as np
    l, context = open_llama(path, threads, count)
    logits = llama_prefill(l, context, count)
    np.save(logits_path, np.ctypeslib.as_array(logits, shape=(VOCAB,)))


def run_llama(mode, path, args, *rest):
    """Runs a function above in a process of its own and returns what it printed."""
    command = [sys.executable, __file__, mode, str(path), str(args.threads), *map(str, rest)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def logit_errors(args, path):
    """The largest and the root mean square differences of our logits and of llama.cpp's from the exact ones, relative to the largest logit.

    Returns `[[ours, theirs] of the largest, [ours, theirs] of the root mean square]`, over all compared prompts.
    """
    import numpy as np
    largest, squares = np.zeros(2), np.zeros(2)
    for count in COMPARED:
        logits = {}
        for name, mode in [("ours", "standard"), ("exact", "exact")]:
            file = args.models / f"{name}.npy"
            subprocess.run([args.panoply, "bench", "llm", path, "--prefill", str(count), "--decode", "1", "--repeats", "1", "--device", "cpu",
                            "--json", "--save-logits", file], check=True, capture_output=True, env={**os.environ, "PANOPLY_MATH_MODE": mode})
            logits[name] = np.load(file)
        run_llama("--llama-logits", path, args, count, args.models / "llama.npy")
        logits["theirs"] = np.load(args.models / "llama.npy")
        scale = np.abs(logits["exact"]).max()
        errors = [np.abs(logits[name] - logits["exact"]) / scale for name in ("ours", "theirs")]
        largest = np.maximum(largest, [error.max() for error in errors])
        squares += [np.square(error, dtype=np.float64).mean() for error in errors]
    return largest.tolist(), np.sqrt(squares / len(COMPARED)).tolist()


def run_candle(args, path):
    """The seconds of prefill and of decode in candle."""
    command = [args.candle, path, str(PREFILL), str(DECODE)]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "RAYON_NUM_THREADS": str(args.threads)}).stdout
    return json.loads(out.splitlines()[-1])


STREAMS, STARTS = 8, 5


def other_figures(args, path):
    """Rows of further figures of one file: several sequences at once, the first token of a new process, and memory."""
    bench = [args.panoply, "bench", "llm", path, "--repeats", "1", "--device", "cpu", "--threads", str(args.threads), "--json",
             "--streams", str(STREAMS)]
    runs = [json.loads(subprocess.run(bench, check=True, capture_output=True, text=True).stdout) for _ in range(3)]
    ratios = sorted(run["streams_tokens_per_second"] / run["decode_tokens_per_second"] for run in runs)
    seconds = []
    for _ in range(STARTS + 1):
        started = time.perf_counter()
        subprocess.run([args.panoply, "run", path, "Once upon", "--max-tokens", "1", "--device", "cpu", "--threads", str(args.threads)],
                       check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    cache = 2 * BLOCKS * (PREFILL + DECODE) * HIDDEN // HEADS * KV_HEADS * 4
    alone = json.loads(subprocess.run(bench[:-2], check=True, capture_output=True, text=True).stdout)
    share = alone["peak_rss_bytes"] / (path.stat().st_size + cache)
    return [
        f"| tokens/s of {STREAMS} sequences at once ÷ those of one | {ratios[1]:.2f} | ≥ 3 |",
        f"| first token of a new process, prompt `Once upon`, file in the page cache, s | {sorted(seconds[1:])[STARTS // 2]:.2f} | ≤ 0.5 |",
        f"| peak memory ÷ (file + f32 cache) | {share:.2f} | ≤ 1.1 |",
        f"| decode, share of the measured read bandwidth of {alone['gb_per_s']:.1f} GB/s | {alone['fraction_of_bandwidth']:.2f} | |",
    ]


def take_turns(args, kind, path):
    """Ratios of the turns and medians of the rates for prefill and decode of one file."""
    ours, theirs, candle = [], [], []
    for turn in range(args.turns):
        bench = [args.panoply, "bench", "llm", path, "--json", "--repeats", "1", "--device", "cpu", "--threads", str(args.threads)]
        run = json.loads(subprocess.run(bench, check=True, capture_output=True, text=True).stdout)
        ours.append([run["prefill_tokens_per_second"], run["decode_tokens_per_second"]])
        prefill, decode = json.loads(run_llama("--llama-times", path, args).splitlines()[-1])
        theirs.append([PREFILL / prefill, DECODE / decode])
        if args.candle and turn < CANDLE_TURNS:
            prefill, decode = run_candle(args, path)
            candle.append([PREFILL / prefill, DECODE / decode])
        ratios = [own / other for own, other in zip(ours[-1], theirs[-1])]
        print(f"{kind}, turn {turn + 1}: prefill {ratios[0]:.2f}, decode {ratios[1]:.2f}", flush=True)
    phases = []
    for n in (0, 1):
        ratios = [own[n] / other[n] for own, other in zip(ours, theirs)]
        phases.append({"ratio": interval(ratios), "ours": statistics.median([rates[n] for rates in ours]), "theirs": statistics.median([rates[n] for rates in theirs]),
                       "candle": statistics.median([rates[n] for rates in candle]) if candle else None})
    return phases


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("panoply", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("--candle", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    args = parser.parse_args()
    args.models.mkdir(parents=True, exist_ok=True)
    files = {kind: args.models / f"random-1b-{kind}.gguf" for kind in TYPES}
    if not files["f16"].exists():
        make_model(files["f16"])
    for kind in TYPES[1:]:
        if not files[kind].exists():
            subprocess.run([args.panoply, "quantize", files["f16"], files[kind], "--type", kind], check=True)
    rows, errors = {}, {}
    for kind in args.types:
        rows[kind] = take_turns(args, kind, files[kind])
        errors[kind] = logit_errors(args, files[kind])
        largest, mean = errors[kind]
        print(f"{kind}: logits differ from the exact ones by at most {largest[0]:.2g} (root mean square {mean[0]:.2g}), llama.cpp's by "
              f"{largest[1]:.2g} ({mean[1]:.2g})", flush=True)
        write(args, rows, errors, [])
    write(args, rows, errors, other_figures(args, files["q4_0"]))


def write(args, rows, errors, others):
    import llama_cpp
    machine = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    lines = [
        f"## {datetime.date.today()}, {machine}, {args.threads} threads", "",
        f"llama-cpp-python {llama_cpp.__version__} built natively. A LLaMA of 1.1 billion random weights (the shape of TinyLlama), a prompt of {PREFILL} tokens and {DECODE}",
        f"generated ones. Both programs took turns, {args.turns} times; ratios are medians of the turns with a 95 % interval, rates are medians in tokens/s.", "",
        "| weights | prefill | llama.cpp | ours ÷ llama.cpp | decode | llama.cpp | ours ÷ llama.cpp |", "|---|---|---|---|---|---|---|",
    ]
    losing = []
    for kind, phases in rows.items():
        cells = [kind.upper()]
        for name, phase in zip(["prefill", "decode"], phases):
            middle, low, high = phase["ratio"]
            cells += [f"{phase['ours']:.1f}", f"{phase['theirs']:.1f}", f"{middle:.2f} ({low:.2f}–{high:.2f})"]
            if high < 1:
                losing.append(f"{name} of {kind.upper()}")
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Slower than llama.cpp: " + (", ".join(losing) if losing else "none") + "."]
    if args.candle:
        lines += ["", f"candle 0.11.1, built natively, in the first {CANDLE_TURNS} of these turns:", "",
                  "| weights | prefill, candle | ours ÷ candle | decode, candle | ours ÷ candle |", "|---|---|---|---|---|"]
        for kind, phases in rows.items():
            cells = [cell for phase in phases for cell in (f"{phase['candle']:.1f}", f"{phase['ours'] / phase['candle']:.2f}")]
            lines.append("| " + " | ".join([kind.upper(), *cells]) + " |")
    prompts = ", ".join(map(str, COMPARED[:-1])) + f" and {COMPARED[-1]}"
    lines += ["", f"Difference of the logits after prompts of {prompts} tokens from those of decoded f32 weights and f32 activations, relative to the largest",
              "logit:", "", "| weights | largest, ours | llama.cpp | root mean square, ours | llama.cpp |", "|---|---|---|---|---|"]
    lines += [f"| {kind.upper()} | " + " | ".join(f"{error:.2g}" for pair in pairs for error in pair) + " |" for kind, pairs in errors.items()]
    worse = [kind.upper() for kind, (_, (own, other)) in errors.items() if own > other]
    lines += ["", "Less exact than llama.cpp on average: " + (", ".join(worse) if worse else "none") + "."]
    if others:
        lines += ["", "Q4_0:", "", "| | measured | goal |", "|---|---|---|", *others]
    title, *earlier = (args.table.read_text() if args.table.exists() else TITLE).split("\n## ")
    # The section of this run replaces what an earlier call wrote of it.
    earlier = ["## " + section.strip() for section in earlier if "## " + section.split("\n")[0] != lines[0]]
    args.table.write_text("\n\n".join([title.strip(), "\n".join(lines), *earlier]) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--llama-times":
        llama_times(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "--llama-logits":
        llama_logits(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        main()
