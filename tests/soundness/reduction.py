"""Reduce a model that shows a finding: outputs are dropped, and nodes become inputs that are fed what they computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import onnx
from onnx import helper

from tests.soundness import judge
from tests.soundness.graphs import Case
from tests.soundness.growth import Array, reads, tensor_type

MOST = 300
"""Models that are tried."""


def reduced(case: Case, shows: Callable[[Case], bool]) -> Case:
    """The smallest case found by greedy steps for which `shows` still holds."""
    tried, progress = 0, True
    while progress:
        progress = False
        for smaller in _smaller(case):
            tried += 1
            if tried > MOST:
                return case
            if judge.problem(smaller.model) is None and shows(smaller):
                case, progress = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    graph = case.model.graph
    for index in reversed(range(len(graph.output))):
        if len(graph.output) > 1:
            model = _copy(case.model)
            del model.graph.output[index]
            yield _swept(case, model, case.feeds)
    known = _computed(case)
    for index, node in enumerate(graph.node):
        outputs = [o for o in node.output if o]
        if node.op_type == "Constant" or not all(all(o in values for o in outputs) for values in known):
            continue
        if {o.name for o in graph.output} & set(outputs):
            continue
        model = _copy(case.model)
        del model.graph.node[index]
        for output in outputs:
            array = known[0][output]
            model.graph.input.append(helper.make_tensor_value_info(output, tensor_type(array.dtype.name), array.shape))
        feeds = tuple({**f, **{o: values[o] for o in outputs}} for f, values in zip(case.feeds, known, strict=True))
        yield _swept(case, model, feeds)


def _computed(case: Case) -> list[Mapping[str, Array]]:
    """Every value of the graph on each of the feeds, from onnxruntime; empty if the model does not run."""
    model = _copy(case.model)
    there = {o.name for o in model.graph.output}
    model.graph.output.extend(
        helper.make_empty_tensor_value_info(o) for n in model.graph.node for o in n.output if o and o not in there
    )
    opened = judge.session(model)
    results = [judge.run(opened, f) if not isinstance(opened, str) else "" for f in case.feeds]
    return [{} if isinstance(r, str) else r for r in results]


def _swept(case: Case, model: onnx.ModelProto, feeds: tuple[Mapping[str, Array], ...]) -> Case:
    """The case with this model, without nodes that its outputs no longer need."""
    graph = model.graph
    needed = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed |= reads(node)
            kept.append(node)
    calls = {n.op_type for n in kept}
    for part, items in (
        (graph.node, kept[::-1]),
        (graph.input, [i for i in graph.input if i.name in needed]),
        (graph.initializer, [t for t in graph.initializer if t.name in needed]),
        (model.functions, [f for f in model.functions if f.name in calls]),
    ):
        copies = [type(item)() for item in items]
        for copy, item in zip(copies, items, strict=True):
            copy.CopyFrom(item)
        del part[:]
        part.extend(copies)
    names = {i.name for i in graph.input}
    return replace(case, model=model, feeds=tuple({n: a for n, a in f.items() if n in names} for f in feeds))


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
