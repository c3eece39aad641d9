"""Selectors in Python: who decides where a region starts, grows and ends, and what becomes of it.

A class with four methods, registered under a name in the entry point group `onnx_subgraph.selectors`, or given in person to
`region_pattern`. It may have two more: `review`, which sees the finished subgraph, and `build`, which makes the new node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

import numpy as np
import onnx_ir as ir

from onnx_subgraph.errors import UsageError
from onnx_subgraph.language.grow import GROUP
from onnx_subgraph.language.pattern import Grow, Pattern, camel_case
from onnx_subgraph.language.term import Block
from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.regions.region import Questions, Region

METHODS = ("select", "select_input", "select_output", "filter")
"""What a selector must be able to answer."""


Kept = bool | Region | Iterable[ir.Node]
"""All of a region, nothing, or a part of it: nodes that are connected, and that no path leaves and comes back to."""


class Selector(Questions, Protocol):
    """Where a region may start, how far it may grow, and whether it is worth keeping. Asked in the order of the graph."""

    def filter(self, region: Region) -> Kept:
        """Is the finished region worth it, or which of its nodes are?"""
        ...


@dataclass(frozen=True, slots=True)
class Review:
    """What somebody who has seen the finished subgraph says of it.

    refusal: why it is not to be replaced, "" where it is. attributes: of the node that replaces it, by name. metadata: what is
    noted on that node.
    """

    refusal: str = ""
    attributes: Mapping[str, int | float | str | Sequence[int] | Sequence[float]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class NewNode:
    """A node to stand in place of a region; its results are the region's outputs, in their order.

    inputs: values that the region reads, arrays for new constants, or None for an input that is left out.
    """

    op_type: str
    inputs: Sequence[ir.Value | np.ndarray | None]
    domain: str = ""
    attributes: Mapping[str, int | float | str | Sequence[int] | Sequence[float]] = field(default_factory=dict)


@runtime_checkable
class Reviewer(Protocol):
    """A selector that sees the finished subgraph before it takes the region's place."""

    def review(self, region: Region, definition: ir.Function) -> Review | None:
        """What to say of the region, whose nodes `definition` holds; None for nothing."""
        ...


@runtime_checkable
class Builder(Protocol):
    """A selector that makes the node in place of a region."""

    def build(self, region: Region) -> NewNode | None:
        """The node; None for a call of a function that holds the region. It is held against the region like any replacement."""
        ...


def region_pattern(
    name: str, selector: Selector | type[Selector] | None = None, *, operator: str = "", summary: str = ""
) -> Pattern:
    """A pattern of the regions that a selector chooses, to be used like one from a file.

    name: the id. selector: who chooses, or None for the one that is registered under `name`. operator: what replaces a
    region, with its domain where that is not ours (`com.mylib.ConvBN`); `name` in CamelCase where it is left out.
    """
    said = summary or f"Regions of the selector {name}"
    domain, _, called = operator.rpartition(".")
    grow = Grow(
        called or camel_case(name.replace("_", "-")), domain or OWN_DOMAIN, selector=name if selector is None else selector
    )
    return Pattern(name, "", said, Block(()), (), (), {}, {}, grow=grow)


_MEND = "the mistake is in the package that registers the selector, not in the model"


def selector_of(grow: Grow) -> Selector:
    """The selector that `grow` names or holds, made anew where it is a class. Raises UsageError where it can't be had."""
    chosen = _loaded(grow.selector) if isinstance(grow.selector, str) else grow.selector
    name = grow.selector if isinstance(grow.selector, str) else getattr(chosen, "__name__", type(chosen).__name__)
    try:
        selector = chosen() if isinstance(chosen, type) else chosen
    except Exception as error:
        raise UsageError(f"the selector {name} can't be made: {type(error).__name__}: {error}", hint=_MEND) from error
    missing = [method for method in METHODS if not callable(getattr(selector, method, None))]
    if missing:
        raise UsageError(f"the selector {name} has no {' and no '.join(missing)}", hint=f"it needs {', '.join(METHODS)}")
    result: Selector = selector  # type: ignore[assignment]
    return result


def _loaded(name: str) -> object:
    """What is registered under `name`. Only this one is imported."""
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        known = ", ".join(sorted(entry_points(group=GROUP).names))
        hint = f"installed are {known}" if known else f"a package registers it in the entry point group `{GROUP}`"
        raise UsageError(f"no selector {name} is installed", hint=hint)
    try:
        return found.load()
    except Exception as error:
        raise UsageError(f"the selector {name} can't be loaded: {type(error).__name__}: {error}", hint=_MEND) from error
