"""Match the parts of a split: results of a Split or of Slices that are the parts of an axis as a pattern requires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.axis import numbered
from onnx_subgraph.matching.normal import Layout
from onnx_subgraph.matching.rearrangement import Outcome
from onnx_subgraph.matching.recipe import Mismatch
from onnx_subgraph.matching.sizes import Size, shape_words, sizes, word_of
from onnx_subgraph.matching.state import State
from onnx_subgraph.matching.view import View


def match_split(view: View, term: Layout, value: ir.Value, state: State) -> Iterator[Outcome | Mismatch]:
    """Match part `term.index` of a split into equal or given sizes: a result of a Split, or a Slice of this part."""
    arguments = {k: v.value for k, v in term.term.sizes if isinstance(v, syntax.Literal)}
    current, passed = view.through(value)
    node = view.producer(current)
    if node is None or node.domain or node.op_type not in ("Split", "Slice") or node.inputs[0] is None:
        yield Mismatch("a part of a split", "" if node is None else node.op_type)
        return
    source = view.through(node.inputs[0])[0]
    extent = sizes(source)
    if extent is None:
        yield Mismatch("a part of a split", "a value of unknown rank")
        return
    bound: dict[str, Any] = {}
    wanted = next((t for k, t in term.term.sizes if k == "axis"), None)
    if isinstance(wanted, syntax.Variable):
        axis = state.bindings.get(wanted.name)
        if axis is None:
            axis = _cut_axis(view, node)
            if axis is not None and -len(extent) <= axis < len(extent):
                bound[wanted.name] = numbered(axis, len(extent), ordered=True)
    else:
        axis = arguments["axis"]
    if not isinstance(axis, int) or not -len(extent) <= axis < len(extent):
        yield Mismatch(f"axis {axis}", f"rank {len(extent)}")
        return
    axis %= len(extent)
    whole = extent[axis]
    if whole.symbols:
        yield Mismatch(
            "an axis of known size", f"size {word_of(whole)}", f"let axis {axis} have a known size, such as by --shape"
        )
        return
    parts = _part_sizes(arguments, whole.number)
    if parts is None or term.index >= len(parts):
        wanted_parts = f"{arguments['parts']} equal parts" if "parts" in arguments else f"parts of {arguments['sizes']}"
        yield Mismatch(
            f"an axis that divides into {wanted_parts}", f"size {whole}", f"let axis {axis} divide into {wanted_parts}"
        )
        return
    begin = sum(parts[: term.index])
    if _covers(view, node, current, axis, begin, begin + parts[term.index], whole.number):
        yield source, bound, (*passed, node)
    else:
        asked, part = f"elements {begin} to {begin + parts[term.index]} of axis {axis}", sizes(current)
        yield Mismatch(asked, f"a part of shape {shape_words(part or ())}", f"let the {node.op_type} give {asked}")


def _cut_axis(view: View, node: ir.Node) -> int | None:
    """The axis that a Split, or a Slice of one axis, cuts, as written in the node; None where it is unknown."""
    if node.op_type == "Split":
        return node.attributes.get_int("axis", 0)
    if len(node.inputs) < 4 or node.inputs[3] is None:
        return 0
    axes = view.constants.array(node.inputs[3])
    return int(axes.item()) if axes is not None and axes.size == 1 else None


def _part_sizes(arguments: Mapping[str, Any], whole: int) -> tuple[int, ...] | None:
    if "sizes" in arguments:
        given = tuple(int(s) for s in arguments["sizes"])
        return given if sum(given) == whole else None
    parts = int(arguments["parts"])
    return (whole // parts,) * parts if whole % parts == 0 else None


def _covers(view: View, node: ir.Node, result: ir.Value, axis: int, begin: int, end: int, whole: int) -> bool:
    """Whether `node` cuts exactly [begin, end) of `axis`, and no other axis."""
    shape, source = sizes(result), node.inputs[0]
    assert source is not None
    if node.op_type == "Split":
        cut = node.attributes.get_int("axis", 0) or 0
        before = [sizes(o) for o in node.outputs[: result.index()]]
        if shape is None or any(s is None or s[axis].symbols for s in before) or source.shape is None:
            return False
        offset = sum(s[axis].number for s in before if s is not None)
        return cut % source.shape.rank() == axis and offset == begin and shape[axis] == Size(end - begin)
    operands = [view.constants.array(v) if v is not None else None for v in node.inputs[1:]]
    if len(operands) < 2 or operands[0] is None or operands[1] is None or operands[0].size != 1:
        return False
    if len(operands) > 3 and (operands[3] is None or operands[3].item() != 1) and node.inputs[4] is not None:
        return False
    axes = operands[2].item() if len(operands) > 2 and operands[2] is not None else 0
    assert source.shape is not None
    bounds = [min(max(int(o.item()) + (whole if o.item() < 0 else 0), 0), whole) for o in operands[:2] if o is not None]
    return int(axes) % source.shape.rank() == axis and bounds == [begin, end]
