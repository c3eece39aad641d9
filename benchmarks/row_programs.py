"""Measures the share of a native model's time in regions that one pass over rows could compute.

    python benchmarks/row_programs.py CORPUS [--models 'bert*'] MODEL.onnx… [--shape INPUT=1x128] [--cache DIR] [--write]

A model is fused for our library of kernels, and runs with it on one thread with onnxruntime's profile. The fastest run of each
node counts. A region is a connected set of nodes that work elementwise or along rows and are not kernels of ours. Its share is an
upper bound of the gain: one pass still has to read the inputs of the region and write its outputs.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from native import MODELS
from tasks import Task, feeds_of, runnable, tasks

from onnx_subgraph import Options, fuse, kernels, load_patterns
from onnx_subgraph.cli.options import input_shape

PAGE = Path(__file__).with_name("row_programs.md")
RUNS = 12
LEAST = 0.03
"""The least share of a model's time for which a region would be worth a kernel."""
ELEMENTWISE = """Abs Add And BiasGelu Cast Ceil Clip Cos Div Elu Equal Erf Exp FastGelu Floor Gelu HardSigmoid HardSwish LeakyRelu
    Less Log Max Min Mish Mod Mul Neg Not Or PRelu Pow QuickGelu Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Sqrt Sub
    Swish Tanh Where"""
ROWWISE = """GroupNorm GroupNormalization InstanceNormalization LayerNormalization LogSoftmax RMSNormalization ReduceL2 ReduceMax
    ReduceMean ReduceSum RotaryEmbedding SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization
    Softmax"""
OPERATORS = frozenset([*ELEMENTWISE.split(), *ROWWISE.split()])


@dataclass(frozen=True)
class Region:
    """Connected nodes of one model. alike: number of regions with these operators. share: their part of the model's time."""

    operators: str
    alike: int
    share: float


@dataclass(frozen=True)
class Row:
    """A model. milliseconds: of its nodes. ours, elsewhere: shares of our kernels and of all nodes outside regions."""

    name: str
    milliseconds: float
    ours: float
    elsewhere: float
    regions: Sequence[Region]


def profiled(model: Path, feeds: Mapping[str, np.ndarray]) -> tuple[Mapping[str, float], onnx.ModelProto]:
    """Node name → seconds of its quickest run, and the model that onnxruntime made with its optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level, options.enable_profiling = 1, 4, True
    options.register_custom_ops_library(str(kernels.path()))
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "model.onnx")
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        for _ in range(RUNS):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        optimised = onnx.load(options.optimized_model_filepath, load_external_data=False)
    seconds: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            seconds[event["name"].removesuffix("_kernel_time")].append(event["dur"] * 1e-6)
    return {name: min(runs) for name, runs in seconds.items()}, optimised


def regions(model: onnx.ModelProto, seconds: Mapping[str, float]) -> Iterator[list[onnx.NodeProto]]:
    """The regions: lists of connected nodes that a row program could compute."""
    nodes = [n for n in model.graph.node if n.op_type in OPERATORS and n.domain != "onnx_subgraph" and n.name in seconds]
    region = {output: number for number, node in enumerate(nodes) for output in node.output}
    parent = list(range(len(nodes)))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    for number, node in enumerate(nodes):
        for name in node.input:
            if name in region:
                parent[root(number)] = root(region[name])
    found: dict[int, list[onnx.NodeProto]] = defaultdict(list)
    for number, node in enumerate(nodes):
        found[root(number)].append(node)
    yield from found.values()


def measure(task: Task) -> Row:
    """Fuse a model for our kernels, and measure the regions that are left."""
    with tempfile.TemporaryDirectory() as folder:
        original = runnable(task, Path(folder))
        native = Path(folder) / "native.onnx"
        result = fuse(original, native, load_patterns(), Options(target="native", verify=False))
        path = result.output or original
        seconds, model = profiled(path, feeds_of(original, task))
    total = sum(seconds.values())
    ours = sum(seconds.get(node.name, 0.0) for node in model.graph.node if node.domain == "onnx_subgraph")
    shares: Counter[str] = Counter()
    alike: Counter[str] = Counter()
    for nodes in regions(model, seconds):
        counts = Counter(node.op_type for node in nodes)
        said = ", ".join(f"{name} {n}" if n > 1 else name for name, n in sorted(counts.items()))
        shares[said] += sum(seconds[node.name] for node in nodes) / total
        alike[said] += 1
    found = [Region(said, alike[said], share) for said, share in shares.most_common()]
    return Row(task.name, total * 1e3, ours / total, 1 - ours / total - sum(r.share for r in found), found)


HEAD = """# What row programs could gain

Made by `python benchmarks/row_programs.py CORPUS MODEL…` with onnxruntime {version}, one thread. The models are fused for our
kernels and run with them. A region is a set of connected nodes that are elementwise or work along rows. *several nodes* is the
share of the time in regions of two nodes or more, which a row program could compute in one pass. *alone* is that in regions of
one node. The last column has regions of several nodes with {least:.0%} or more of a model's time; regions with the same
operators are added.

| model | ms | our kernels | elsewhere | several nodes | alone | regions |
|---|---:|---:|---:|---:|---:|---|
"""


def told(row: Row) -> str:
    """One line of the table."""
    several = [region for region in row.regions if " " in region.operators]
    alone = sum(region.share for region in row.regions) - sum(region.share for region in several)
    large = "; ".join(f"{r.operators} ({r.alike} times, {r.share:.1%})" for r in several if r.share >= LEAST)
    shares = (row.ours, row.elsewhere, sum(region.share for region in several), alone)
    return f"| {row.name} | {row.milliseconds:.1f} | {' | '.join(f'{share:.1%}' for share in shares)} | {large} |"


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models_or_corpus", type=Path, nargs="+", metavar="CORPUS|MODEL.onnx")
    parser.add_argument("--models", default="", help="a glob over the names of the corpus, in place of the usual ones")
    parser.add_argument("--shape", type=input_shape, action="append", default=[], help="INPUT=1x128, for files")
    parser.add_argument("--cache", type=Path, help="a folder of runnable models, filled as needed")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    lines = []
    for task in tasks(given.models_or_corpus, threads=1, cache=given.cache, shapes=given.shape):
        usual = fnmatch.fnmatch(task.name, given.models) if given.models else task.name in MODELS
        if task.corpus is None or usual:
            lines.append(told(measure(task)))
            print(lines[-1], flush=True)
    if given.write:
        PAGE.write_text(HEAD.format(version=onnxruntime.__version__, least=LEAST) + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
