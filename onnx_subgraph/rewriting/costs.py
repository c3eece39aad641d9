"""Look up in measurements whether a replacement is faster than what it replaces.

`benchmarks/operator_costs.py` measures fused operators against the unfused graph in onnxruntime, with and without onnxruntime's
own fusions, and writes `operator_costs.json`. What was not measured (another provider, another dtype) has no cost here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import onnx_ir as ir

from onnx_subgraph.operators import schema
from onnx_subgraph.operators.names import operator_of

TABLE = Path(__file__).with_name("operator_costs.json")
NOISE = 0.02
"""The relative error of a measured ratio, even in the round that favours the replacement most."""
ONE_MEANING = frozenset({"Attention", "GroupNormalization", "RotaryEmbedding"})
"""Standard operators that represent a whole match wherever they are emitted, like onnxruntime's own operators."""
OTHER_KIND = 64.0
"""Distance for each operand that only one of two nodes has, for each flag that differs, and where only one works along the last
axis; in doublings of a size.

Nodes that differ in two of these are too different: an Attention with a cache says nothing about one without.
"""
OTHER_RANK = 8.0
"""Distance for each operand that has another number of axes, as keys in heads have; in doublings of a size."""

Sizes = tuple[int | None, ...]
"""A shape; None for a size that is known only at run time."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What the time of a node depends on.

    operator: with its domain. dtype: of its first operand. operands: the shape of each input, None where it is omitted or its
    rank is unknown. attributes: its integers and strings.
    """

    operator: str
    dtype: str
    operands: tuple[Sizes | None, ...]
    attributes: Mapping[str, int | str] = field(default_factory=dict)


class Measurement(NamedTuple):
    """One measured site. All ratios are (time of the fused operator) / (time of the unfused graph).

    ratio: with onnxruntime's optimisations of the unfused graph. apart: without them. least: the larger of the two, each taken
    from the round that favoured the fused operator most.
    """

    provider: str
    pattern: str
    signature: Signature
    ratio: float
    apart: float
    least: float


class Cost(NamedTuple):
    """The cost of a replacement: its time by that of the unfused graph, at each of the most similar measured sites.

    ratios: with onnxruntime's optimisations of the unfused graph. apart: without them. least: the larger of the two at each site,
    in the round that favoured the replacement most. place: the shape of the measured site with the worst ratio, for messages.
    """

    ratios: tuple[float, ...]
    apart: tuple[float, ...]
    least: tuple[float, ...]
    place: str

    @property
    def ratio(self) -> float:
        """Geometric mean over the sites, each against the faster of its two unfused variants."""
        return _mean([max(both) for both in zip(self.ratios, self.apart, strict=True)])

    @property
    def is_slower(self) -> bool:
        """Whether the unfused graph was faster by more than noise in every round.

        That must hold for the mean of the sites; or for one site, if no site was faster fused.
        """
        never_faster = min(*self.ratios, *self.apart) > 1 - NOISE
        return _mean(self.least) > 1 + NOISE or (max(self.least) > 1 + NOISE and never_faster)

    @property
    def is_faster(self) -> bool:
        """Whether the replacement is faster in the mean than both unfused variants, by more than noise."""
        return self.ratio < 1 - NOISE and not self.is_slower


class Costs:
    """What replacements cost. measurements: operator, with its domain → its measurements.

    refuses: whether a replacement that was measured slower than the unfused graph is refused. If not, the measurements only
    choose among the replacements of a match.
    """

    def __init__(self, measurements: Mapping[str, Sequence[Measurement]], *, refuses: bool = True) -> None:
        self.refuses = refuses
        self._measurements = measurements
        self._known: dict[tuple[object, ...], Cost | None] = {}

    def of(self, provider: str, pattern: str, nodes: Sequence[ir.Node]) -> Cost | None:
        """The cost on `provider` of replacing a match of `pattern` by `nodes`; None where nothing similar was measured.

        The nearest measurements count. Unknown sizes add no distance, so where all sizes are unknown every measurement counts.
        """
        node = head(nodes)
        if node is None:
            return None
        signature, fused = signature_of(node), is_fused(node)
        key = (
            provider,
            pattern,
            fused,
            signature.operator,
            signature.dtype,
            signature.operands,
            *sorted(signature.attributes.items()),
        )
        if key not in self._known:  # a network has the same node in every layer
            self._known[key] = self._nearest(provider, pattern, signature, fused)
        return self._known[key]

    def _nearest(self, provider: str, pattern: str, signature: Signature, fused: bool) -> Cost | None:
        """The cost of a node with this signature. fused: whether the operator always represents a whole match."""
        known = self._alike(provider, signature.operator, signature.dtype)
        # A fused operator means the same in every pattern that emits it. A standard operator may occur in many replacements.
        same = [m for m in known if m.pattern == pattern] or (known if fused else ())
        far = [(_distance(signature, m.signature), m) for m in same]
        least = min((d for d, _ in far), default=math.inf)
        if least >= 2 * OTHER_KIND:
            return None
        nearest = [m for d, m in far if d <= least + 1e-6]
        worst = max(nearest, key=lambda m: max(m.ratio, m.apart))
        place = "×".join(map(str, worst.signature.operands[0] or ()))
        return Cost(tuple(m.ratio for m in nearest), tuple(m.apart for m in nearest), tuple(m.least for m in nearest), place)

    def typical(self, provider: str, operator: str, dtype: str) -> float | None:
        """The ratio of a fused standard operator over all measured sizes (geometric mean). None for others or if not measured."""
        if operator not in ONE_MEANING:
            return None
        known = self._alike(provider, operator, dtype)
        return _mean([m.ratio for m in known]) if known else None

    def _alike(self, provider: str, operator: str, dtype: str) -> list[Measurement]:
        """The measurements of an operator with operands of a dtype on a provider."""
        return [m for m in self._measurements.get(operator, ()) if (m.provider, m.signature.dtype) == (provider, dtype)]


