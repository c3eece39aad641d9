"""Profile a model: its time by operator, by module of the network, and the part that no pattern covers.

The data comes from onnxruntime's profile. onnxruntime makes up names for nodes that it creates. If such a name starts with the
name of a node in the file, it counts as that node.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any

import onnx_ir as ir

from onnx_subgraph import temporary
from onnx_subgraph.files.models import load
from onnx_subgraph.matching.origin import stood_for
from onnx_subgraph.regions.ground import PATTERN
from onnx_subgraph.regions.marks import paths
from onnx_subgraph.timing.runtimes import Setting, open_runner
from onnx_subgraph.verification.sessions import Failure

RUNS = range(3, 101)
"""The number of profiled runs: at least 3, at most 101."""
SECONDS = 2.0
"""The time limit for runs beyond the minimum."""
_RAN = "_kernel_time"
"""The suffix of a node's name in onnxruntime's profile for an execution of it."""
_WITH_BODIES = frozenset({"If", "Loop", "Scan"})
_INLINED = "_inlfunc_"
"""The prefix of the names that onnxruntime gives to nodes inlined from a function."""
UNRECORDED = "(not recorded)"
"""The module of nodes for which none is recorded."""
PLAIN = frozenset(
    {"MatMul", "Gemm", "Conv", "FusedMatMul", "FusedGemm", "FusedConv", "ConvTranspose", "QLinearConv", "QLinearMatMul"}
)
"""Products and convolutions: the operators that remain when everything else is fused."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a run. share: of the total time in nodes. milliseconds: per run. count: the number of nodes."""

    name: str
    share: float
    milliseconds: float
    count: int


@dataclass(frozen=True, slots=True)
class Profile:
    """operators: time by operator, the longest first. modules: by module of the network, as recorded by the exporter.

    patterns: by the pattern that added the node. uncovered: by operator, for nodes that no pattern added, without products and
    convolutions.
    """

    operators: tuple[Part, ...]
    modules: tuple[Part, ...]
    patterns: tuple[Part, ...]
    uncovered: tuple[Part, ...]
    milliseconds: float


def modules_of(model: ir.Model) -> dict[str, str]:
    """Name of a node → its innermost module, where the exporter recorded one."""
    return {str(node.name): inside[-1] for node in model.graph.all_nodes() if (inside := paths(node))}


def profiled(model: Path, runtime: str, setting: Setting, feeds: Mapping[str, Any], modules: Mapping[str, str]) -> Profile | None:
    """The profile of some runs of a model in onnxruntime; None where there is none.

    modules: name of a node → its module, in the model that this one was made from.
    """
    events = _profile(model, runtime, setting, feeds)
    return None if events is None else _read(events, _Nodes(load(model), modules))


def node_times(model: Path, setting: Setting, feeds: Mapping[str, Any]) -> dict[str, float] | None:
    """Name of a node in the file → the microseconds that a run of onnxruntime spends in it; None where there is no profile.

    Nodes that onnxruntime made from several, and nodes without names, count as "".
    """
    events = _profile(model, "onnxruntime", setting, feeds)
    if events is None:
        return None
    nodes, taken = _Nodes(load(model), {}), Counter[str]()
    for (name, operator), microseconds in _medians(events).items():
        node = nodes(name)
        same = node is not None and node.op_type == operator
        taken[str(node.name) if node is not None and same else ""] += microseconds  # type: ignore[assignment]
    return dict(taken)


