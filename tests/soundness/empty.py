"""Runs every pattern's instances with sizes of 0, before and after fusing; prints a line for each that runs only before.

    python tests/soundness/empty.py [--spellings N] [PATTERN…]

Some of onnxruntime's kernels end the process for an empty tensor, so models run in child processes. An instance whose rewrite
assumes that no size is 0 may fail.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing import Pipe

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


def outputs_of(models: Sequence[tuple[onnx.ModelProto, Feeds]]) -> list[Outputs]:
    """The outputs of each model; None where onnxruntime raises, or ends the child process that runs them."""
    found: list[Outputs] = []
    while len(found) < len(models):
        receiver, sender = Pipe(duplex=False)
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            for proto, feeds in models[len(found) :]:
                sender.send_bytes(_ran(proto, feeds))
            os._exit(0)
        sender.close()
        try:
            while len(found) < len(models):
                data = receiver.recv_bytes()
                found.append(list(np.load(io.BytesIO(data)).values()) if data else None)
        except EOFError:
            found.append(None)
        os.waitpid(child, 0)
    return found


def _ran(proto: onnx.ModelProto, feeds: Feeds) -> bytes:
    """The outputs of a model in numpy's format, empty where onnxruntime raises."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=[PROVIDER])
        outputs = session.run(None, feeds)
    except Exception:
        return b""
    data = io.BytesIO()
    np.savez(data, *outputs)
    return data.getvalue()


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


def instances(pattern: Pattern, most: int | None) -> Iterator[Instance]:
    """The plain instances of a pattern, `most` at most; each alternative occurs in one."""
    for spelling in islice(base_spellings(pattern), 1 if pattern.id in FIRST_ONLY else most):
        try:
            yield build(pattern, spelling)
        except UnbuildableError:
            continue


def emptied(pattern: Pattern, most: int | None) -> Iterator[tuple[onnx.ModelProto, Feeds]]:
    """The instances of a pattern with inputs in which one size is 0."""
    for instance in instances(pattern, most):
        for size in sorted({size for array in instance.feeds.values() for size in array.shape if size > 1}):
            shapes = {name: [0 if n == size else n for n in array.shape] for name, array in instance.feeds.items()}
            feeds = {name: np.zeros(shape, instance.feeds[name].dtype) for name, shape in shapes.items()}
            yield with_free(instance, size), feeds


def fused(proto: onnx.ModelProto, pattern: Pattern, loads: Loadability) -> Iterator[tuple[str, onnx.ModelProto]]:
    """The fused model for each target whose rewrite does not assume that no size is 0."""
    inferred = ir.from_proto(proto)
    infer_shapes(inferred)
    for target in pattern.targets:
        model = copied(inferred)
        constants = Constants(model)
        found = find(model, [pattern], constants=constants)
        rewrites, _ = apply(model, found.matches, target=target, loadability=[loads], constants=constants)
        if rewrites and not any(SAID & rewrite.assumes for rewrite in rewrites):
            yield target, ir.to_proto(model)


def failing(patterns: Sequence[Pattern], loads: Loadability, most: int | None) -> Iterator[str]:
    """Where a fused instance fails or differs with a size of 0, and its original runs.

    The models of all patterns run together, because to fork takes longer than to run one.
    """
    models = [(pattern, proto, feeds) for pattern in patterns for proto, feeds in emptied(pattern, most)]
    known = outputs_of([(proto, feeds) for _, proto, feeds in models])
    each = [
        (pattern, target, made, feeds, outputs)
        for (pattern, proto, feeds), outputs in zip(models, known, strict=True)
        if outputs is not None
        for target, made in fused(proto, pattern, loads)
    ]
    found = outputs_of([(made, feeds) for _, _, made, feeds, _ in each])
    for (pattern, target, _, feeds, expected), outputs in zip(each, found, strict=True):
        if outputs is None or not all(map(_equal, expected, outputs)):
            shapes = {name: [*array.shape] for name, array in feeds.items()}
            yield f"{pattern.id} for {target} {'fails' if outputs is None else 'differs'} at {shapes}"


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-2, atol=1e-3, equal_nan=True)


def main() -> None:
    """Print what fails, and how many patterns were tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    parser.add_argument("--spellings", type=int, metavar="N", help="try N spellings of each pattern at most")
    given = parser.parse_args()
    loads = Loadability(PROVIDER)
    patterns = [p for p in load_patterns().patterns if p.is_formula and (not given.patterns or p.id in given.patterns)]
    for line in failing(patterns, loads, given.spellings):
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{len(patterns)} patterns\n")


if __name__ == "__main__":
    main()
