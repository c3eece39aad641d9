"""Build layout words in an instance: `rearrange` as Reshape, Transpose, Reshape; `split` as Split or as Slices.

A Reshape or a Transpose that changes nothing is left out. The sizes of named axes come from the example and from the
shapes of the nodes built so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import helper

from onnx_subgraph.evaluator.truth import UnknownError, evaluate
from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.recipe import UNCHANGED, ranked
from onnx_subgraph.operators import schema
from onnx_subgraph.proving.spelling import Spelling, UnbuildableError


class Builder(Protocol):
    """The interface of the builder that layout words need."""

    pattern: Pattern
    spelling: Spelling
    nodes: list[onnx.NodeProto]
    initializers: list[onnx.TensorProto]
    feeds: dict[str, np.ndarray]
    domains: set[str]
    sizes: dict[str, int]

    def node(
        self, operator: str, inputs: list[str], attributes: dict[str, Any] | None = None, outputs: int = 1, domain: str = ""
    ) -> str:
        """The first result of a new node."""
        ...

    def numbers(self, values: list[int]) -> str:
        """An initializer of these integers."""
        ...

    def value(self, term: syntax.Term) -> str:
        """The value of a term."""
        ...

    def static(self, term: syntax.Term) -> Any:
        """The value of a static term."""
        ...


def rearrange(builder: Builder, term: syntax.Rearrange) -> str:
    """The value of a `rearrange`. Raises UnbuildableError."""
    from einops.parsing import ParsedExpression

    source = builder.value(term.source)
    if term.recipe == UNCHANGED:
        back = list(range(len(_shape(builder, source))))[::-1]
        return builder.node("Transpose", [builder.node("Transpose", [source], {"perm": back})], {"perm": back})
    shape = _shape(builder, source)
    left, right = (ParsedExpression(side).composition for side in ranked(term.recipe, len(shape), side=0).split("->"))
    sizes = builder.sizes
    sizes.update({n: e.value for n, e in builder.pattern.example.items() if isinstance(e.value, int)})
    sizes.update({k: builder.static(v) for k, v in term.sizes})
    if len(left) != len(shape):
        raise UnbuildableError(f"`{term}` is not of rank {len(shape)}")
    for axis, size in zip(left, shape, strict=True):
        unknown = [n for n in axis if n not in sizes]
        if len(unknown) > 1:
            raise UnbuildableError(f"the sizes of {', '.join(unknown)} have no example")
        if unknown:
            sizes[unknown[0]] = size // prod(sizes[n] for n in axis if n in sizes)
    before = [n for axis in left for n in axis]
    after = [n for axis in right for n in axis]
    new = [n for n in after if n not in before]
    if unknown := [n for n in new if n not in sizes]:
        raise UnbuildableError(f"no example gives the size of {', '.join(unknown)} in `{term}`")
    grouped = [prod(sizes[n] for n in axis) for axis in right]
    if before == after:
        return _reshape(builder, source, grouped)
    if not new and all(len(axis) == 1 for axis in (*left, *right)):
        return builder.node("Transpose", [source], {"perm": [before.index(n) for n in after]})
    apart = [*before[:1], *new, *before[1:]]
    is_open = apart == before and all(len(axis) == 1 for axis in left)
    opened = source if is_open else _reshape(builder, source, [1 if n in new else sizes[n] for n in apart])
    if new:
        opened = builder.node("Expand", [opened, builder.numbers([sizes[n] if n in new else 1 for n in apart])])
    turned = builder.node("Transpose", [opened], {"perm": [apart.index(n) for n in after]})
    return turned if all(len(axis) == 1 for axis in right) else _reshape(builder, turned, grouped)


def split(builder: Builder, term: syntax.Rearrange, wanted: int) -> list[str]:
    """The first `wanted` parts of a `split`: as a Split for seed 1 of the spelling, else as Slices."""
    arguments = {k: builder.static(v) for k, v in term.sizes}
    source, axis = builder.value(term.source), int(arguments["axis"])
    if builder.spelling.other_axis and any(k == "axis" and isinstance(v, syntax.Variable) for k, v in term.sizes):
        axis -= 1
    shape = _shape(builder, source)
    if not -len(shape) <= axis < len(shape):
        raise UnbuildableError(f"there is no axis {axis} in rank {len(shape)}")
    count = 1 if arguments.get("parts") is None else int(arguments["parts"])
    parts = [int(p) for p in arguments.get("sizes") or [shape[axis] // count] * count]
    if builder.spelling.seed == 1:
        return _as_split(builder, source, axis, parts)[:wanted]
    results, begin = [], 0
    for size in parts[:wanted]:
        bounds = [builder.numbers([begin]), builder.numbers([begin + size]), builder.numbers([axis])]
        results.append(builder.node("Slice", [source, *bounds]))
        begin += size
    return results


def _as_split(builder: Builder, source: str, axis: int, parts: list[int]) -> list[str]:
    known = schema("Split", "", builder.spelling.opset)
    if known is not None and "split" in known.attributes:
        builder.node("Split", [source], {"axis": axis, "split": parts}, len(parts))
    else:
        builder.node("Split", [source, builder.numbers(parts)], {"axis": axis}, len(parts))
    return list(builder.nodes[-1].output)


def _shape(builder: Builder, value: str) -> tuple[int, ...]:
    """The shape of a value, found by running the nodes built so far."""
    if value in builder.feeds:
        return builder.feeds[value].shape
    opset, domains = builder.spelling.opset, sorted(builder.domains)
    try:
        return _shape_in(builder.nodes, builder.initializers, builder.feeds, value, opset, domains)
    except UnknownError as why:
        raise UnbuildableError(str(why)) from why


def _shape_in(
    nodes: Sequence[onnx.NodeProto],
    initializers: Sequence[onnx.TensorProto],
    feeds: Mapping[str, np.ndarray],
    value: str,
    opset: int,
    domains: Iterable[str],
) -> tuple[int, ...]:
    """The shape of `value` in the graph made of these nodes."""
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    graph = helper.make_graph(list(nodes), "part", inputs, [helper.make_empty_tensor_value_info(value)], list(initializers))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return tuple(evaluate(helper.make_model(graph, opset_imports=imports), feeds)[value].shape)


def _reshape(builder: Builder, value: str, shape: list[int]) -> str:
    return builder.node("Reshape", [value, builder.numbers([-1, *shape[1:]] if builder.spelling.symbolic else shape)])
