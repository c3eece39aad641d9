"""Measures our kernels against onnxruntime's, operator by operator: the fused operator, and the nodes that it replaces.

    python benchmarks/kernels.py [--only Linear] [--threads 1 2] [--seconds 2] [--write [FILE]]

All sessions of a row run in turn in one process, ours once for each instruction set of this processor. A ratio is our time over
onnxruntime's, of lower quartiles, with the minimum and maximum over parts of the runs. With one thread the time is processor
time, with more it is wall time. Products show their share of the peak that as many threads reach in registers. Other kernels show
gigabytes per second, beside the rate of copying as much memory. `--write` writes kernels.md, or another page.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from taking_turns import QUANTILE, quartiles, seconds_of_runs

from onnx_subgraph import kernels
from onnx_subgraph.timing.tuning import processor

PAGE = Path(__file__).with_name("kernels.md")
OPSETS = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1, "onnx_subgraph" : 1]>'
WORDS = {np.dtype(np.float32): "float", np.dtype(np.float16): "float16"}
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """One row.

    ours, theirs: the lines of a graph that computes y. inputs, constants: arrays, all floats of one type. operations or nbytes:
    its work. tolerance: of results, as a share of the largest.
    """

    kernel: str
    size: str
    ours: str
    theirs: str
    inputs: Mapping[str, np.ndarray]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    operations: float = 0.0
    nbytes: float = 0.0
    tolerance: float = 1e-3

    def model(self, lines: str) -> onnx.ModelProto:
        """The model of one graph, `ours` or `theirs`."""
        word = WORDS[next(iter(self.inputs.values())).dtype]
        given = ", ".join(f"{word}[{', '.join(map(str, array.shape))}] {name}" for name, array in self.inputs.items())
        model = onnx.parser.parse_model(f"{OPSETS} g ({given}) => ({word} y) {{ {lines} }}")
        model.graph.output[0].type.tensor_type.ClearField("shape")
        model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in self.constants.items())
        return model


def drawn(*shape: int) -> np.ndarray:
    """Random numbers like those of weights and activations."""
    return RNG.standard_normal(shape).astype(np.float32) * np.float32(0.5)


def linear() -> Iterator[Case]:
    """Products with weights, alone and with the operators that follow them in a transformer."""
    sizes = [(n, 768, 3072) for n in (1, 2, 4, 8, 15, 32, 64, 128, 512)] + [(n, 384, 384) for n in (1, 8, 32, 128)]
    sizes += [(128, 768, 768), (512, 768, 768), (128, 3072, 768), (512, 3072, 768), (128, 2048, 5632), (49, 96, 384)]
    more = [(1, 768, 3072), (128, 384, 384), (128, 768, 768), (128, 768, 3072), (128, 3072, 768), (512, 768, 3072)]
    endings = {
        "x @ w + b": ("Linear (x, w, b)", "p = MatMul(x, w) y = Add(p, b)"),
        "Gelu(x @ w + b)": ('Linear <act = "Gelu"> (x, w, b)', "p = MatMul(x, w) a = Add(p, b) y = Gelu(a)"),
        "Swish(x @ w) * gate": (
            'Linear <act = "Swish", alpha = 1.0> (x, w, "", gate)',
            "p = MatMul(x, w) s = Sigmoid(p) a = Mul(p, s) y = Mul(a, gate)",
        ),
        "x @ w + b + residual": (
            'Linear (x, w, b, "", residual)',
            "p = MatMul(x, w) a = Add(p, b) y = Add(a, residual)",
        ),
    }
    for name, (ours, theirs) in endings.items():
        for rows, depth, columns in sizes:
            if name == "x @ w + b" or (rows, depth, columns) in more:
                every = {"x": drawn(rows, depth), "gate": drawn(rows, columns), "residual": drawn(rows, columns)}
                inputs = {n: a for n, a in every.items() if n in theirs}
                constants = {n: a for n, a in {"w": drawn(depth, columns), "b": drawn(columns)}.items() if f" {n})" in theirs}
                size, operations = f"{rows}×{depth}×{columns}", 2.0 * rows * depth * columns
                yield Case(name, size, f"y = onnx_subgraph.{ours}", theirs, inputs, constants, operations)


def rows() -> Iterator[Case]:
    """Operators along rows and elementwise operators. nbytes counts each tensor that is read or written once."""
    plain = {
        "LayerNorm": ("LayerNorm <epsilon = 1e-5> (x, w, b)", "y = LayerNormalization <epsilon = 1e-5> (x, w, b)"),
        "LayerNorm(x + other)": (
            "AddLayerNorm <epsilon = 1e-5> (x, other, w, b)",
            "a = Add(x, other) y = LayerNormalization <epsilon = 1e-5> (a, w, b)",
        ),
        "RMSNorm": ("RMSNorm <epsilon = 1e-5> (x, w)", "y = RMSNormalization <epsilon = 1e-5> (x, w)"),
        "RMSNorm(x + other)": (
            "AddRMSNorm <epsilon = 1e-5> (x, other, w)",
            "a = Add(x, other) y = RMSNormalization <epsilon = 1e-5> (a, w)",
        ),
        "Gelu": ("Gelu (x)", "y = Gelu(x)"),
        "FastGelu": ("FastGelu (x)", 'y = Gelu <approximate = "tanh"> (x)'),
        "Swish": ("Swish <alpha = 1.0> (x)", "s = Sigmoid(x) y = Mul(x, s)"),
        "Softmax": ("Softmax (x)", "y = Softmax(x)"),
    }
    for name, (ours, theirs) in plain.items():
        for size in [(12 * 128, 128), (12 * 512, 512)] if name == "Softmax" else [(128, 768), (512, 768), (512, 3072)]:
            inputs = {"x": drawn(*size)} | ({"other": drawn(*size)} if "other" in theirs else {})
            constants = {n: drawn(size[1]) for n in ("w", "b") if f", {n}" in theirs}
            nbytes = 4.0 * (len(inputs) + 1) * size[0] * size[1]
            yield Case(name, "×".join(map(str, size)), f"y = onnx_subgraph.{ours}", theirs, inputs, constants, nbytes=nbytes)
    for length in (128, 512):
        angles = drawn(length, 32)
        inputs = {"x": drawn(1, 12, length, 64)}
        constants = {"cos": np.cos(angles), "sin": np.sin(angles), "c": np.cos(angles)[None], "s": np.sin(angles)[None]}
        constants["positions"] = np.arange(length, dtype=np.int64)[None]
        ours = "y = onnx_subgraph.Rotary <heads = 12, interleaved = 0> (x, c, s)"
        theirs = "y = com.microsoft.RotaryEmbedding(x, positions, cos, sin)"
        yield Case("Rotary", f"12×{length}×64", ours, theirs, inputs, constants, nbytes=8.0 * 12 * length * 64)


def attention() -> Iterator[Case]:
    """Attention of 12 heads of 64, against both operators that onnxruntime has for it."""
    standard = "q_num_heads = 12, kv_num_heads = 12, scale = 0.125"
    operators = {
        "apart": ("Attention <scale = 0.125> (q, k, v{mask})", "Attention <scale = 0.125> (q, k, v{mask})"),
        "behind": ("Attention <scale = 0.125, heads = 12> (q, k, v{mask})", f"Attention <{standard}> (q, k, v{{mask}})"),
        "behind, MultiHeadAttention": (
            "Attention <scale = 0.125, heads = 12> (q, k, v{mask})",
            "com.microsoft.MultiHeadAttention <num_heads = 12, scale = 0.125> (q, k, v{bias})",
        ),
    }
    for name, (ours, theirs) in operators.items():
        for length, keys, masked in [
            (16, 16, True),
            (64, 64, True),
            (128, 128, True),
            (128, 128, False),
            (512, 512, True),
            (2048, 2048, True),
            (1, 1024, False),
        ]:
            apart = name == "apart"
            inputs = {n: drawn(*((1, 12, t, 64) if apart else (1, t, 768))) for n, t in (("q", length), ("k", keys), ("v", keys))}
            inputs |= {"mask": drawn(1, 1, length, keys)} if masked else {}
            words = {"mask": ", mask" if masked else "", "bias": ', "", "", mask' if masked else ""}
            given = [f"y = {prefix}{call.format(**words)}" for prefix, call in (("onnx_subgraph.", ours), ("", theirs))]
            size = f"{length}×{keys}{', mask' if masked else ''}"
            yield Case(f"heads {name}", size, *given, inputs, operations=4.0 * 12 * length * keys * 64)


def rounded() -> Iterator[Case]:
    """Products whose weights may be bfloat16."""
    for rows, depth, columns in [(n, 768, 3072) for n in (1, 2, 4, 8, 16, 32, 64, 128, 512)] + [
        (1, 2048, 5632),
        (128, 2048, 5632),
    ]:
        inputs, constants = {"x": drawn(rows, depth)}, {"w": drawn(depth, columns), "b": drawn(columns)}
        ours, theirs = 'y = onnx_subgraph.Linear <numerics = "bf16"> (x, w, b)', "p = MatMul(x, w) y = Add(p, b)"
        size, operations = f"{rows}×{depth}×{columns}", 2.0 * rows * depth * columns
        yield Case("x @ w + b", size, ours, theirs, inputs, constants, operations, tolerance=1e-2)


def rounded_attention() -> Iterator[Case]:
    """Attention whose queries, keys, values and weights may be bfloat16."""
    for length in (16, 64, 128, 512, 1500, 2048):
        inputs = {name: drawn(1, 12, length, 64) for name in "qkv"}
        ours = 'y = onnx_subgraph.Attention <scale = 0.125, numerics = "bf16"> (q, k, v)'
        theirs, operations = "y = Attention <scale = 0.125> (q, k, v)", 4.0 * 12 * length * length * 64
        yield Case("heads apart", f"{length}×{length}", ours, theirs, inputs, operations=operations, tolerance=3e-2)


def float16(cases: Callable[[], Iterator[Case]]) -> Iterator[Case]:
    """The same cases with float16 tensors. onnxruntime chooses how it runs such nodes."""

    def narrow(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {n: a.astype(np.float16) if a.dtype == np.float32 else a for n, a in arrays.items()}

    for case in cases():
        arrays = {"inputs": narrow(case.inputs), "constants": narrow(case.constants)}
        yield replace(case, nbytes=case.nbytes / 2, tolerance=4e-3, **arrays)


CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "Linear": linear,
    "Linear, bf16": rounded,
    "Rows": rows,
    "Attention": attention,
    "Attention, bf16": rounded_attention,
    "Float16, Linear": partial(float16, linear),
    "Float16, rows": partial(float16, rows),
    "Float16, attention": partial(float16, attention),
}


def open_session(model: onnx.ModelProto, folder: Path, threads: int, isa: str | None = None) -> onnxruntime.InferenceSession:
    """A session with all of onnxruntime's optimisations, and with our kernels for `isa` if it is given."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if isa is not None:
        os.environ |= {"ONNX_SUBGRAPH_ISA": isa, "ONNX_SUBGRAPH_KERNELS": "all"}
        options.register_custom_ops_library(str(kernels.path()))
    path = folder / "model.onnx"
    onnx.save(model, path)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def peaks(isas: Sequence[str]) -> dict[str, float]:
    """The operations per second that each instruction set reaches in registers."""
    function = ctypes.CDLL(str(kernels.path())).onnx_subgraph_peak
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_char_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_float)]
    best = dict.fromkeys(isas, 0.0)
    for isa in [*isas] * 1000:  # so often that some run while the machine is idle
        number, begun = ctypes.c_float(0.5), time.thread_time()
        done = function(isa.encode(), 100_000, ctypes.byref(number))
        best[isa] = max(best[isa], done / (time.thread_time() - begun))
    return best


