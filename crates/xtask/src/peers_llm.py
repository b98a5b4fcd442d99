"""Compares `panoply bench llm` with llama.cpp.

    python peers_llm.py PANOPLY_BINARY MODEL_FOLDER TABLE.md [--turns N] [--threads N]

Makes a LLaMA of 1.1 billion random weights in F16, quantizes it with `panoply quantize`, and lets both programs take turns on each file, each turn
in processes of their own. A ratio is that of one turn; the table has the median of the ratios with a 95 % interval from order statistics.

The logits after the prompt are compared with ours in exact mode: decoded weights in f32, f32 activations, no fast product.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import time

TYPES = ["f16", "q8_0", "q4_0", "q4_k_m"]
PREFILL, DECODE = 512, 64
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


def llama(path, threads, logits_path):
    """Prints the seconds of prefill and of decode as JSON and saves the logits after the prompt; runs in a process of its own."""
    import ctypes
    import numpy as np
    import llama_cpp as l
    # The library calls it until the process ends.
    silent = l.llama_log_callback(lambda *_: None)
    l.llama_log_set(silent, ctypes.c_void_p(0))
    l.llama_backend_init()
    model = l.llama_model_load_from_file(str(path).encode(), l.llama_model_default_params())
    params = l.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = PREFILL + DECODE, PREFILL, threads, threads
    context = l.llama_init_from_model(model, params)
    tokens = (l.llama_token * PREFILL)(*[n * 7919 % VOCAB for n in range(PREFILL)])
    times = []
    for _ in range(2):
        l.llama_memory_clear(l.llama_get_memory(context), True)
        start = time.perf_counter()
        assert l.llama_decode(context, l.llama_batch_get_one(tokens, PREFILL)) == 0
        logits = l.llama_get_logits_ith(context, -1)
        prefill = time.perf_counter() - start
        saved = np.ctypeslib.as_array(logits, shape=(VOCAB,)).copy()
        start = time.perf_counter() - prefill
        one = (l.llama_token * 1)()
        for _ in range(DECODE):
            one[0] = 17
            assert l.llama_decode(context, l.llama_batch_get_one(one, 1)) == 0
            logits = l.llama_get_logits_ith(context, -1)
        times = [prefill, time.perf_counter() - start - prefill]
    np.save(logits_path, saved)
    print(json.dumps(times))


def logit_errors(args, path):
    """The largest differences of our logits and of llama.cpp's from the exact ones, relative to the largest logit."""
    import numpy as np
    logits = {}
    for name, mode in [("ours", "standard"), ("exact", "exact")]:
        file = args.models / f"{name}.npy"
        subprocess.run([args.panoply, "bench", "llm", path, "--repeats", "1", "--decode", "1", "--device", "cpu", "--json",
                        "--save-logits", file], check=True, capture_output=True, env={**os.environ, "PANOPLY_MATH_MODE": mode})
        logits[name] = np.load(file)
    theirs = np.load(args.models / "llama.npy")
    scale = np.abs(logits["exact"]).max()
    return [float(np.abs(other - logits["exact"]).max() / scale) for other in (logits["ours"], theirs)]


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


def interval(ratios):
    """Median, and the order statistics that contain it with a probability of at least 95 %."""
    ordered, count = sorted(ratios), len(ratios)
    low = 0
    while low + 1 < count // 2 and 2 * sum(math.comb(count, n) for n in range(low + 2)) / 2**count <= 0.05:
        low += 1
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return middle, ordered[low], ordered[count - 1 - low]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("panoply", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    args.models.mkdir(parents=True, exist_ok=True)
    files = {kind: args.models / f"random-1b-{kind}.gguf" for kind in TYPES}
    if not files["f16"].exists():
        make_model(files["f16"])
    for kind in TYPES[1:]:
        if not files[kind].exists():
            subprocess.run([args.panoply, "quantize", files["f16"], files[kind], "--type", kind], check=True)
    rows, errors = {}, {}
    for kind, path in files.items():
        ratios, best = ([], []), ([], [])
        for turn in range(args.turns):
            ours = subprocess.run(
                [args.panoply, "bench", "llm", path, "--json", "--repeats", "1", "--device", "cpu",
                 "--threads", str(args.threads)], check=True, capture_output=True, text=True)
            ours = json.loads(ours.stdout)
            theirs = subprocess.run([sys.executable, __file__, "--llama", str(path), str(args.threads), args.models / "llama.npy"],
                                    check=True, capture_output=True, text=True)
            prefill, decode = json.loads(theirs.stdout.splitlines()[-1])
            pairs = [(ours["prefill_tokens_per_second"], PREFILL / prefill),
                     (ours["decode_tokens_per_second"], DECODE / decode)]
            for n, (own, other) in enumerate(pairs):
                ratios[n].append(own / other)
                best[n].append((own, other))
            print(f"{kind}, turn {turn + 1}: prefill {ratios[0][-1]:.2f}, decode {ratios[1][-1]:.2f}", flush=True)
        rows[kind] = [(*interval(ratios[n]), *[sorted(rates)[len(rates) // 2] for rates in zip(*best[n])]) for n in (0, 1)]
        errors[kind] = logit_errors(args, path)
        print(f"{kind}: logits differ from the exact ones by {errors[kind][0]:.2g}, llama.cpp's by {errors[kind][1]:.2g}", flush=True)
    write(args, rows, errors, other_figures(args, files["q4_0"]))


def write(args, rows, errors, others):
    import llama_cpp
    machine = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    lines = [
        "# Language models on the CPU, beside llama.cpp", "",
        f"{datetime.date.today()}, {machine}, {args.threads} threads; llama-cpp-python {llama_cpp.__version__} built natively. A LLaMA of 1.1 billion",
        f"random weights, a prompt of {PREFILL} tokens and {DECODE} generated ones. Both programs took turns, {args.turns} times; ratios are medians of the",
        "turns with a 95 % interval, rates are medians in tokens/s. Written by `cargo xtask peers llm`.", "",
        "| weights | prefill | llama.cpp | ours ÷ llama.cpp | decode | llama.cpp | ours ÷ llama.cpp |", "|---|---|---|---|---|---|---|",
    ]
    losing = []
    for kind, phases in rows.items():
        cells = [kind.upper()]
        for name, (middle, low, high, own, other) in zip(["prefill", "decode"], phases):
            cells += [f"{own:.1f}", f"{other:.1f}", f"{middle:.2f} ({low:.2f}–{high:.2f})"]
            if high < 1:
                losing.append(f"{name} of {kind.upper()}")
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Slower than llama.cpp: " + (", ".join(losing) if losing else "none") + "."]
    lines += ["", "Largest difference of a logit after the prompt from that of decoded f32 weights and f32 activations, relative to the largest:", "",
              "| weights | ours | llama.cpp |", "|---|---|---|"]
    lines += [f"| {kind.upper()} | {own:.2g} | {other:.2g} |" for kind, (own, other) in errors.items()]
    lines += ["", "Q4_0:", "", "| | measured | goal |", "|---|---|---|", *others]
    args.table.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--llama":
        llama(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main()
