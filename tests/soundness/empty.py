"""Runs every pattern's instances with sizes of 0, before and after fusing; prints a line for each that runs only before.

    python tests/soundness/empty.py [PATTERN…]

Some of onnxruntime's kernels end the process for an empty tensor, so each model runs in a child process of its own. An instance
whose rewrite assumes that no size is 0 may fail.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from onnx_subgraph import load_patterns
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import copied, infer_shapes
from onnx_subgraph.proving.covering import base_spellings
from onnx_subgraph.proving.instance import Instance, build
from onnx_subgraph.proving.spelling import UnbuildableError
from onnx_subgraph.rewriting.apply import apply
from onnx_subgraph.rewriting.loadability import Loadability

PROVIDER = "CPUExecutionProvider"
FIRST_ONLY = frozenset({"multi-head-attention"})
"""Patterns of which only the first spelling is tried. This one has dozens, and all assume that no size is 0."""
SAID = frozenset({"nonempty", "nonempty-images"})
"""Assumptions with which a rewrite may fail."""
Feeds = dict[str, np.ndarray]
Outputs = list[np.ndarray] | None


def run(proto: onnx.ModelProto, feeds: Feeds) -> Outputs:
    """The outputs of a model, computed in a child process; None where onnxruntime raises or ends the process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=[PROVIDER])
            outputs = session.run(None, feeds)
        except Exception:
            os._exit(1)
        with os.fdopen(writing, "wb") as pipe:
            np.savez(pipe, *outputs)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    return list(np.load(io.BytesIO(data)).values()) if os.waitpid(child, 0)[1] == 0 else None


def with_free(instance: Instance, size: int) -> onnx.ModelProto:
    """The instance with a free dimension N in place of each input's dimension of this size, and outputs of unknown shape."""
    proto = onnx.ModelProto()
    proto.CopyFrom(instance.proto)
    for value in proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value == size:
                dim.dim_param = "N"
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    return proto


def instances(pattern: Pattern) -> Iterator[Instance]:
    """The plain instances of a pattern: each alternative occurs in one."""
    for number, spelling in enumerate(base_spellings(pattern)):
        if number and pattern.id in FIRST_ONLY:
            return
        try:
            yield build(pattern, spelling)
        except UnbuildableError:
            continue


def failing(pattern: Pattern, loads: Loadability) -> Iterator[str]:
    """Where a fused instance fails or differs with a size of 0, and its original runs."""
    for instance in instances(pattern):
        for size in sorted({size for array in instance.feeds.values() for size in array.shape if size > 1}):
            proto = with_free(instance, size)
            shapes = {name: [0 if n == size else n for n in array.shape] for name, array in instance.feeds.items()}
            feeds = {name: np.zeros(shape, instance.feeds[name].dtype) for name, shape in shapes.items()}
            if (expected := run(proto, feeds)) is None:
                continue
            inferred = ir.from_proto(proto)
            infer_shapes(inferred)
            for target in pattern.targets:
                model = copied(inferred)
                constants = Constants(model)
                found = find(model, [pattern], constants=constants)
                rewrites, _ = apply(model, found.matches, target=target, loadability=[loads], constants=constants)
                if not rewrites or any(SAID & rewrite.assumes for rewrite in rewrites):
                    continue
                outputs = run(ir.to_proto(model), feeds)
                if outputs is None or not all(map(_equal, expected, outputs)):
                    yield f"{pattern.id} for {target} {'fails' if outputs is None else 'differs'} at {shapes}"


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-2, atol=1e-3, equal_nan=True)


def main() -> None:
    """Print what fails, and how many patterns were tried."""
    loads = Loadability(PROVIDER)
    patterns = [p for p in load_patterns().patterns if p.is_formula and (len(sys.argv) == 1 or p.id in sys.argv)]
    for pattern in patterns:
        for line in failing(pattern, loads):
            sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{len(patterns)} patterns\n")


if __name__ == "__main__":
    main()
