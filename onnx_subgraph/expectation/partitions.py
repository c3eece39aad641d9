"""Expectations of `partition`: engines, nodes and the largest difference, in the same file format as for `fuse`."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_subgraph.errors import ExpectationError
from onnx_subgraph.expectation.check import MOST_REASONS, Check, held_to, limited
from onnx_subgraph.expectation.expectation import Section
from onnx_subgraph.expectation.writing import tolerance_of
from onnx_subgraph.language.dump import yaml_text
from onnx_subgraph.partitioning.partition import PartitionResult
from onnx_subgraph.paths import short_names

HEAD = "# What `onnx-subgraph partition` is expected to give: checked with --expect, made with --write-expect.\n"
KEYS = ("engines", "nodes", "tolerance")
"""The keys of a section that apply to a partition."""


def check_section(section: Section) -> None:
    """Raises ExpectationError for a section with keys that apply only to `fuse`."""
    others = {
        "fusions": section.fusions,
        "near-misses": section.near_misses is not None,
        "size": section.size,
        "providers": section.providers,
    }
    if asked := [key for key, value in others.items() if value]:
        hint = f"use it with `fuse`; `partition` has {', '.join(KEYS)}"
        raise ExpectationError(f"a partition has no `{asked[0]}`", span=section.span, hint=hint)


def check_partition(section: Section, result: PartitionResult) -> tuple[Check, ...]:
    """Check every expectation of `section` against `result`, in the order of `KEYS`."""
    return tuple(_checks(section, result))


def partition_expectation(result: PartitionResult) -> str:
    """The expectation file that `result` satisfies."""
    section = {"engines": len(result.engines), "nodes": f"at most {result.nodes_after}", **tolerance_of(result.verdict)}
    return HEAD + yaml_text({"models": {short_names([result.model])[result.model]: section}})


def _checks(section: Section, result: PartitionResult) -> Iterator[Check]:
    if section.engines is not None:
        yield limited("engines", section.engines, len(result.engines), _why_others(result))
    if section.nodes is not None:
        yield limited("nodes", section.nodes, result.nodes_after, _why_others(result))
    if section.tolerance is not None:
        yield held_to(section.tolerance, result.verdict)


def _why_others(result: PartitionResult) -> tuple[str, ...]:
    """Why regions and operators are in no engine, the most frequent reason first."""
    refused = [f"a region of {region.cost.nodes} nodes at {region.node}: {region.reason}" for region in result.refused]
    unsupported = sorted(result.unsupported, key=lambda group: -len(group.nodes))
    said = [f"{len(group.nodes)} {group.operator} at {group.nodes[0]}: {group.reason}" for group in unsupported]
    return (*refused[:MOST_REASONS], *said[:MOST_REASONS])
