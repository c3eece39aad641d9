"""Find the fusions that onnxruntime makes when it loads a model: in the original, and in the fused model.

Both models are loaded with its fusions on (level "extended") and saved as optimised. The later layout optimisation of
convolutions is left out, because it renames all of them. A fused operator is identified by its result, whose name it keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from onnx_subgraph import temporary
from onnx_subgraph.files.models import read, write_temporary
from onnx_subgraph.operators.names import operator_of
from onnx_subgraph.rewriting.rewrite import Rewrite
from onnx_subgraph.verification.sessions import Failure, optimise

_NOT_FUSIONS = frozenset(
    {"Cast", "Concat", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather", "GatherND", "Identity", "Reshape", "Shape"}
    | {"Slice", "Split", "Squeeze", "Transpose", "Unsqueeze", "MemcpyFromHost", "MemcpyToHost"}
)
"""Operators that do not count as fusions if an optimiser adds or moves them."""


Operators = Mapping[str, str]
"""The first result of a node → its operator."""
Fate = Literal["kept", "replaced", "blocked"]


@dataclass(frozen=True, slots=True)
class OwnFusion:
    """A fusion that onnxruntime makes in the original. value: its result.

    fate: "kept" where onnxruntime also makes it in the fused model, "replaced" where one of our fusions takes its place,
    "blocked" where neither holds. by: the operator that finally computes the value; "" where it is inside another one.
    """

    op: str
    value: str
    fate: Fate
    by: str


@dataclass(frozen=True, slots=True)
class OwnSite:
    """One of our rewrites. op: the operator that onnxruntime makes there in the original; "" where it makes none.

    inside: whether its results are inside a larger fused operator of onnxruntime.
    """

    rewrite: Rewrite
    op: str = ""
    inside: bool = False

    @property
    def added(self) -> bool:
        """Whether onnxruntime fuses nothing there."""
        return not self.op and not self.inside


@dataclass(frozen=True, slots=True)
class OwnWork:
    """What a session on `provider` fuses. own: its fusions in the original.

    nodes_original, nodes_fused: the number of nodes after optimisation. sites: our rewrites, with what onnxruntime makes there in
    the original. failure: its error if it could not load one of the models; the rest is then empty.
    """

    provider: str
    own: tuple[OwnFusion, ...] = ()
    sites: tuple[OwnSite, ...] = ()
    nodes_original: int = 0
    nodes_fused: int = 0
    failure: str = ""

    @property
    def blocked(self) -> tuple[OwnFusion, ...]:
        """The fusions of onnxruntime that our rewrites prevent."""
        return tuple(fusion for fusion in self.own if fusion.fate == "blocked")


def own_work(original: ir.Model, fused: ir.Model, source: Path, rewrites: Sequence[Rewrite], provider: str) -> OwnWork:
    """Compare what onnxruntime makes of the original and of the fused model.

    source: the file that the original was read from; its folder holds the external data.
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
    """The operators that a session on `provider` fuses, by their result; empty where it can't load the model.

    source: the file that the model was read from; its folder holds the external data. Nodes inlined from functions are left out.
    """
    with temporary.folder() as folder:
        optimised = optimise(source, provider, folder / "optimised.onnx")
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
    """Whether onnxruntime put the operator of this value there in place of others.

    That holds if another operator computed the value before; or if the value is new, and there are more nodes of its operator
    now.
    """
    was = before.get(value, "")
    if op in _NOT_FUSIONS or op == was or was in _NOT_FUSIONS:
        return False
    return bool(was) or sum(op == other for other in by_itself.values()) > sum(op == other for other in before.values())


def _fate(value: str, op: str, before: Operators, after: Operators, together: Operators) -> tuple[Fate, str]:
    """What happened to a fusion, and the operator that computes its value now."""
    by = together.get(value, "")
    if by == op or (not by and value in after):  # or it is inside a larger fusion of onnxruntime
        return "kept", by
    if value not in after or after[value] != before.get(value):
        return "replaced", by
    return "blocked", by


def _written(model: ir.Model) -> Operators:
    """The operators of a model's main graph, by their first result."""
    return {str(node.outputs[0].name): operator_of(node) for node in model.graph if node.outputs}


def _optimised(path: Path) -> Operators:
    """The same for a file that onnxruntime wrote."""
    nodes = read(path).graph.node
    return {n.output[0]: operator_of(n) for n in nodes if n.output}
