"""Compares a runtime with other kernels with onnxruntime and with float64, and plants errors in it.

    python benchmarks/other_kernels.py MODEL... [--page benchmarks/other_kernels.md]

OpenVINO runs each model as a whole. *noise* is the largest difference from onnxruntime's outputs, as a share of the bound of a
fusion. *truth* is the same as a share of the bound that follows from onnxruntime's own distance from a float64 evaluation.
Verification refuses what is over 1 in both. Then errors are planted in OpenVINO's model: one weight in the middle of the network
is multiplied by 1 + δ, or one attribute is wrong. Needs the extra `openvino`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import numpy_helper
from rows import tell

from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.evaluator.truth import UnknownError
from onnx_subgraph.files.models import load
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from onnx_subgraph.partitioning.worth import RegionLimits
from onnx_subgraph.verification.bounds import is_float
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.judge import Finding, compare, compare_all, flatten
from onnx_subgraph.verification.nearness import around, exactly
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.sessions import Failure, open_session, run
from onnx_subgraph.verification.trial import CPU

DELTAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""The planted errors of a weight, relative to it."""

Outputs = Mapping[str, np.ndarray]


def by_openvino(model: onnx.ModelProto, folder: Path, feeds: Mapping[str, np.ndarray]) -> Outputs:
    """The outputs of OpenVINO for a model that it runs whole."""
    source, target = folder / "given.onnx", folder / "partitioned.onnx"
    onnx.save(model, source)
    partition(source, target, PartitionOptions("openvino", RegionLimits(min_nodes=1, max_crossing=9), verify=False))
    session = EngineSession(target)
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, feeds), strict=True))


def share(findings: Mapping[str, Finding], aggregates: Mapping[str, float]) -> float:
    """The largest error of an output divided by its bound, for single elements and for the root mean square."""
    parts = [
        np.inf if f.problem and "root mean" not in f.problem else f.error / f.bound if f.bound else f.error
        for f in findings.values()
    ]
    return float(max([*parts, *aggregates.values()], default=0.0))


def rms(one: np.ndarray, other: np.ndarray) -> float:
    """The root mean square of the difference."""
    return float(np.sqrt(np.mean((one.astype(np.float64) - other.astype(np.float64)) ** 2)))


def against_noise(case: Case, outputs: Outputs) -> float:
    """The error of these outputs divided by the bound for a fusion."""
    mine = flatten(case.outputs)
    aggregates = {n: rms(mine[n], outputs[n]) / case.bounds[n].aggregate for n in mine if is_float(mine[n])}
    return share(compare_all(case.outputs, outputs, case.bounds), aggregates)


def against_truth(case: Case, truth: Outputs, again: Outputs, outputs: Outputs) -> float:
    """The distance of these outputs from float64 divided by its bound."""
    findings, aggregates = {}, {}
    for name, reference in flatten(case.outputs).items():
        if not is_float(reference):
            continue
        exact = truth[name].astype(reference.dtype)
        allowed = around(exact, (reference, again[name]))
        findings[name] = compare(exact, outputs[name], allowed)
        aggregates[name] = rms(exact, outputs[name]) / allowed.aggregate
    return share(findings, aggregates)


def scaled(model: onnx.ModelProto, name: str, factor: float) -> onnx.ModelProto:
    """The model with one of its weights multiplied."""
    wrong = onnx.ModelProto()
    wrong.CopyFrom(model)
    (tensor,) = (t for t in wrong.graph.initializer if t.name == name)
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array((array.astype(np.float64) * factor).astype(array.dtype), tensor.name))
    return wrong


