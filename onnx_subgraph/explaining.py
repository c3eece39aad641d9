"""explain(): what fuses in a model, what nearly does, and why not: `fuse` without writing, with reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from onnx_subgraph.clock import Clock, Progress
from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import Library
from onnx_subgraph.language.term import operators_of
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.options import Options, checked
from onnx_subgraph.paths import StrPath, path_of
from onnx_subgraph.pipeline import fuse
from onnx_subgraph.result import FuseResult
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip, taken
from onnx_subgraph.verification.own import own_operators


def explain(model: StrPath, library: Library, options: Options, progress: Progress | None = None) -> FuseResult:
    """What fuses in a model, what nearly does, and why not: `fuse` without verifying and without writing.

    The unfused rest is compared with the fusions that onnxruntime makes itself when it loads the model.
    """
    model = path_of(model)
    options = replace(checked(options), verify=False, dry_run=True, thorough=True)
    result = fuse(model, None, library, options, progress)
    if options.only and result.rewrites:
        result = _left_by_others(result, fuse(model, None, library, replace(options, only=(), thorough=False), progress))
    if not (result.skipped or result.near_misses):
        return result
    clock = Clock(progress)
    with clock.stage("own"):
        original = load(model)
        own = {value: op for p in options.providers for value, op in own_operators(original, model, p).items()}
    results = {node.name: [str(value.name) for value in node.outputs] for node in original.graph if node.name}

    def made_at(pattern: str, places: Iterable[str]) -> str:
        """The operator that onnxruntime makes at one of these places, if it is one that the pattern would make."""
        here = [own[place] for place in places if place in own]
        wanted = {op for block in library.get(pattern).replace.values() for op in operators_of(block)} if here else set()
        return next((op for op in here if op in wanted), "")

    def skip(skip: Skip) -> Skip:
        return replace(skip, change=_by_itself(skip.change, made_at(skip.pattern, skip.results)))

    def near(miss: NearMiss) -> NearMiss:
        places = (v for name in (miss.node, miss.anchor) for v in (name, *results.get(name, ())))
        return replace(miss, change=_by_itself(miss.change, made_at(miss.pattern, places)))

    return replace(result, skipped=tuple(map(skip, result.skipped)), near_misses=tuple(map(near, result.near_misses)))


def _left_by_others(result: FuseResult, everything: FuseResult) -> FuseResult:
    """The matches of patterns on their own, without those that other patterns take from them in a joint run."""
    made = {rewrite.place for rewrite in everything.rewrites}
    by_node = {node: rewrite.pattern for rewrite in everything.rewrites for node in rewrite.replaces if node}
    kept: list[Rewrite] = []
    lost: list[Skip] = []
    for rewrite in result.rewrites:
        winners = dict.fromkeys(by_node[node] for node in rewrite.replaces if node in by_node)
        if rewrite.place in made or not winners or rewrite.pattern in winners:
            kept.append(rewrite)
        else:
            lost.append(taken(rewrite.pattern, rewrite.root, winners))
    return replace(result, rewrites=tuple(kept), skipped=(*result.skipped, *lost))


def _by_itself(change: str, op: str) -> str:
    """The "change" for a place where onnxruntime itself makes `op`: none is needed."""
    return (
        f"none is needed: onnxruntime will fuse this itself at load, into {op}; or {change}".removesuffix("; or ")
        if op
        else change
    )
