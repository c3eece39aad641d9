"""Measures the cost of each fused operator and writes `onnx_subgraph/rewriting/operator_costs.json`, which `fuse` reads.

    python benchmarks/operator_costs.py [--only ID-GLOB…] [--provider EP] [--threads 1 2] [--seconds 0.2]

The fused graph runs in turn with the unfused one, the latter both with and without onnxruntime's own fusions, because the
neighbours of a place decide which of these onnxruntime makes. A ratio is of the fastest of several rounds, with the minimum and
maximum: other processes can only make a run longer. With one thread the time is processor time. The command also writes a page.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from string import Template
from typing import Any

import devices
import numpy as np
import onnx
import onnx.parser
import onnxruntime
from attention_cases import ATTENTION
from cost_cases import CASES as OTHERS
from cost_cases import Case
from taking_turns import CPU

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.files.models import load, save  # noqa: E402
from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.matching.find import find  # noqa: E402
from onnx_subgraph.model.constants import Constants  # noqa: E402
from onnx_subgraph.model.shapes import infer_shapes  # noqa: E402
from onnx_subgraph.regions.ground import PATTERN  # noqa: E402
from onnx_subgraph.rewriting import costs  # noqa: E402
from onnx_subgraph.rewriting.apply import apply  # noqa: E402
from onnx_subgraph.rewriting.loadability import Loadability  # noqa: E402

ROUNDS, MOST_ROUNDS = 4, 16
"""Stop after so many rounds in a row without a quicker time; on a busy machine, after so many in all."""
LEAST = 1e-3
"""Seconds. A clock is not exact enough for shorter runs, so several of them are timed together."""
SIZES = ("num_heads", "kv_num_heads", "q_num_heads", "axis", "group", "K", "N")
"""Attributes that do not make another kind of operator."""
PREFACE = """\
# What fused operators cost

Made by `python benchmarks/operator_costs.py`, one pattern or all at a time:

{machines}