def weights_from_the_middle(model: onnx.ModelProto) -> list[str]:
    """The float weights of more than one dimension, the middle one first, then those around it."""
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
    names = [t.name for t in model.graph.initializer if t.data_type in floats and len(t.dims) > 1]
    return sorted(names, key=lambda name: abs(names.index(name) - len(names) // 2))


def misread(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Models with one wrong attribute, and its name: operator by operator, from the middle of the model to its end."""
    for operator, name, change in WRONG:
        count = sum(n.op_type == operator for n in model.graph.node)
        for place in range(count // 2, count):
            wrong = onnx.ModelProto()
            wrong.CopyFrom(model)
            node = [n for n in wrong.graph.node if n.op_type == operator][place]
            for attribute in (a for a in node.attribute if a.name == name):
                before = onnx.helper.get_attribute_value(attribute)
                after = change(before)
                if after is not None and after != before:
                    attribute.CopyFrom(onnx.helper.make_attribute(name, after))
                    yield f"{operator}.{name} {written(before)} → {written(after)}", wrong


def written(value: object) -> str:
    """A value of an attribute as text."""
    return f"{value:.0e}" if isinstance(value, float) else value.decode() if isinstance(value, bytes) else str(value)


def _shifted(pads: list[int]) -> list[int] | None:
    """Pads that keep the shape and move the window."""
    half = len(pads) // 2
    return [0] * half + [a + b for a, b in zip(pads[:half], pads[half:], strict=True)] if any(pads[:half]) else None


WRONG: tuple[tuple[str, str, Callable[..., object]], ...] = (
    ("LayerNormalization", "epsilon", lambda value: value * 10),
    ("BatchNormalization", "epsilon", lambda value: value * 10),
    ("Gelu", "approximate", lambda value: b"tanh" if value == b"none" else b"none"),
    ("Conv", "pads", _shifted),
    ("Softmax", "axis", lambda value: 1),
    ("LSTM", "direction", lambda value: b"reverse" if value == b"forward" else None),
)


def row(path: Path, folder: Path) -> str:
    """One line of the table."""
    reference = Reference(path)
    cases = reference.cases(CPU)
    if isinstance(cases, Failure):
        return f"| {path.stem} | {cases.message} | | | |"
    case, model = cases[0], onnx.load(path)
    session = open_session(path, CPU, optimised=True)
    again = flatten(run(session, case.feeds))  # type: ignore[arg-type]
    truth: Outputs | None = None
    try:
        truth = flatten(exactly(path, load(path))(case.feeds))
    except UnknownError as why:
        print(f"{path.stem}: {why}")

    def both(given: onnx.ModelProto) -> tuple[float, float]:
        outputs = by_openvino(given, folder, case.feeds)
        return against_noise(case, outputs), np.inf if truth is None else against_truth(case, truth, again, outputs)

    def seen(given: onnx.ModelProto) -> str:
        ours = min(both(given))
        return f"{ours:.1f}" if ours < 100 else "> 100"

    def matters(given: onnx.ModelProto, least: float) -> bool:
        """Whether onnxruntime's outputs change by this share of their size. In some networks with random weights they do not."""
        outputs = run(open_session(given.SerializeToString(), CPU, optimised=True), case.feeds)  # type: ignore[arg-type]
        if isinstance(outputs, Failure):
            return False
        theirs = flatten(outputs)
        return any(rms(a, theirs[n]) > least * rms(a, np.zeros(1)) for n, a in again.items() if a.shape == theirs[n].shape)

    noise, near = both(model)
    weight = next(name for name in weights_from_the_middle(model) if matters(scaled(model, name, 2.0), 1e-3))
    planted = [seen(scaled(model, weight, 1 + delta)) for delta in DELTAS]
    wrong = next((one for one in misread(model) if matters(one[1], 1e-6)), None)
    attribute = "" if wrong is None else f"{seen(wrong[1])} ({wrong[0]})"
    return f"| {path.stem} | {noise:.2f} | {near:.2f} | {' | '.join(planted)} | {attribute} |"


HEAD = """# A runtime with other kernels: how near it comes, and what is seen

Made by `python benchmarks/other_kernels.py MODEL…`. OpenVINO {openvino} runs each model whole. Numbers are the errors of its
outputs, divided by the bound of verification. *noise*: compared with onnxruntime {onnxruntime}, with the bound for a fusion.
*truth*: compared with a float64 evaluation of the model, with a bound that comes from onnxruntime's own distance to it. A model
over 1 in both is refused. The other columns are the smaller of the two for errors planted in OpenVINO's model: one weight
multiplied by 1 + δ, or one wrong attribute. The weight is the one nearest to the middle of the network on which the outputs
depend.

| model | noise | truth | {deltas} | an attribute |
|---|---:|---:|{rules}|---|
"""


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    head = HEAD.format(
        openvino=openvino.__version__.split("-")[0],
        onnxruntime=onnxruntime.__version__,
        deltas=" | ".join(f"δ = {delta:.0e}" for delta in DELTAS),
        rules="|".join("---:" for _ in DELTAS),
    )
    with tempfile.TemporaryDirectory() as folder:
        tell(head, (row(model, Path(folder)) for model in arguments.models), arguments.page)


if __name__ == "__main__":
    main()
