"""Functions for the rewriting tests: from a model as text and a pattern as YAML to the rewritten model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.reading import parse_pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.matching.match import Match
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting.apply import apply
from onnx_subgraph.rewriting.costs import Costs
from onnx_subgraph.rewriting.loadability import CPU, Loadability
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip

LOADABILITY = Loadability(CPU)  # one for the whole suite, so that each operator is tried once


@dataclass
class Stage:
    """The result of `rewritten` for a model."""

    before: onnx.ModelProto
    model: ir.Model
    rewrites: tuple[Rewrite, ...]
    skips: tuple[Skip, ...]
    matches: tuple[Match, ...]

    @property
    def after(self) -> onnx.ModelProto:
        """The model after rewriting."""
        return ir.to_proto(self.model)

    @property
    def operators(self) -> list[str]:
        """The operators of the main graph, in order."""
        return [f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in self.model.graph]

    @property
    def reason(self) -> str:
        """The reason why the only match was skipped."""
        (skip,) = self.skips
        assert not self.rewrites
        return skip.reason

    def agrees(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Assert that both models compute the same, without optimisation."""
        for was, now in zip(run(self.before, feeds), run(self.after, feeds), strict=True):
            assert was.dtype == now.dtype
            np.testing.assert_allclose(was, now, rtol=1e-4, atol=1e-5)


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of `model`, without optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[CPU])
    outputs: list[np.ndarray] = session.run(None, dict(feeds))
    return outputs


def pattern(match: str, *, example: str = "{}", id_: str = "fused", extra: str = "", **replace: str) -> Pattern:
    """A pattern from the text of its blocks. extra: more lines of YAML."""

    def block(text: str) -> str:
        return "|\n" + "\n".join(f"    {line.strip()}" for line in text.strip().splitlines())

    lines = [f"id: {id_}", "summary: A pattern of a test", f"match: {block(match)}", extra]
    if replace:
        lines += ["replace:", *(f"  {target}: {block(text)}" for target, text in replace.items())]
    lines.append(f"example: {example}")
    return parse_pattern("\n".join(line for line in lines if line), f"patterns/test/{id_.replace('-', '_')}.yaml")


def rewritten(
    model: str | onnx.ModelProto,
    *patterns: Pattern,
    target: str = "onnxruntime",
    rounds: int = 1,
    costs: Costs | None = None,
) -> Stage:
    """The model after `rounds` of matching and rewriting."""
    before = onnx.parser.parse_model(model) if isinstance(model, str) else model
    after = ir.from_proto(before)
    infer_shapes(after)
    rewrites: list[Rewrite] = []
    skips: tuple[Skip, ...] = ()
    matches: tuple[Match, ...] = ()
    for _ in range(rounds):
        constants = Constants(after)
        matches = find(after, patterns, constants=constants).matches
        made, skips = apply(after, matches, target=target, loadability=[LOADABILITY], constants=constants, costs=costs)
        rewrites += made
        infer_shapes(after)
    return Stage(before, after, tuple(rewrites), skips, matches)


def by_hand(model: ir.Model, pattern: Pattern, nodes: str, graph: ir.Graph | ir.Function | None = None, **names: str) -> Match:
    """The match with the producers of the values in `nodes` (names, in order), and names bound to values by name."""
    home = graph if graph is not None else model.graph
    inner = home.graph if isinstance(home, ir.Function) else home
    values = {v.name: v for g in (*model.graphs(), inner) for n in g for v in n.outputs if v.name}
    values |= {v.name: v for g in (*model.graphs(), inner) for v in g.inputs}
    values |= {v.name: v for g in model.graphs() for v in g.initializers.values()}
    bindings = {name: values[value] for name, value in names.items()}
    matched = tuple(dict.fromkeys(values[n].producer() for n in nodes.split()))
    roots = {n: bindings[n] for n in pattern.match.names if n in bindings}
    return Match(pattern, home, bindings, {}, roots, matched, {})


def applied(model: ir.Model, *matches: Match, target: str = "onnxruntime") -> tuple[tuple[Rewrite, ...], tuple[Skip, ...]]:
    """`apply`, with the constants of the model."""
    return apply(model, matches, target=target, loadability=[LOADABILITY], constants=Constants(model))


def read(text: str) -> ir.Model:
    """The model of `text`, with inferred shapes."""
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_shapes(model)
    return model