def is_fused(node: ir.Node) -> bool:
    """Whether a node represents a whole match wherever it is emitted."""
    return bool(node.domain) or node.op_type in ONE_MEANING


def head(nodes: Sequence[ir.Node]) -> ir.Node | None:
    """The main node of a replacement: the last fused operator, or the last node."""
    return next((n for n in reversed(nodes) if is_fused(n)), nodes[-1] if nodes else None)


def main_operator(nodes: Sequence[ir.Node]) -> str:
    """The operator of the main node of a replacement, with its domain; "" where it has no node."""
    node = head(nodes)
    return "" if node is None else operator_of(node)


def signature_of(node: ir.Node) -> Signature:
    """The signature of a node, as far as the types and shapes of its operands are known.

    A string that is the default, such as NOTSET of a convolution's auto_pad, is left out: some exporters write it.
    """
    first, known = next((v for v in node.inputs if v is not None), None), schema(node.op_type, node.domain)
    defaults = {} if known is None else {a.name: a.default for a in known.attributes.values() if a.type == "STRING"}
    return Signature(
        operator=operator_of(node),
        dtype="" if first is None or first.dtype is None else first.dtype.name.lower(),
        operands=tuple(None if v is None else _sizes(v) for v in node.inputs),
        attributes={
            a.name: a.value
            for a in node.attributes.values()
            if a.type in _COMPARED and not a.is_ref() and (a.name not in defaults or a.value != defaults[a.name])
        },
    )


@cache
def measured(*, refuses: bool = True) -> Costs:
    """The costs in the table that comes with the package."""
    return Costs(_Table(), refuses=refuses)


NONE = Costs({}, refuses=False)
"""No costs: a replacement is made whatever its time, the first one of a match that passes every check."""


class _Table(Mapping[str, Sequence[Measurement]]):
    """The measurements of the table, one a line; those of an operator are parsed when they are asked for."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        for line in TABLE.read_text(encoding="utf-8").splitlines():
            if found := _OPERATOR.search(line):
                self._lines.setdefault(found[1], []).append(line)

    def __getitem__(self, operator: str) -> Sequence[Measurement]:
        return [_measurement(json.loads(line.rstrip(","))) for line in self._lines[operator]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


_OPERATOR = re.compile(r'"operator": "([^"]*)"')


def _measurement(row: Mapping[str, Any]) -> Measurement:
    operands = tuple(None if sizes is None else tuple(sizes) for sizes in row["operands"])
    signature = Signature(row["operator"], row["dtype"], operands, row["attributes"])
    (least, ratio, _), (least_apart, apart, _) = row["ratio"], row["apart"]
    return Measurement(row["provider"], row["pattern"], signature, ratio, apart, max(least, least_apart))


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


_COMPARED = frozenset({ir.AttributeType.INT, ir.AttributeType.STRING})


def _sizes(value: ir.Value) -> Sizes | None:
    return None if value.shape is None else tuple(d if isinstance(d, int) else None for d in value.shape)


def _distance(site: Signature, measured: Signature) -> float:
    """The distance of two signatures in doublings of their sizes; infinite where the measurement does not apply to the site."""
    total = 0.0
    for name in site.attributes.keys() | measured.attributes.keys():
        a, b = site.attributes.get(name), measured.attributes.get(name)
        if isinstance(a, str) or isinstance(b, str):
            total += 0.0 if a == b else math.inf
        elif name == "axis":
            total += OTHER_KIND if a is not None and b is not None and _is_last(site) != _is_last(measured) else 0.0
        elif {a, b} == {0, 1}:
            total += OTHER_KIND
        else:
            total += _doublings(a, b)
    for here, there in zip_longest(site.operands, measured.operands):
        if (here is None) != (there is None):
            total += OTHER_KIND
        elif here is not None and there is not None:
            total += sum(_doublings(m, n) for m, n in zip(reversed(here), reversed(there), strict=False))
            total += OTHER_RANK * (len(here) != len(there))
    return total


def _is_last(signature: Signature) -> bool:
    """Whether the attribute `axis` is the last axis of the first operand, which lies together in memory."""
    axis, sizes = signature.attributes.get("axis"), next(iter(signature.operands), None)
    return axis == -1 or (sizes is not None and axis == len(sizes) - 1)


def _doublings(a: int | None, b: int | None) -> float:
    return 0.0 if a is None or b is None or a < 1 or b < 1 else abs(math.log2(a / b))
