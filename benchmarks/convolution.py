"""Measures whether a convolution kernel of our own would pay: a prototype against onnxruntime's, in whole models.

    python benchmarks/convolution.py MODEL.onnx[@INPUT=1x3x320x320]… [--rounds 20] [--write]

Each model is fused first. onnxruntime runs it with all optimisations and a profile, in its blocked layout and with the
activations that it fuses. Between these runs the prototype (convolution.c) computes each convolution of the model with bias,
activation and residual, on arrays in the cache, with AVX-512 and with AVX2. Everything uses one thread. The fastest run of each
convolution counts. For every shape the prototype's results are compared with those of onnxruntime's Conv.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import math
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from tasks import Task, feeds_of

from kernels import peaks, processor
from onnx_subgraph import Options, fuse, kernels, load_patterns
from onnx_subgraph.cli.options import input_shape
from onnx_subgraph.kernels.compilers import COMMON, compilers, instruction_sets

HERE = Path(__file__).resolve().parent
PAGE = HERE / "convolution.md"
CLASSES = ("1×1", "k×k", "depthwise")
ACTIVATIONS = {"Relu": 1, "Sigmoid": 6, "HardSwish": 7}
"""The numbers that convolution.c uses. Any other activation counts as Swish, the most expensive one."""
AFTER = {"ReorderInput", "ReorderOutput", "Add", "Mul", "Div", "Clip", "Relu", "Sigmoid", "HardSigmoid", "HardSwish", "LeakyRelu"}
AFTER |= {"PRelu", "QuickGelu", "Gelu", "Tanh"}
"""The operators that an epilogue and one layout for the whole model could remove at most."""


class Convolution(ctypes.Structure):
    """As in convolution.c."""

    _fields_ = [
        *(
            (name, ctypes.c_int64)
            for name in ["channels", "height", "width", "filters", "y_height", "y_width", "kernel_y", "kernel_x"]
        ),
        *((name, ctypes.c_int64) for name in ["stride", "top", "left", "activation", "alone"]),
        *((name, ctypes.c_void_p) for name in ["x", "w", "bias", "residual", "y"]),
    ]


@dataclass(frozen=True)
class Shape:
    """A convolution of a model. x, w, y: shapes; pads: top, left, bottom, right."""

    x: Sequence[int]
    w: Sequence[int]
    y: Sequence[int]
    stride: int
    pads: Sequence[int]
    group: int
    activation: str
    residual: bool

    @property
    def kind(self) -> str:
        """One of CLASSES."""
        return "depthwise" if self.group > 1 else "1×1" if math.prod(self.w[2:]) == 1 else "k×k"

    @property
    def operations(self) -> float:
        """Products and sums."""
        return 2.0 * math.prod(self.y) * math.prod(self.w[1:])


@dataclass(frozen=True)
class Row:
    """A model. theirs, operations: by class. ours: by instruction set and class. after: of AFTER. Times in seconds."""

    name: str
    theirs: Mapping[str, float]
    ours: Mapping[str, Mapping[str, float]]
    operations: Mapping[str, float]
    after: float
    total: float


Libraries = Mapping[str, ctypes.CDLL]


class Prototype:
    """One convolution of a model, with arrays of its own."""

    def __init__(self, library: ctypes.CDLL, shape: Shape) -> None:
        draw = np.random.default_rng(0).standard_normal
        self.shape, self._library = shape, library
        image = (1, *shape.x[1:])
        self.x, self.w = draw(image, np.float32), draw(shape.w, np.float32)
        self.bias = draw(shape.w[0], np.float32)
        self.y = np.empty((1, *shape.y[1:]), np.float32)
        self.residual = draw(self.y.shape, np.float32) if shape.residual else None
        sizes = (*shape.x[1:], *shape.y[1:], *shape.w[2:], shape.stride, *shape.pads[:2])
        activation = ACTIVATIONS.get(shape.activation, 4) if shape.activation else 0
        arrays = (self.x, self.w, self.bias, self.residual, self.y)
        pointers = [None if array is None else array.ctypes.data for array in arrays]
        self._said = Convolution(*sizes, activation, int(shape.group > 1), *pointers)

    def seconds(self) -> float:
        """Seconds for all images of a batch. It runs twice, and the second run, with its arrays in the cache, counts."""
        runs = [self._library.convolve(ctypes.byref(self._said)) for _ in range(2)]
        return float(self.shape.x[0] * runs[-1])

    def check(self) -> None:
        """Compare the results of the prototype with those of onnxruntime."""
        before, self._said.activation = self._said.activation, 0
        self.seconds()
        self._said.activation = before
        pads, kernel = ", ".join(map(str, self.shape.pads)), ", ".join(map(str, self.shape.w[2:]))
        attributes = f"strides = [{self.shape.stride}, {self.shape.stride}], pads = [{pads}], kernel_shape = [{kernel}]"
        text = f"""<ir_version: 10, opset_import: ["" : 18]>
            g (float[a,b,c,d] x, float[e,f,h,i] w, float[j] v) => (float[k,l,m,n] y)
            {{ y = Conv <group = {self.shape.group}, {attributes}> (x, w, v) }}"""
        session = onnxruntime.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
        (expected,) = session.run(None, {"x": self.x, "w": self.w, "v": self.bias})
        expected += 0 if self.residual is None else self.residual
        np.testing.assert_allclose(self.y, expected, atol=1e-4 * np.abs(expected).max())


def profiled(
    path: Path, feeds: Mapping[str, np.ndarray], rounds: int, *, blocked: bool, between: Any = None
) -> list[dict[str, Any]]:
    """Every node with its shapes and attributes; `seconds` is its quickest run."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level, options.enable_profiling = 1, 4, True
    if not blocked:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "model.onnx")
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        for _ in range(rounds):
            session.run(None, feeds)
            if between:
                between()
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        nodes = {node.name: node for node in onnx.load(options.optimized_model_filepath).graph.node}
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            found[event["name"].removesuffix("_kernel_time")].append(event)
    return [
        {
            "operator": runs[-1]["args"]["op_name"],
            "inputs": [s for one in runs[-1]["args"]["input_type_shape"] for s in one.values()],
            "outputs": [s for one in runs[-1]["args"]["output_type_shape"] for s in one.values()],
            "attributes": {a.name: onnx.helper.get_attribute_value(a) for a in nodes[name].attribute},
            "uses": [other.op_type for other in nodes.values() if nodes[name].output[0] in other.input],
            "seconds": min(run["dur"] for run in runs) * 1e-6,
        }
        for name, runs in found.items()
        if name in nodes
    ]


