"""Measures a server under the hook: latency on random lengths, restarts, memory, and answers while a backend fails.

    python benchmarks/serving.py MODEL --axis seq [--lengths 4..512] [--requests 2000] [--threads 4] [--rounds 3] [--page FILE]

Each way is a process of its own (benchmarks/server.py) with or without `onnx-subgraph run`: plain onnxruntime, fused, with static
schedules, with OpenVINO. In each round the ways run in a random order. Each has its own cache, which is empty in the first round.
Ratios are to plain onnxruntime in the same round. Then the backends of benchmarks/faulty.py run: 200 runs are right, then they
fail. Every answer is compared with that of plain onnxruntime for the same request.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
TOOL = str(Path(sysconfig.get_path("scripts")) / "onnx-subgraph")
WAYS: dict[str, dict[str, str]] = {
    "plain": {},
    "fused": {"SESSION": "1"},
    "static": {"STATIC": "1"},
    "openvino": {"BACKEND": "openvino"},
}
FAULTS: dict[str, tuple[str, dict[str, str]]] = {
    "hangs": ("Hangs", {"DEADLINE": "2"}),
    "hangs, isolated": ("Hangs", {"DEADLINE": "2", "ISOLATED": "1"}),
    "dies, isolated": ("Dies", {"ISOLATED": "1"}),
    "errs": ("Errs", {}),
    "wrong by 1.01": ("Wrong", {"CHECK": "0.02"}),
    "wrong by 1.01, all checked": ("Wrong", {"CHECK": "1"}),
    "15 s to compile": ("Slow", {}),
    "missing at the restart": ("Missing", {}),
    "full disk": ("Faulty", {}),
}
MOST_FILE = 1 << 20
"""The most bytes of a file on the full disk."""


def serve(arguments: argparse.Namespace, folder: Path, variables: dict[str, str], *, full: bool = False) -> dict:
    """Run a server with these variables, and return its figures."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONNX_SUBGRAPH_")}
    environment |= {f"ONNX_SUBGRAPH_{name}": value for name, value in variables.items()}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), str(HERE), os.environ.get("PYTHONPATH")]))
    server = [str(HERE / "server.py"), str(arguments.model), str(folder / "lengths.npy"), str(folder / "answers.npz")]
    options = ["--axis", arguments.axis, "--threads", str(arguments.threads)]
    command = [TOOL, "run", *server, *options] if variables else [sys.executable, *server, *options]

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE, MOST_FILE))

    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=1800, preexec_fn=limited if full else None
    )
    if done.returncode or not done.stdout:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)


def at(told: dict, percent: float) -> float:
    """A percentile of the latencies, in milliseconds."""
    return float(np.percentile(told["latencies"], percent)) * 1000


