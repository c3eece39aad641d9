"""Python selectors: they decide where a region starts, how far it grows, and what replaces it.

A selector is a class with four methods. It is registered under a name in the entry point group `onnx_subgraph.selectors`, or
passed to `region_pattern`. Two methods are optional: `review` sees the finished subgraph, `build` makes the new node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

import numpy as np
import onnx_ir as ir

from onnx_subgraph.errors import UsageError
from onnx_subgraph.language.grow import GROUP
from onnx_subgraph.language.pattern import ID, Grow, Pattern, camel_case
from onnx_subgraph.language.term import Block
from onnx_subgraph.operators import is_domain
from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.regions.region import Questions, Region

_OPERATOR = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
METHODS = ("select", "select_input", "select_output", "filter")
"""The methods that a selector must have."""


Kept = bool | Region | Iterable[ir.Node]
"""What is kept of a region: all of it (True), nothing (False), or a connected, convex part of its nodes."""


class Selector(Questions, Protocol):
    """Decides where a region may start, how far it may grow, and whether it is kept. Called in the order of the graph."""

    def filter(self, region: Region) -> Kept:
        """Whether the finished region is kept, or which of its nodes are."""
        ...


@dataclass(frozen=True, slots=True)
class Review:
    """The result of reviewing a finished subgraph.

    refusal: why it is not replaced, "" where it is. attributes: of the new node, by name. metadata: entries for the new node.
    """

    refusal: str = ""
    attributes: Mapping[str, int | float | str | Sequence[int] | Sequence[float]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class NewNode:
    """A node that replaces a region; its outputs are the region's outputs, in the same order.

    inputs: values that the region reads, arrays for new constants, or None for an omitted input.
    """

    op_type: str
    inputs: Sequence[ir.Value | np.ndarray | None]
    domain: str = ""
    attributes: Mapping[str, int | float | str | Sequence[int] | Sequence[float]] = field(default_factory=dict)


@runtime_checkable
class Reviewer(Protocol):
    """A selector that sees the finished subgraph before it replaces the region."""

    def review(self, region: Region, definition: ir.Function) -> Review | None:
        """Review the region, whose nodes are in `definition`; None to accept it unchanged."""
        ...


@runtime_checkable
class Builder(Protocol):
    """A selector that makes the node that replaces a region."""

    def build(self, region: Region) -> NewNode | None:
        """The new node; None for a call of a function that holds the region. It is verified like any other replacement."""
        ...


def region_pattern(
    name: str, selector: Selector | type[Selector] | None = None, *, operator: str = "", summary: str = ""
) -> Pattern:
    """A pattern of the regions that a selector chooses. It is used like a pattern from a file.

    name: the id. selector: None for the one registered under `name`. operator: the operator that replaces a region, with its
    domain unless that is `onnx_subgraph` (`com.mylib.ConvBN`); by default `name` in CamelCase. Raises UsageError for a name that
    is no id, and for an operator that can't be the user's.
    """
    if ID.fullmatch(name.replace("_", "-")) is None:
        raise UsageError(f"{name!r} is no id of a pattern", hint="give lower-case words joined by `-`, such as `conv-bn`")
    said = summary or f"Regions of the selector {name}"
    domain, _, called = operator.rpartition(".")
    if operator and (_OPERATOR.fullmatch(operator) is None or (domain and is_domain(domain))):
        hint = "give a name, with a domain of your own if it has one, such as `com.mylib.ConvBN`"
        raise UsageError(f"{operator!r} can't be the operator of a region", hint=hint)
    grow = Grow(
        called or camel_case(name.replace("_", "-")), domain or OWN_DOMAIN, selector=name if selector is None else selector
    )
    return Pattern(name, "", said, Block(()), (), (), {}, {}, grow=grow)


_MEND = "the mistake is in the package that registers the selector, not in the model"


def selector_of(grow: Grow) -> Selector:
    """The selector that `grow` names or holds; a class is instantiated. Raises UsageError where it is missing or invalid."""
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
    """The object that is registered under `name`. Imports no other selector."""
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        known = ", ".join(sorted(entry_points(group=GROUP).names))
        hint = f"installed are {known}" if known else f"a package registers it in the entry point group `{GROUP}`"
        raise UsageError(f"no selector {name} is installed", hint=hint)
    try:
        return found.load()
    except Exception as error:
        raise UsageError(f"the selector {name} can't be loaded: {type(error).__name__}: {error}", hint=_MEND) from error