def shape_of(node: Mapping[str, Any]) -> Shape | None:
    """A node as a convolution; None if the prototype does not support it."""
    if node["operator"] not in ("Conv", "FusedConv") or len(node["inputs"][1]) != 4:
        return None
    said, inputs = node["attributes"], node["inputs"]
    pads, strides, group = said.get("pads", [0] * 4), said.get("strides", [1, 1]), said.get("group", 1)
    plain = set(said.get("dilations", [1])) == {1} and strides[0] == strides[1] and said.get("auto_pad", b"NOTSET") == b"NOTSET"
    if not plain or group not in (1, inputs[0][1]) or (group > 1 and inputs[1][0] != group):
        return None
    after = set(node["uses"])
    follows = "Swish" if "QuickGelu" in after else "HardSwish" if "HardSigmoid" in after else ""
    activation = said.get("activation", b"").decode() or follows
    return Shape(inputs[0], inputs[1], node["outputs"][0], strides[0], pads, group, activation, len(inputs) > 3)


def measure(name: str, path: Path, shapes: Mapping[str, tuple[int, ...]], isas: Libraries, rounds: int) -> Row:
    """Time onnxruntime's nodes and the prototype's in turn."""
    feeds = feeds_of(path, Task(name, path, 0.0, 1, shapes=shapes))
    found = [shape for node in profiled(path, feeds, 1, blocked=False) if (shape := shape_of(node))]
    ours = {isa: [Prototype(library, shape) for shape in found] for isa, library in isas.items()}
    for one in itertools.chain(*ours.values()):
        one.check()
    times: dict[str, list[list[float]]] = {isa: [] for isa in isas}

    def between() -> None:
        for isa, convolutions in ours.items():
            times[isa].append([one.seconds() for one in convolutions])

    nodes = profiled(path, feeds, rounds, blocked=True, between=between)
    zeros = dict.fromkeys(CLASSES, 0.0)
    theirs, operations, mine = dict(zeros), dict(zeros), {isa: dict(zeros) for isa in isas}
    for node in nodes:
        if node["operator"] in ("Conv", "FusedConv") and len(node["inputs"][1]) == 4:
            group, kernel = node["attributes"].get("group", 1), math.prod(node["inputs"][1][2:])
            theirs["depthwise" if group > 1 else "1×1" if kernel == 1 else "k×k"] += node["seconds"]
    for shape in found:
        operations[shape.kind] += shape.operations
    for isa, runs in times.items():
        for shape, seconds in zip(found, np.min(runs, axis=0), strict=True):
            mine[isa][shape.kind] += float(seconds)
    after = sum(node["seconds"] for node in nodes if node["operator"] in AFTER)
    return Row(name, theirs, mine, operations, after, sum(node["seconds"] for node in nodes))


