"""Match the parts of a split: results of a Split or of Slices that are the parts of an axis as a pattern requires.

A part of one element may be without its axis: the result of a Gather.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.axis import numbered
from onnx_subgraph.language.recipe import hidden_axes, ranked, recipe_axes
from onnx_subgraph.matching.normal import Layout
from onnx_subgraph.matching.rearrangement import Outcome, fitted
from onnx_subgraph.matching.recipe import Mismatch, parse_recipe
from onnx_subgraph.matching.sizes import ONE, Size, as_dim, as_size, shape_words, sizes, word_of
from onnx_subgraph.matching.state import State
from onnx_subgraph.matching.view import View


def match_split(view: View, term: Layout, value: ir.Value, state: State) -> Iterator[Outcome | Mismatch]:
    """Match part `term.index` of a split into equal or given sizes: a result of a Split, or a Slice of this part; or a Gather.

    A name for the axis, the sizes or the number of parts is bound to what the node says.
    """
    written = {k: _written(t, state) for k, t in term.term.sizes}
    current, passed = view.through(value)
    node = view.producer(current)
    operators = ("Gather",) if term.term.word == "take" else ("Split", "Slice")
    if node is None or node.domain or node.op_type not in operators or node.inputs[0] is None:
        yield Mismatch("a part of a split", "" if node is None else node.op_type)
        return
    source = view.through(node.inputs[0])[0]
    extent = sizes(source)
    if extent is None:
        yield Mismatch("a part of a split", "a value of unknown rank")
        return
    axis = _cut_axis(view, node) if written["axis"] is None else written["axis"]
    if not isinstance(axis, int) or not -len(extent) <= axis < len(extent):
        yield Mismatch(f"axis {axis}", f"rank {len(extent)}")
        return
    found: dict[str, Any] = {"axis": numbered(axis, len(extent), ordered=True)}
    axis %= len(extent)
    whole = extent[axis]
    if whole.symbols:
        yield Mismatch(
            "an axis of known size", f"size {word_of(whole)}", f"let axis {axis} have a known size, such as by --shape"
        )
        return
    interval = _interval(view, node, current, axis, whole.number)
    found |= _cut(node, interval, axis, whole.number)
    parts = _part_sizes({k: found.get(k) if known is None else known for k, known in written.items()}, whole.number)
    if parts is None or term.index >= len(parts):
        given = written.get("sizes")
        wanted = f"{written['parts']} equal parts" if written.get("parts") else f"parts of {given or 'known sizes'}"
        yield Mismatch(f"an axis that divides into {wanted}", f"size {whole}", f"let axis {axis} divide into {wanted}")
        return
    begin = sum(parts[: term.index])
    if interval == (begin, begin + parts[term.index]):
        free = {t.name: found[k] for k, t in term.term.sizes if isinstance(t, syntax.Variable) and written[k] is None}
        named = _axes_left(term, extent, axis, sizes(current), state) if node.op_type == "Gather" else {}
        yield named if isinstance(named, Mismatch) else (source, free | named, (*passed, node))
    else:
        asked, part = f"elements {begin} to {begin + parts[term.index]} of axis {axis}", sizes(current)
        yield Mismatch(asked, f"a part of shape {shape_words(part or ())}", f"let the {node.op_type} give {asked}")


def _axes_left(
    term: Layout, extent: tuple[Size, ...], axis: int, result: tuple[Size, ...] | None, state: State
) -> dict[str, Any] | Mismatch:
    """The named axes of a recipe that drops the axis of one element."""
    recipe = ranked(term.term.recipe, len(extent) - 1)
    rank = len(parse_recipe(recipe).right)
    if result is None or len(result) != len(extent) - 1 or len(result) != rank:
        there = "unknown rank" if result is None else f"rank {len(result)}"
        return Mismatch(f"rank {rank}", there, f"let the result have rank {rank}", of_rank=True)
    known = tuple((name, as_size(state.bindings[name])) for name in recipe_axes(recipe) if name in state.bindings)
    found = fitted("rearrange", recipe, (*extent[:axis], ONE, *extent[axis + 1 :]), (), result, known)
    hidden = hidden_axes(recipe)
    return found if isinstance(found, Mismatch) else {n: as_dim(size) for n, size in found.items() if n not in hidden}


def _written(term: syntax.Term, state: State) -> Any:
    """What the pattern says in an argument of `split`; None for a name that is not bound yet."""
    return state.bindings.get(term.name) if isinstance(term, syntax.Variable) else getattr(term, "value", None)


def _cut_axis(view: View, node: ir.Node) -> int | None:
    """The axis that a Split, or a Slice of one axis, cuts, as written in the node; None where it is unknown."""
    if node.op_type in ("Split", "Gather"):
        return node.attributes.get_int("axis", 0)
    if len(node.inputs) < 4 or node.inputs[3] is None:
        return 0
    axes = view.constants.array(node.inputs[3])
    return int(axes.item()) if axes is not None and axes.size == 1 else None


def _cut(node: ir.Node, interval: tuple[int, int] | None, axis: int, whole: int) -> dict[str, Any]:
    """The sizes and the number of parts that a node says, as far as it does. A Slice says where an axis is cut in two."""
    if interval is None:
        return {}
    begin, end = interval
    if node.op_type == "Split":
        each = [sizes(output) for output in node.outputs]
        return {"sizes": tuple(s[axis].number for s in each if s is not None and not s[axis].symbols), "parts": len(each)}
    equal = {"parts": whole // (end - begin)} if end > begin else {}
    cut = end if begin == 0 else begin
    return {"sizes": (cut, whole - cut), **equal} if begin == 0 or end == whole else equal


def _part_sizes(arguments: Mapping[str, Any], whole: int) -> tuple[int, ...] | None:
    if (given := arguments.get("sizes")) is not None:
        return tuple(map(int, given)) if sum(given) == whole else None
    parts = arguments.get("parts")
    return (whole // int(parts),) * int(parts) if parts and whole % int(parts) == 0 else None


def _interval(view: View, node: ir.Node, result: ir.Value, axis: int, whole: int) -> tuple[int, int] | None:
    """The elements [begin, end) of `axis` that `result` is; None where `node` cuts another axis, or this is unknown."""
    shape, source = sizes(result), node.inputs[0]
    assert source is not None
    if node.op_type == "Split":
        cut = node.attributes.get_int("axis", 0) or 0
        before = [sizes(o) for o in node.outputs[: result.index()]]
        if shape is None or any(s is None or s[axis].symbols for s in (shape, *before)) or source.shape is None:
            return None
        offset = sum(s[axis].number for s in before if s is not None)
        return (offset, offset + shape[axis].number) if cut % source.shape.rank() == axis else None
    if node.op_type == "Gather":
        place = None if node.inputs[1] is None else view.constants.array(node.inputs[1])
        if place is None or place.ndim or not -whole <= place < whole:
            return None
        at = int(place) % whole
        return (at, at + 1) if node.attributes.get_int("axis", 0) % len(source.shape or ()) == axis else None
    operands = [view.constants.array(v) if v is not None else None for v in node.inputs[1:]]
    if len(operands) < 2 or operands[0] is None or operands[1] is None or operands[0].size != 1:
        return None
    if len(operands) > 3 and (operands[3] is None or operands[3].item() != 1) and node.inputs[4] is not None:
        return None
    axes = operands[2].item() if len(operands) > 2 and operands[2] is not None else 0
    assert source.shape is not None
    begin, end = (min(max(int(o.item()) + (whole if o.item() < 0 else 0), 0), whole) for o in operands[:2] if o is not None)
    return (begin, end) if int(axes) % source.shape.rank() == axis else None
