"""Match layout operations: find the sources of which a value is the rearrangement, repetition or part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.recipe import ELLIPSIS, UNCHANGED, as_written, hidden_axes, ranked
from onnx_subgraph.matching.equalities import REARRANGING
from onnx_subgraph.matching.normal import Layout
from onnx_subgraph.matching.parts import match_split
from onnx_subgraph.matching.rearrangement import LONGEST, REPEATING, Outcome, fitted, normal_form, steps_of
from onnx_subgraph.matching.recipe import Mismatch, parse_recipe
from onnx_subgraph.matching.sizes import as_dim, as_size, sizes
from onnx_subgraph.matching.state import State
from onnx_subgraph.matching.view import View, Virtual

PRODUCERS = {"rearrange": REARRANGING, "repeat": REPEATING, "split": frozenset({"Split", "Slice"}), "take": frozenset({"Gather"})}
"""Layout operation → the operators that its result can come from."""


def chains(
    view: View, value: ir.Value, operators: frozenset[str] = REARRANGING
) -> Iterator[tuple[ir.Value, tuple[ir.Node, ...]]]:
    """(source, nodes) for every chain of these operators that ends in `value`, shortest first; nodes from source to value."""
    nodes: tuple[ir.Node, ...] = ()
    current, passed = view.through(value)
    nodes = tuple(reversed(passed))
    for _ in range(LONGEST):
        node = view.producer(current)
        if node is None or node.domain or node.op_type not in operators or node.inputs[0] is None:
            return
        if node.op_type == "Concat" and not all(v is not None and view.same(v, node.inputs[0]) for v in node.inputs):
            return  # only a Concat of a value with itself is a repetition
        source, passed = view.through(node.inputs[0])
        nodes = (*reversed(passed), node, *nodes)
        yield source, nodes
        current = source


def source_ranks(view: View, value: ir.Value, word: str) -> list[int | None]:
    """The ranks of the sources of `value`, over all chains of the operators of `word`, shortest first."""
    found: list[int | None] = view.shared(
        ("ranks", value, word),
        lambda: [None if source.shape is None else source.shape.rank() for source, _ in chains(view, value, PRODUCERS[word])],
    )
    return found


def unscaled(view: View, value: Virtual) -> Iterator[tuple[ir.Value, tuple[ir.Node, ...]]]:
    """(source, nodes) for a chain of layout operators whose scale was moved out; the source is the scaled value."""
    nodes: tuple[ir.Node, ...] = ()
    current: ir.Value | Virtual = value
    while isinstance(current, Virtual) and current.operator in REARRANGING:
        nodes = (current.node, *nodes)
        current = current.inputs[0]
    if isinstance(current, ir.Value):
        yield current, nodes
        for source, before in chains(view, current):
            yield source, (*before, *nodes)


def match(view: View, term: Layout, value: ir.Value | Virtual, state: State) -> Iterator[Outcome | Mismatch]:
    """The sources of which `value` is the rearrangement, with the named axes bound, and the nodes of the chain."""
    if isinstance(value, Virtual) and term.term.word != "rearrange":
        return
    if term.term.word in ("split", "take") and isinstance(value, ir.Value):
        yield from match_split(view, term, value, state)
        return
    if ELLIPSIS in term.term.recipe and term.term.recipe != UNCHANGED:
        shape = (value if isinstance(value, ir.Value) else value.node.outputs[0]).shape
        if shape is None:
            yield Mismatch("a known rank", "unknown rank", of_rank=True)
            return
        term = replace(term, term=replace(term.term, recipe=ranked(term.term.recipe, shape.rank())))
    word, recipe = term.term.word, parse_recipe(term.term.recipe)
    known = tuple((n, state.bindings[n]) for axis in recipe.left for n in axis if n in state.bindings)
    written = tuple((n, t.value) for n, t in term.term.sizes if isinstance(t, syntax.Literal) and isinstance(t.value, int))
    key = ("layout", word, term.term.recipe, value, known, written)
    yield from view.shared(key, lambda: tuple(_rearranged(view, term.term, value, {**dict(known), **dict(written)})))


def _rearranged(
    view: View, term: syntax.Rearrange, value: ir.Value | Virtual, given: Mapping[str, Any]
) -> Iterator[Outcome | Mismatch]:
    """As `match`, for a rearrangement or repetition. given: the known sizes of named axes."""
    if term.recipe == UNCHANGED:
        yield from _match_unchanged(view, value)
        return
    recipe = parse_recipe(term.recipe)
    result = sizes(value if isinstance(value, ir.Value) else value.node.outputs[0])
    if result is None or len(result) != len(recipe.right):
        rank = f"rank {len(recipe.right)}"
        yield Mismatch(
            rank, "unknown rank" if result is None else f"rank {len(result)}", f"let the result have {rank}", of_rank=True
        )
        return
    known = tuple((name, as_size(size)) for name, size in given.items())
    hidden = hidden_axes(term.recipe)
    tried = False
    ways = chains(view, value, PRODUCERS[term.word]) if isinstance(value, ir.Value) else unscaled(view, value)
    for source, nodes in ways:
        tried = True
        start = sizes(source)
        if start is None or len(start) != len(recipe.left):
            rank = f"rank {len(recipe.left)}"
            found = "unknown rank" if start is None else f"rank {len(start)}"
            yield Mismatch(f"a source of {rank}", found, f"let the source have {rank}", of_rank=True)
            continue
        named = fitted(term.word, term.recipe, start, steps_of(nodes), result, known)
        if isinstance(named, Mismatch):
            yield replace(named, reached=len(nodes))
        else:
            yield source, {n: as_dim(s) for n, s in named.items() if n not in hidden}, nodes
    if not tried:
        yield Mismatch(f'{term.word} "{as_written(term.recipe)}"', "")


def _match_unchanged(view: View, value: ir.Value | Virtual) -> Iterator[Outcome | Mismatch]:
    """The sources that were rearranged to `value` without a net change, farthest first."""
    if isinstance(value, Virtual):
        return
    current, passed = view.through(value)
    ways = [(current, tuple(reversed(passed))), *chains(view, value)]
    found = False
    for source, nodes in reversed(ways):
        start = sizes(source)
        form = normal_form(start, nodes) if start is not None and start == sizes(value) else None
        if form is not None and form[1] == tuple(range(len(form[1]))) and any(n.op_type in REARRANGING for n in nodes):
            found = True
            yield source, {}, nodes
    if not found:
        yield Mismatch("a rearrangement that ends as it began", "another one")