def built(isa: str, folder: Path) -> ctypes.CDLL:
    """The prototype for one instruction set."""
    library = folder / f"{isa}.so"
    compiler = next(compilers())
    flags = [*COMMON, *compiler.flags, *instruction_sets()[isa], "-fPIC", "-shared", f"-I{HERE.parent / 'kernels'}"]
    subprocess.run([*compiler.command, *flags, str(HERE / "convolution.c"), "-o", str(library), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.convolve.restype = ctypes.c_double
    return loaded


HEAD = """# Convolutions: whether kernels of our own would pay

`python benchmarks/convolution.py MODEL… --write`, with onnxruntime {version} on {processor}, one thread; other
work ran on the machine. The models were fused first. In registers, products and sums reach {peaks}.

*share*: of the model's time. *reaches*: GFLOP/s of onnxruntime's convolutions, in its blocked layout. *avx512*, *avx2*: the time
of a prototype (`convolution.c`) divided by onnxruntime's. *products*: the model's time if the prototype computed its convolutions
with AVX-512, divided by its time now. *at best*: the same if all activations, sums, products of elements and changes of layout
also took no time, a limit that no epilogue reaches.
"""


def table(isas: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """The table of the page."""
    heads = [f"{kind}, share | reaches | {' | '.join(isas)}" for kind in CLASSES]
    yield f"| model | ms | {' | '.join(heads)} | products | at best |"
    yield f"|---|---:|{('---:|---:|' + '---:|' * len(isas)) * len(CLASSES)}---:|---:|"
    means = []
    for row in rows:
        cells = [row.name, f"{row.total * 1e3:.1f}"]
        for kind in CLASSES:
            theirs, operations = row.theirs[kind], row.operations[kind] * 1e-9
            cells += [f"{theirs / row.total:.0%}", f"{operations / theirs:.0f}" if theirs else ""]
            cells += [f"{row.ours[isa][kind] / theirs:.2f}" if theirs else "" for isa in isas]
        products = row.total - sum(row.theirs.values()) + sum(row.ours[isas[0]].values())
        means.append((products / row.total, (products - row.after) / row.total))
        yield f"| {' | '.join([*cells, *(f'**{ratio:.2f}**' for ratio in means[-1])])} |"
    last = [f"**{statistics.geometric_mean(each):.2f}**" for each in zip(*means, strict=True)]
    yield f"| geometric mean | | {' | ' * (len(CLASSES) * (2 + len(isas)))}{' | '.join(last)} |"


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx[@INPUT=1x3x320x320]")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    isas = [isa for isa in ("avx512", "avx2") if isa in kernels.describe().here]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        libraries = {isa: built(isa, Path(folder)) for isa in isas}
        for said in given.models:
            name, _, sizes = said.partition("@")
            result = fuse(Path(name), Path(folder) / Path(name).name, load_patterns(), Options(verify=False))
            shapes = dict(map(input_shape, filter(None, sizes.split(","))))
            rows.append(measure(Path(name).stem, result.output or Path(name), shapes, libraries, given.rounds))
            print(rows[-1], flush=True)
    reached = ", ".join(f"{isa} {value * 1e-9:.0f} GFLOP/s" for isa, value in peaks(isas).items())
    head = HEAD.format(version=onnxruntime.__version__, processor=processor(), peaks=reached)
    print(text := "\n".join([head, *table(isas, rows)]))
    if given.write:
        PAGE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
