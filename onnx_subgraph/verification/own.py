"""What onnxruntime fuses by itself when it loads a model: in the original, and in what we made of it.

Both models are loaded with its fusions on (level "extended") and saved as it optimised them. The layout of convolutions, which
comes after, is left out, for it renames every one of them. A fused operator is known by its result, whose name it keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from onnx_subgraph import temporary
from onnx_subgraph.model.files import read, write_temporary
from onnx_subgraph.operators.names import operator_of
from onnx_subgraph.rewriting.excerpt import operator_name
from onnx_subgraph.rewriting.rewrite import Rewrite
from onnx_subgraph.verification.sessions import Failure, optimise

_PLUMBING = frozenset(
    {"Cast", "Concat", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather", "GatherND", "Identity", "Reshape", "Shape"}
    | {"Slice", "Split", "Squeeze", "Transpose", "Unsqueeze", "MemcpyFromHost", "MemcpyToHost"}
)
"""Operators that are no fusion when an optimiser adds or moves them."""


Operators = Mapping[str, str]
"""The first result of a node → its operator."""
Fate = Literal["kept", "replaced", "blocked"]


@dataclass(frozen=True, slots=True)
class OwnFusion:
    """A fusion that onnxruntime makes in the original by itself. value: its result.

    fate: "kept" where it makes it in our model as well, "replaced" where a fusion of ours stands there, "blocked" where neither
    does. by: the operator that makes the value in the end; "" where it is inside another one.
    """

    op: str
    value: str
    fate: Fate
    by: str


@dataclass(frozen=True, slots=True)
class OwnSite:
    """One of our rewrites. op: the operator that onnxruntime itself makes there of the original; "" where it makes none.

    inside: its results are inside a larger operator of onnxruntime's.
    """

    rewrite: Rewrite
    op: str = ""
    inside: bool = False

    @property
    def added(self) -> bool:
        """Whether onnxruntime leaves the place as it is."""
        return not self.op and not self.inside


@dataclass(frozen=True, slots=True)
class OwnWork:
    """What a session on `provider` does by itself. own: its fusions in the original. nodes: how many there are in the end.

    sites: our rewrites, and what it makes there of the original.
    failure: what it said when it could not load one of the models; the rest is then empty.
    """

    provider: str
    own: tuple[OwnFusion, ...] = ()
    sites: tuple[OwnSite, ...] = ()
    nodes_original: int = 0
    nodes_fused: int = 0
    failure: str = ""

    @property
    def blocked(self) -> tuple[OwnFusion, ...]:
        """The fusions that it would have made, and that ours keep it from."""
        return tuple(fusion for fusion in self.own if fusion.fate == "blocked")


def own_work(original: ir.Model, fused: ir.Model, source: Path, rewrites: Sequence[Rewrite], provider: str) -> OwnWork:
    """Holds what onnxruntime makes of the original against what it makes of the fused model.

    source: the file that the original was read from, in whose folder its external data is.
    """
    with temporary.folder() as folder:
        made = []
        for name, model in (("original", original), ("fused", fused)):
            home = folder / name
            home.mkdir()
            path = write_temporary(model, source, home)
            optimised = optimise(path, provider, home / "optimised.onnx", folder=source.resolve().parent)
            if isinstance(optimised, Failure):
                return OwnWork(provider, failure=f"it does not load the {name} model: {optimised.message}")
            made.append(_optimised(optimised))
    before, after = _written(original), _written(fused)
    by_itself, together = made
    values = [value for value, op in by_itself.items() if _is_own(value, op, before, by_itself)]
    own = tuple(OwnFusion(by_itself[v], v, *_fate(v, by_itself[v], before, after, together)) for v in values)
    known = {fusion.value: fusion.op for fusion in own}
    sites = tuple(_site(rewrite, known, by_itself) for rewrite in rewrites)
    return OwnWork(provider, own, sites, len(by_itself), len(together))


def own_operators(model: ir.Model, source: Path, provider: str) -> Operators:
    """What a session on `provider` puts in the place of others by itself, by its result; nothing where it can't load the model.

    source: the file that the model was read from, in whose folder its external data is. What a call of a function became by
    inlining is left out.
    """
    with temporary.folder() as folder:
        optimised = optimise(source, provider, folder / "optimised.onnx", folder=source.resolve().parent)
        if isinstance(optimised, Failure):
            return {}
        by_itself, before = _optimised(optimised), _written(model)
    own = (value for value, op in by_itself.items() if _is_own(value, op, before, by_itself))
    return {value: by_itself[value] for value in own if "." not in before.get(value, "")}


def _site(rewrite: Rewrite, own: Operators, by_itself: Operators) -> OwnSite:
    values = rewrite.place.results
    op = next((own[value] for value in values if value in own), "")
    inside = not rewrite.place.scope and not any(value in by_itself for value in values)
    return OwnSite(rewrite, op, inside and not op)


def _is_own(value: str, op: str, before: Operators, by_itself: Operators) -> bool:
    """Whether the operator that makes a value is one that onnxruntime put there in the place of others.

    A value that another operator made before, or one of a new name where there are now more of its operator.
    """
    was = before.get(value, "")
    if op in _PLUMBING or op == was or was in _PLUMBING:
        return False
    return bool(was) or sum(op == other for other in by_itself.values()) > sum(op == other for other in before.values())


def _fate(value: str, op: str, before: Operators, after: Operators, together: Operators) -> tuple[Fate, str]:
    """What has become of a fusion, and the operator that makes its value now."""
    by = together.get(value, "")
    if by == op or (not by and value in after):  # it is inside a larger one of onnxruntime's
        return "kept", by
    if value not in after or after[value] != before.get(value):
        return "replaced", by
    return "blocked", by


def _written(model: ir.Model) -> Operators:
    """The operators of a model's main graph, by their first result."""
    return {str(node.outputs[0].name): operator_name(node) for node in model.graph if node.outputs}


def _optimised(path: Path) -> Operators:
    """The same, of a file that onnxruntime wrote."""
    nodes = read(path).graph.node
    return {n.output[0]: operator_of(n) for n in nodes if n.output}