A ratio is the time of the fused operator divided by the time of the unfused graph: below 1, fusing is faster. *By onnxruntime*:
onnxruntime applies its own fusions to the unfused graph. *Apart*: it does not, as in a model whose other nodes prevent them.
Each ratio is the geometric mean over the sites (sizes and numbers of threads), with the least and the most. An operator that is
slower than either graph is emitted only with `--prefer fusion`.
"""
CORES = len(os.sched_getaffinity(0))
LIBRARY = load_patterns()
CASES = (*OTHERS, *ATTENTION)
Row = dict[str, Any]
Machines = dict[str, dict[str, str]]
"""Provider → pattern → where it was measured."""


class UnfusedError(Exception):
    """The pattern of a case does not match it, or the provider has no kernel of the operator."""


def measured(case: Case, dtype: str, provider: str, counts: Sequence[int], seconds: float) -> Iterator[Row]:
    """One row for each of the sizes and numbers of threads."""
    for sizes in case.sizes:
        with tempfile.TemporaryDirectory() as folder:
            unfused = Path(folder) / "unfused.onnx"
            onnx.save(model(case, case.graph, dtype, sizes, symbolic=True), unfused)
            fused = fused_file(case, dtype, sizes, unfused, provider)
            feeds = draw(unfused, sizes)
            signature = signature_of(case, dtype, sizes, Path(folder), provider)
            for threads in counts:
                sessions = [
                    session(fused, threads, provider),
                    session(unfused, threads, provider),
                    session(unfused, threads, provider, own_fusions=False),
                ]
                if case.around:
                    around = Path(folder) / "around.onnx"
                    onnx.save(model(case, case.around, dtype, sizes, symbolic=True), around)
                    sessions.append(session(around, threads, provider))
                alone = threads == 1 and provider not in devices.DEVICES
                runs = [devices.runner(made, feeds) for made in sessions]
                fusing, apart = compare(runs, seconds, time.thread_time if alone else time.perf_counter)
                yield {
                    "provider": provider,
                    "pattern": case.name,
                    "operator": signature.operator,
                    "dtype": signature.dtype,
                    "operands": [None if o is None else list(o) for o in signature.operands],
                    "attributes": dict(signature.attributes),
                    "threads": threads,
                    "ratio": fusing,
                    "apart": apart if case.apart else fusing,
                }


def model(case: Case, graph: str, dtype: str, sizes: Mapping[str, int], *, symbolic: bool) -> onnx.ModelProto:
    """The model of a graph. Inputs in capitals become initializers. symbolic: whether sizes in lower case stay symbolic."""
    values: dict[str, object] = {n: n if symbolic and n.islower() else v for n, v in sizes.items()}
    text = Template(graph).substitute(values, T=dtype, I=",".join(map(str, range(512))))
    head = f'<ir_version: 8, opset_import: ["" : {case.opset}, "com.microsoft" : 1]> g'
    made = onnx.parser.parse_model(f"{head} {text}")
    for number in [t for t in made.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]:
        array = onnx.numpy_helper.to_array(number)
        number.CopyFrom(onnx.numpy_helper.from_array(array.astype({"float": "f4", "float16": "f2"}[dtype]), number.name))
    generator = np.random.default_rng(1)
    for value in [v for v in made.graph.input if v.name[0].isupper()]:
        array = generator.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim]) * 0.05
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(kind), value.name))
        made.graph.input.remove(value)
    return made


def fused_file(case: Case, dtype: str, sizes: Mapping[str, int], unfused: Path, provider: str) -> Path:
    """The fused model, in a file beside the unfused one. The patterns apply at any cost."""
    fused = unfused.with_suffix(".fused.onnx")
    if case.fused:
        onnx.save(model(case, case.fused, dtype, sizes, symbolic=True), fused)
        return fused
    written, patterns, done = load(unfused), [LIBRARY.get(name) for name in case.patterns], set[str]()
    infer_shapes(written)
    while True:
        constants = Constants(written)
        found = find(written, patterns, constants=constants)
        made, skips = apply(
            written, found.matches, target="onnxruntime", loadability=[Loadability(provider)], constants=constants
        )
        done |= {r.pattern for r in made}
        if not made:
            break
    if case.name not in done:
        raise UnfusedError(f"{case.name} does not fuse its case: {skips or found.near_misses}\n{case.graph}")
    save(written, fused, unfused)
    return fused


def signature_of(case: Case, dtype: str, sizes: Mapping[str, int], folder: Path, provider: str) -> costs.Signature:
    """The key of this site in the table, with all sizes known."""
    unfused = folder / "static.onnx"
    onnx.save(model(case, case.graph, dtype, sizes, symbolic=False), unfused)
    if case.fused:
        made = folder / "static.fused.onnx"
        onnx.save(model(case, case.fused, dtype, sizes, symbolic=False), made)
    else:
        made = fused_file(case, dtype, sizes, unfused, provider)
    written = load(made)
    infer_shapes(written)
    nodes = [n for n in written.graph if case.fused or n.metadata_props.get(PATTERN) == case.name]
    node = costs.head(nodes)
    assert node is not None
    return costs.signature_of(node)


def draw(path: Path, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Feeds for a model. Indices are small, because tables are small."""
    generator = np.random.default_rng(0)
    feeds = {}
    for value in onnx.load(path).graph.input:
        shape = [d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if np.issubdtype(kind, np.integer) or kind == np.bool_:
            feeds[value.name] = np.asarray(generator.integers(0, 2, shape), kind)
        else:
            feeds[value.name] = np.asarray(generator.standard_normal(shape) * 0.5, kind)
    return feeds


def session(path: Path, threads: int, provider: str, *, own_fusions: bool = True) -> onnxruntime.InferenceSession:
    """A session with all of onnxruntime's optimisations, or without its fusions."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")  # its idle threads free the cores for the next session
    if not own_fusions:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=[provider])
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise UnfusedError(f"{provider} does not load {path.name}: {error}") from error


def compare(
    runs: Sequence[Callable[[], object]], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """The ratios of the first model's time to the second's and the third's: the least, that of the quickest rounds, the most.

    A fourth model is the surroundings; its time is subtracted from the others. The order is random in each round. Each
    model runs once before it is timed, because a model that follows itself finds more of its weights in the caches.

    clock: with one thread its processor time, which does not count other processes on the machine.
    """
    begun = time.perf_counter()
    for run in runs:
        run()
    repeats = 1 + int(LEAST / (time.perf_counter() - begun))
    rounds: list[list[float]] = []
    quickest, idle, order, draws = [math.inf] * len(runs), 0, list(range(len(runs))), Random(0)
    while len(rounds) < MOST_ROUNDS and idle < ROUNDS:
        times: list[list[float]] = [[] for _ in runs]
        ends = time.perf_counter() + seconds / ROUNDS
        while len(times[0]) < 4 or time.perf_counter() < ends:
            draws.shuffle(order)
            for index in order:
                runs[index]()
                begun = clock()
                for _ in range(repeats):
                    runs[index]()
                times[index].append(clock() - begun)
        best = [float(np.quantile(t, 0.25)) for t in times]
        rounds.append(best)
        idle = idle + 1 if all(b > 0.99 * q for b, q in zip(best, quickest, strict=True)) else 0
        quickest = [min(both) for both in zip(best, quickest, strict=True)]
    found = []
    for other in (1, 2):
        ratios = [ratio(each[0], each[other], *each[3:]) for each in (*rounds, quickest)]
        found.append([round(r, 3) for r in (min(ratios), ratios[-1], max(ratios))])
    return found


def ratio(fused: float, unfused: float, around: float = 0.0) -> float:
    """The ratio of the times without the surroundings; 1 if the surroundings alone took longer, since then the clock erred."""
    return max(0.1, (fused - around) / (unfused - around)) if min(fused, unfused) > around else 1.0


def machine() -> str:
    """The kind of processor, its cores in use and its vector instructions."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    found = re.search(r"model name\s*: (.*)", text)
    flags = [f for f in ("avx512f", "avx512_fp16", "avx2") if re.search(rf"\b{f}\b", text)]
    return f"{found.group(1) if found else platform.machine()}, {CORES} cores, {' '.join(flags)}".rstrip(", ")


def write(kept: Sequence[Row], machines: Machines) -> None:
    """The table, one measurement a line, and the page."""
    head = {"machines": {provider: dict(sorted(where.items())) for provider, where in sorted(machines.items())}}
    ordered = sorted(kept, key=lambda r: (r["provider"], r["pattern"], r["dtype"], json.dumps(r["attributes"]), r["threads"]))
    lines = ",\n  ".join(json.dumps(row) for row in ordered)
    inside = ",\n ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items())
    costs.TABLE.write_text(f'{{\n {inside},\n "measurements": [\n  {lines}\n ]\n}}\n', encoding="utf-8")
    (HERE / "operator_costs.md").write_text(page(machines, ordered), encoding="utf-8")


def page(machines: Machines, ordered: Sequence[Row]) -> str:
    """The table for readers: one line for each pattern and operator that it emits."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in ordered:
        flags = "".join(f" {k}={v}" for k, v in row["attributes"].items() if k not in SIZES and v)
        given = sum(o is not None for o in row["operands"])
        key = (
            row["pattern"],
            f"{row['operator']} of {given}{flags}",
            row["dtype"],
            row["provider"].removesuffix("ExecutionProvider"),
        )
        groups.setdefault(key, []).append(row)
    lines = [
        PREFACE.format(machines="\n".join(_machines(machines))),
        "| pattern | operator, and of how many inputs | dtype | provider | sites | by onnxruntime | apart |",
        "|---" * 7 + "|",
    ]
    for key, rows in groups.items():
        lines.append(f"| {' | '.join(key)} | {len(rows)} | {summary(rows, 'ratio')} | {summary(rows, 'apart')} |")
    return "\n".join(lines) + "\n"


def _machines(machines: Machines) -> Iterator[str]:
    """A line for each machine; the last one of a provider measured all other patterns."""
    for provider, measured in sorted(machines.items()):
        patterns: dict[str, list[str]] = {}
        for pattern, where in sorted(measured.items()):
            patterns.setdefault(where, []).append(pattern)
        *some, most = sorted(patterns, key=lambda where: len(patterns[where]))
        short = provider.removesuffix("ExecutionProvider")
        yield from (f"* {short}, {', '.join(patterns[where])}: {where}" for where in some)
        yield f"* {short}, {'the others' if some else 'all'}: {most}"


def summary(rows: Sequence[Row], kind: str) -> str:
    """The geometric mean of a kind of ratio, its least and its most."""
    ratios = [row[kind][1] for row in rows]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{mean:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    """Measure, and write the table after each case. An interrupted run keeps the old rows of the other cases."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", nargs="+", default=["*"], metavar="GLOB", help="the patterns that are measured")
    arguments.add_argument("--provider", default=CPU, choices=[CPU, *devices.DEVICES])
    arguments.add_argument(
        "--threads", type=int, nargs="+", metavar="N", help="numbers of threads; default: 1 and all, on a device 1"
    )
    arguments.add_argument("--seconds", type=float, default=0.2, help="for one comparison")
    given = arguments.parse_args()
    cases = [c for c in CASES if any(fnmatch.fnmatch(c.name, glob) for glob in given.only)]
    cases = [c for c in cases if c.provider in ("", given.provider)]
    old = json.loads(costs.TABLE.read_text(encoding="utf-8")) if costs.TABLE.exists() else {"measurements": [], "machines": {}}
    known, provider = {c.name for c in CASES}, given.provider
    kept = [r for r in old["measurements"] if r["pattern"] in known]
    machines: Machines = {p: {k: v for k, v in where.items() if k in known} for p, where in old["machines"].items()}
    counts = given.threads or ([1] if provider in devices.DEVICES else sorted({1, CORES}))
    place = devices.name(provider) if provider in devices.DEVICES else f"{machine()}, {' and '.join(map(str, counts))} threads"
    begun = set[str]()
    for case in cases:
        if case.name not in begun:
            kept = [r for r in kept if (r["pattern"], r["provider"]) != (case.name, provider)]
            begun.add(case.name)
        for dtype in case.dtypes:
            try:
                made = list(measured(case, dtype, provider, counts, given.seconds))
            except UnfusedError as error:
                if provider == CPU:
                    raise SystemExit(error) from error
                print(error, file=sys.stderr, flush=True)
                continue
            kept += made
            print(f"{case.name:32} {dtype:8} {summary(made, 'ratio')}, apart {summary(made, 'apart')}", flush=True)
            machines.setdefault(provider, {})[case.name] = f"onnxruntime {onnxruntime.__version__} on {place}"
            write(kept, machines)


if __name__ == "__main__":
    main()
