"""What rewriting yields: a `Rewrite` that was committed, or a `Skip` that says why a match was not."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_subgraph.rewriting.excerpt import Excerpt


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One committed replacement.

    pattern: its id. op: the operator that stands for the match, `com.microsoft.Gelu`. node: the name of the (first) node added.
    replaces: the names of the nodes removed, in topological order. added: how many nodes were added.
    assumes: what the pattern assumes (`finite`), for the report. body: whether the operator is a model-local function.
    attributes: those of that first node that hold one number or one text, by name.
    before, after: the nodes removed and the nodes added, for a drawing; None where nobody asked for them.
    """

    pattern: str
    op: str
    node: str
    replaces: tuple[str, ...]
    added: int
    assumes: frozenset[str] = frozenset()
    body: bool = False
    attributes: tuple[tuple[str, int | float | str], ...] = ()
    before: Excerpt | None = None
    after: Excerpt | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """A match that was found and not replaced. node: the name of the node at its root. opset: what it would need, or None."""

    pattern: str
    node: str
    reason: str
    opset: int | None = None