def _profile(model: Path, runtime: str, setting: Setting, feeds: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """The events of onnxruntime's profile of some runs of a model."""
    with temporary.folder() as folder:
        runner = open_runner(model, runtime, Setting(setting.provider, setting.threads, folder / "profile"))
        if isinstance(runner, Failure):
            return None
        assert runner.session is not None
        begun = time.perf_counter()
        for number in range(RUNS.stop):
            if number >= RUNS.start and time.perf_counter() - begun > SECONDS:
                break
            runner.run(feeds)
        try:
            text = Path(runner.session.handle.end_profiling()).read_text(encoding="utf-8", errors="replace")
            events: list[Mapping[str, Any]] = json.loads(text)
        except (OSError, ValueError):
            return None
    return events


class _Nodes:
    """The nodes of a model, by their names in a profile."""

    def __init__(self, model: ir.Model, modules: Mapping[str, str]) -> None:
        self._modules = modules
        graphs = [model.graph, *(function.graph for function in model.functions.values())]
        every = [node for graph in graphs for node in graph.all_nodes()]
        # onnxruntime names nodes in its own layout after the value that they compute
        self._nodes = {str(value.name): node for node in every for value in node.outputs if value.name}
        self._nodes |= {str(node.name): node for node in every if node.name}
        self._called = {str(node.name) for node in model.graph.all_nodes() if node.op_identifier() in model.functions}

    def module(self, node: ir.Node) -> str:
        """The module of a node; for one that a pattern added, the common part of the modules of the nodes that it replaced."""
        if inside := paths(node):
            return inside[-1]
        known = [self._modules[name] for name in stood_for(node) if name in self._modules]
        shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*(module.split(".") for module in known), strict=False))
        return ".".join(parts[0] for parts in shared)

    def __call__(self, name: str) -> ir.Node | None:
        """The node of this name, or whose name is a prefix of it; for an inlined node the call."""
        if name.startswith(_INLINED):
            called = [one for one in self._called if one in name]
            return self._nodes[max(called, key=len)] if called else None
        while name:
            if name in self._nodes:
                return self._nodes[name]
            cut = max(name.rfind(mark) for mark in "/_:")
            name = name[: max(cut, 0)]
        return None


def _read(events: Iterable[Mapping[str, Any]], nodes: _Nodes) -> Profile:
    """A profile from onnxruntime's events."""
    sums = {kind: _Sums() for kind in ("operator", "module", "pattern", "uncovered")}
    for (name, operator), typical in _medians(events).items():
        node = nodes(name)
        module = nodes.module(node) if node is not None else ""
        pattern = node.metadata_props.get(PATTERN) if node is not None else None
        sums["operator"].add(operator, typical)
        sums["module"].add(_short(module) or UNRECORDED, typical)
        if pattern is not None:
            sums["pattern"].add(pattern, typical)
        elif operator not in PLAIN:
            sums["uncovered"].add(operator, typical)
    total = sum(sums["operator"].microseconds.values())
    parts = {kind: found.parts(total) for kind, found in sums.items()}
    return Profile(parts["operator"], parts["module"], parts["pattern"], parts["uncovered"], total / 1e3)


def _medians(events: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """(Node, operator) → the median of the microseconds of its runs."""
    taken: dict[tuple[str, str], list[int]] = defaultdict(list)
    for name, operator, lasted in _own_time(events):
        taken[name, operator].append(lasted)
    return {key: median(microseconds) for key, microseconds in taken.items()}


def _own_time(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, int]]:
    """Node, operator and microseconds of each run of a node, without the time of the nodes in its subgraphs."""
    ran = [event for event in events if event.get("cat") == "Node" and str(event.get("name", "")).endswith(_RAN)]
    ran.sort(key=lambda event: (event.get("tid", 0), event.get("ts", 0), -event.get("dur", 0)))
    outside: list[tuple[int, int, int]] = []  # enclosing events: thread, end, and index in `own`
    own: list[int] = []
    for event in ran:
        thread, start, lasted = event.get("tid", 0), int(event.get("ts", 0)), int(event.get("dur", 0))
        while outside and (outside[-1][0] != thread or outside[-1][1] < start + lasted):
            outside.pop()
        if outside:
            own[outside[-1][2]] -= lasted
        own.append(lasted)
        if str(event.get("args", {}).get("op_name", "")) in _WITH_BODIES:
            outside.append((thread, start + lasted, len(own) - 1))
    for event, microseconds in zip(ran, own, strict=True):
        name = str(event["name"]).removesuffix(_RAN)
        yield name, str(event.get("args", {}).get("op_name", "?")), max(0, microseconds)


class _Sums:
    """Sums of the times of nodes, by name."""

    def __init__(self) -> None:
        self.microseconds: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, microseconds: float) -> None:
        self.microseconds[name] += microseconds  # type: ignore[assignment]  # a Counter takes any number
        self._counts[name] += 1

    def parts(self, total: float) -> tuple[Part, ...]:
        return tuple(
            Part(name, taken / total if total else 0.0, taken / 1e3, self._counts[name])
            for name, taken in self.microseconds.most_common()
        )


def _short(module: str) -> str:
    """Merge modules that differ only in a number: `encoder.layer.*.attention`."""
    return ".".join("*" if part.isdecimal() else part for part in module.split("."))