def spread(ratios: list[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def ways(arguments: argparse.Namespace, folder: Path) -> str:
    """The table of the ways to serve."""
    told: dict[str, list[dict]] = {name: [] for name in WAYS}
    order, draws = list(WAYS), random.Random(0)
    for number in range(arguments.rounds + 1):
        draws.shuffle(order)
        for name in order:
            variables = {**WAYS[name], "CACHE": str(folder / f"cache of {name}")} if WAYS[name] else {}
            told[name].append(serve(arguments, folder, variables))
            last = told[name][-1]
            print(
                number, name, f"p50 {at(last, 50):.1f} p99 {at(last, 99):.1f} ms", last["heard"], last["stories"], file=sys.stderr
            )
    rows = []
    for name, runs in told.items():
        later = list(zip(runs[1:], told["plain"][1:], strict=True))
        cells = [spread([at(mine, percent) / at(plain, percent) for mine, plain in later]) for percent in (50, 99)]
        usual = {p: statistics.median(at(plain, p) for plain in told["plain"][1:]) for p in (50, 99)}  # plain has no first start
        cold = " / ".join(f"{at(runs[0], percent) / usual[percent]:.2f}" for percent in (50, 99))
        total = spread([mine["seconds"] / plain["seconds"] for mine, plain in later])
        peak = statistics.median(mine["peak"] / plain["peak"] for mine, plain in later)
        starts = f"{runs[0]['first']:.1f} / {statistics.median(run['first'] for run in runs[1:]):.1f}"
        bad = f"{sum(run['wrong'] for run in runs)} / {sum(len(run['lost']) for run in runs)}"
        rows.append(f"| {name} | {cells[0]} | {cells[1]} | {total} | {cold} | {starts} | {peak:.2f} | {bad} |")
    return "\n".join(rows)


def faults(arguments: argparse.Namespace, folder: Path) -> str:
    """The table of the faults."""
    plain = serve(arguments, folder, {})
    rows = []
    for name, (kind, variables) in FAULTS.items():
        register(folder, kind)
        given = {"BACKEND": kind.lower(), "CACHE": str(folder / f"cache of {name}"), **variables}
        if kind == "Missing":
            serve(arguments, folder, given)
            (folder / "faulty_backends-1.dist-info" / "entry_points.txt").write_text("")
        told = serve(arguments, folder, given, full=name == "full disk")
        print(name, told["heard"], told["stories"], file=sys.stderr)
        ratios = " | ".join(f"{at(told, percent) / at(plain, percent):.2f}" for percent in (50, 99, 100))
        grown = f"{told['now']['threads'] - plain['now']['threads']:+d}"
        rows.append(f"| {name} | {told['wrong']} | {len(told['lost'])} | {ratios} | {len(told['heard'])} | {grown} |")
    return "\n".join(rows)


def register(folder: Path, kind: str) -> None:
    """Register a backend as its package would."""
    info = folder / "faulty_backends-1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty-backends\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[onnx_subgraph.backends]\n{kind.lower()} = faulty:{kind}\n")


def leaks(arguments: argparse.Namespace, folder: Path) -> str:
    """The table of threads and open files."""
    rows = []
    for name, variables in WAYS.items():
        told = serve(arguments, folder, {**variables, "CACHE": str(folder / f"cache of {name}")} if variables else {})
        ends = [f"{told['halfway'][what]} / {told['now'][what]}" for what in ("threads", "files")]
        rows.append(f"| {name} | {ends[0]} | {ends[1]} | {told['wrong']} / {len(told['lost'])} |")
    return "\n".join(rows)


HEAD = """# A server under the hook

Made by `python benchmarks/serving.py MODEL --axis {axis} --lengths {lengths} --requests {requests} --threads {threads}
--rounds {rounds} --failing {failing}` on {cores} cores with
{name}, random lengths, {threads} threads, each with one request at a time. *plain* is onnxruntime. Ratios are to plain in the
same round: the median, the least and the most of the rounds. *first start* has an empty cache and prepares while it serves.
*start* is the time from the start of the process to its first answer. Every answer was compared with plain onnxruntime's.

| way | p50 | p99 | all requests | first start: p50 / p99 | start s: first / later | peak memory | wrong / lost |
|---|---:|---:|---:|---:|---:|---:|---:|
{ways}

## While a backend fails

{failing} requests. OpenVINO is right for 200 runs, and then fails. *warnings* is the number of warnings to the program,
*threads* the number of threads at the end beyond plain's. A wrong backend is found by the share of runs that is checked,
{check} here; wrong answers before that are returned. At a restart without the backend, and on a full disk, onnxruntime runs the
model.

| the backend | wrong | lost | p50 / plain | p99 / plain | slowest / plain | warnings | threads |
|---|---:|---:|---:|---:|---:|---:|---:|
{faults}

## After 10,000 requests

`{small}`, lengths 4 to 64: threads and open files after 5,000 requests and after 10,000.

| way | threads | files | wrong / lost |
|---|---:|---:|---:|
{leaks}
"""


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--axis", required=True, help="the name of the dimension that is a length")
    parser.add_argument("--lengths", default="4..512")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--failing", type=int, default=500, help="requests while a backend fails")
    parser.add_argument("--small", type=Path, default=HERE.parent / "sample_models" / "bert_torchscript.onnx")
    parser.add_argument("--small-axis", default="seq")
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    least, most = map(int, arguments.lengths.split(".."))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "lengths.npy", np.random.default_rng(0).integers(least, most + 1, arguments.requests))
        serve(arguments, folder, {})  # the answers
        table = ways(arguments, folder)
        np.save(folder / "lengths.npy", np.load(folder / "lengths.npy")[: arguments.failing])
        failed = faults(arguments, folder)
    with tempfile.TemporaryDirectory() as name:
        small = argparse.Namespace(model=arguments.small, axis=arguments.small_axis, threads=arguments.threads)
        np.save(Path(name) / "lengths.npy", np.random.default_rng(0).integers(4, 65, 10_000))
        leaking = leaks(small, Path(name))
    page = HEAD.format(
        **vars(arguments) | {"small": arguments.small.name, "name": arguments.model.stem},
        cores=os.cpu_count(),
        check=FAULTS["wrong by 1.01"][1]["CHECK"],
        ways=table,
        faults=failed,
        leaks=leaking,
    )
    print(page)
    if arguments.page:
        arguments.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