def copying(nbytes: float) -> float:
    """Bytes per second when copying, reads and writes together. nbytes: reads plus writes."""
    source = np.ones(int(nbytes) // 8, np.float32)
    target, best = np.empty_like(source), 0.0
    for _ in range(50):
        begun = time.thread_time()
        np.copyto(target, source)
        best = max(best, 2 * source.nbytes / (time.thread_time() - begun))
    return best


@dataclass(frozen=True)
class Measured:
    """The settings of a table. peak: operations per second of one thread, by instruction set. seconds: of timing, for a row."""

    isas: Sequence[str]
    peak: Mapping[str, float]
    threads: int
    seconds: float


def row(case: Case, measured: Measured, folder: Path) -> str:
    """One line of the table."""
    isas, threads = measured.isas, measured.threads
    sessions = {"onnxruntime": open_session(case.model(case.theirs), folder, threads)}
    sessions |= {isa: open_session(case.model(case.ours), folder, threads, isa) for isa in isas}
    expected, *results = [session.run(None, case.inputs)[0] for session in sessions.values()]
    for result in results:
        np.testing.assert_allclose(result, expected, atol=case.tolerance * np.abs(expected).max())
    times = seconds_of_runs(sessions, case.inputs, measured.seconds, threads)
    best = max(measured.peak.values())

    def rate(name: str, top: float) -> str:
        took = float(np.quantile(times[name], QUANTILE))
        return f"{case.operations / took / top / threads:.0%}" if case.operations else f"{case.nbytes / took * 1e-9:.0f} GB/s"

    theirs = np.quantile(times["onnxruntime"], QUANTILE) * 1e3
    cells = [f"{case.kernel} | {case.size} | {theirs:.3f} | {rate('onnxruntime', best)}"]
    for isa in isas:
        compared = quartiles(times[isa], times["onnxruntime"])
        cells.append(f"**{compared.ratio:.2f}** ({compared.least:.2f}–{compared.most:.2f}) | {rate(isa, measured.peak[isa])}")
    if case.nbytes and threads == 1:
        cells.append(f"{copying(case.nbytes) * 1e-9:.0f} GB/s")
    return f"| {' | '.join(cells)} |"


HEAD = """# Kernels against onnxruntime's

`python benchmarks/kernels.py --write`: onnxruntime {version} with all its optimisations, float32.
Processor: {processor}. Other work ran on the machine.

*ratio*: our time divided by onnxruntime's, for lower quartiles, with the least and the most of parts of the runs. Below
1 is faster. Times of one thread are processor time, others wall-clock time. All instruction sets are the same library,
limited by `ONNX_SUBGRAPH_ISA`; onnxruntime uses the best one of the processor. *reaches*: for a product, the share of
what products and sums of float32 reach in registers
({peaks});
for another kernel, the rate at which it reads and writes the bytes that it must. *copying* is the rate of copying as
many bytes. *Linear, bf16* has its weights in bfloat16, and *Attention, bf16* all its operands if the processor has
AVX512_BF16 or AMX. With them both can exceed the float32 peak.{amx}
"""
NO_AMX = " This processor has no AMX, so AMX is not measured."


def table(name: str, cases: Iterator[Case], measured: Measured) -> Iterator[str]:
    """The lines of one section."""
    shown, isas = list(cases), measured.isas
    moves = any(case.nbytes for case in shown) and measured.threads == 1
    yield f"\n## {name}, {measured.threads} thread{'s' if measured.threads > 1 else ''}\n"
    heads = ["kernel", "size", "onnxruntime, ms", "reaches", *(cell for isa in isas for cell in (f"{isa}, ratio", "reaches"))]
    heads += ["copying"] if moves else []
    yield f"| {' | '.join(heads)} |"
    yield f"|---|---|{'---:|' * (len(heads) - 2)}"
    with tempfile.TemporaryDirectory() as folder:
        for case in shown:
            yield row(case, measured, Path(folder))


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*CASES])
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, len(os.sched_getaffinity(0))}))
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row")
    parser.add_argument("--write", type=Path, nargs="?", const=PAGE, metavar="FILE", help="write the page, kernels.md or another")
    arguments = parser.parse_args()
    isas = [isa for isa in kernels.describe().here[::-1] if isa != "baseline"] or ["baseline"]
    peak = peaks(isas)
    said = ", ".join(f"{isa} {value * 1e-9:.0f} GFLOP/s" for isa, value in peak.items())
    lines = [HEAD.format(version=onnxruntime.__version__, processor=processor(), peaks=said, amx="" if "amx" in isas else NO_AMX)]
    print(lines[0])
    for threads, (name, cases) in itertools.product(arguments.threads, CASES.items()):
        if name.startswith(arguments.only or ""):
            for line in table(name, cases(), Measured(isas, peak, threads, arguments.seconds)):
                print(line, flush=True)
                lines.append(line)
    if arguments.write:
        arguments.write.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
