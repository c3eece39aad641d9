"""The most important reasons why nothing, or little, was fused in a model.

The weight of a reason is an estimate of the nodes that it keeps from being fused. A notice at the head of the report (`notices`)
counts as a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from onnx_subgraph.report import grouping
from onnx_subgraph.report.notices import notices
from onnx_subgraph.report.wording import UNNAMED, count

if TYPE_CHECKING:
    from onnx_subgraph.result import FuseResult

LITTLE = 0.1
"""The share of nodes that fusions must remove, or else little was fused."""
MOST = 3
"""The most reasons to show."""
MOST_OPERATORS = 4
_NODES_OF_A_MATCH = 3
"""The weight of a match that was not replaced; its number of nodes is not recorded."""
_QUANTIZED = ("uantize", "QLinear", "QGemm", "QAttention", "MatMulNBits", "MatMulInteger", "ConvInteger")
_BEFORE_QUANTIZING = "fuse the float model with --target standard, then quantize it (docs/quantization.md)"
"""The advice for static quantization, whose QuantizeLinear and DequantizeLinear stand between the operators of a match."""
_WRITTEN_OUT = frozenset({"Erf", "Softmax", "Tanh", "com.microsoft.QLinearSoftmax"})
"""Operators of an attention or a GELU that was not fused before."""
_FUSED = frozenset(
    [
        "Attention",
        "Gelu",
        "GroupNormalization",
        "HardSwish",
        "LayerNormalization",
        "Mish",
        "RMSNormalization",
        "RotaryEmbedding",
        "SimplifiedLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "Swish",
    ]
)
"""Operators of the default domain that replace several others."""


class Reason(NamedTuple):
    """One reason, in a sentence. change: the next step, "" where there is none. weight: in nodes."""

    sentence: str
    change: str
    weight: float
    place: str = ""


class Reasons(NamedTuple):
    """title: "Why nothing fused" or "Why little fused". hidden: how many other reasons there are."""

    title: str
    told: tuple[Reason, ...]
    hidden: int


def reasons(result: FuseResult) -> Reasons | None:
    """The most important reasons; None if enough was fused, measuring decided against it, or nothing can be fused."""
    if result.tuning is not None and result.tuning.choices and not result.rewrites:
        return None
    saved = sum(len(rewrite.replaces) - rewrite.added for rewrite in result.rewrites)
    if not result.nodes_before or result.undone or saved > LITTLE * result.nodes_before:
        return None
    found = sorted(_all(result), key=lambda reason: -reason.weight)
    said = notices(result)
    told = _first_of_each_place(found)[: max(1, MOST - len(said))]
    title = "Why little fused" if result.rewrites else "Why nothing fused"
    if not told and not said:
        return Reasons(title, (_nothing(result),), 0)
    return Reasons(title, tuple(told), len(found) - len(told)) if told else None


def _all(result: FuseResult) -> Iterator[Reason]:
    yield from _quantized(result)
    yield from _fused_before(result)
    by_change: dict[tuple[str, str], list[grouping.Skipped]] = {}
    for group in grouping.skipped(skip for skip in result.skipped if skip.bug is None):
        by_change.setdefault((group.pattern, group.change), []).append(group)
    yield from map(_skipped, by_change.values())
    for near in grouping.nearly_matched(result.near_misses):
        yield _nearly(near)


def _first_of_each_place(found: Iterable[Reason]) -> list[Reason]:
    """One near miss for each place: variants of a pattern fail there alike."""
    once: dict[object, Reason] = {}
    for reason in found:
        once.setdefault(reason.place or reason, reason)
    return list(once.values())


def _skipped(groups: Sequence[grouping.Skipped]) -> Reason:
    """Matches of one pattern, for reasons that differ at most in a number."""
    first, places = groups[0], sum(len(group.nodes) for group in groups)
    where = f"at {count(places, 'place')}, first at {first.nodes[0] or UNNAMED}"
    sentence = f"{first.pattern} matches {where}, and is {'' if first.replaced else 'not replaced: '}{first.reason}."
    return Reason(sentence, first.change, _NODES_OF_A_MATCH * places, first.nodes[0])


def _nearly(group: grouping.NearlyMatched) -> Reason:
    where = f"at {count(len(group.nodes), 'place')}, first at {group.nodes[0] or UNNAMED}"
    sentence = f"{group.pattern} nearly matches {where}: expected {group.expected}, found {group.found}."
    return Reason(sentence, group.change, group.matched * len(group.nodes), group.nodes[0])


def _quantized(result: FuseResult) -> Iterator[Reason]:
    found = {op: n for op, n in result.operators_before.items() if any(word in op for word in _QUANTIZED)}
    if (total := sum(found.values())) > LITTLE * result.nodes_before:
        share = f"{total} of {count(result.nodes_before, 'node')} are"
        apart = "QuantizeLinear" in found and not _WRITTEN_OUT.isdisjoint(result.operators_before)
        change = _BEFORE_QUANTIZING if apart else ""
        yield Reason(f"{share} quantized operators, few of which have patterns: {_most(found)}.", change, total)


def _fused_before(result: FuseResult) -> Iterator[Reason]:
    found = {op: n for op, n in result.operators_before.items() if op in _FUSED or op.startswith("com.microsoft.")}
    found = {op: n for op, n in found.items() if not any(word in op for word in _QUANTIZED)}
    if total := sum(found.values()):
        holds = f"The model holds {count(total, 'operator')} that {'is' if total == 1 else 'are'} fused already"
        yield Reason(f"{holds}: {_most(found)}.", "", _NODES_OF_A_MATCH * total)


def _nothing(result: FuseResult) -> Reason:
    if result.rewrites:
        return Reason(f"No other pattern matches or nearly does. What is left: {_most(result.operators_after)}.", "", 0)
    return Reason(f"No pattern matches or nearly does. The model has {_most(result.operators_before)}.", "", 0)


def _most(operators: Mapping[str, int]) -> str:
    """`12 Conv, 3 PRelu and 2 other operators`."""
    ordered = sorted(operators.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{number} {op}" for op, number in ordered[:MOST_OPERATORS])
    rest = sum(number for _, number in ordered[MOST_OPERATORS:])
    return f"{shown} and {count(rest, 'other node')}" if rest else shown
