"""Find the subgraphs of If, Loop and Scan that the reference has and the candidate lacks, and that no run took.

No output that was compared depends on them. Subgraphs correspond by the names of the nodes that own them. A probe, a node that
passes on a result of the subgraph, shows in onnxruntime's profile whether it ran: all other nodes may be constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph.matching.origin import label
from onnx_subgraph.model.local_functions import called
from onnx_subgraph.model.nested import bodies
from onnx_subgraph.model.shapes import copied
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.fed import Fed
from onnx_subgraph.verification.trial import Trial

_PROBE = "onnx_subgraph_probe_{number}_"
"""The name of a probe. onnxruntime puts that of a function in front."""


def lost(reference: ir.Model, candidate: ir.Model, source: Path, provider: str, cases: Sequence[Case], fed: Fed) -> list[str]:
    """The paths of these subgraphs; each comes before those inside it.

    source: the file of the reference. cases, fed: what it is run on.
    """
    kept = {key for node in _nodes(candidate) for key, _ in _owned(node)}
    model = copied(reference)
    missing = [body for node in _nodes(model) for key, body in _owned(node) if key not in kept]
    if not missing:
        return []
    outline = Outline(model)
    probes = [(outline.scope(graph), _PROBE.format(number=number)) for number, graph in enumerate(missing)]
    for graph, (_, name) in zip(missing, probes, strict=True):
        _put(graph, name)
    trial = Trial(model, None, source.resolve().parent)
    for _ in trial.outcomes(provider, False, cases, fed):
        pass
    return sorted(scope for scope, name in probes if not any(ran.endswith(name) for ran in trial.executed))


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    """The nodes of a model, with those of its subgraphs and of the functions that it calls."""
    yield from model.graph.all_nodes()
    for function in called(model.graph.all_nodes(), model.functions):
        yield from function.all_nodes()


def _owned(node: ir.Node) -> Iterator[tuple[tuple[str, int], ir.Graph]]:
    """The subgraphs of a node, each with what it corresponds by."""
    return (((label(node), place), body) for place, body in enumerate(bodies(node)))


def _put(graph: ir.Graph, name: str) -> None:
    """Add a probe to a subgraph."""
    old = graph.outputs[0]
    probe = ir.node("Identity", [old], name=name)
    (new,) = probe.outputs
    new.name, new.type, new.shape = name, old.type, old.shape
    graph.append(probe)
    graph.outputs[0] = new
