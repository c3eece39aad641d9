"""Read a backend's capability from YAML: its operators and dtypes, with limits on attributes, ranks and sizes.

    id: camera-npu
    summary: What the NPU of the camera runs
    runs: openvino:GPU,f16
    dtypes: [float32, float16]
    rank: 1..4
    sizes: 1..4096
    operators:
      Conv: {attributes: {group: 1, kernel_shape: 1..7}, rank: 4, constants: [W, B]}
      Softmax: {dtypes: [float32], attributes: {axis: [-1, 3]}}
      Relu:

A limit is a value, a range of numbers with both ends included, or a list of these. For an attribute that is a list, each element
must be within the limit. `rank` and `sizes` apply to inputs that are not constant, and to outputs. `constants` names formal
inputs that must be constant if they are present.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnx_subgraph import operators
from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.example import read_scalar
from onnx_subgraph.language.reading import check_keys, read_id, read_summary, required
from onnx_subgraph.language.source import Data, Fields, Items, Scalar, read_file
from onnx_subgraph.language.vocabulary import DTYPES

KEYS = ("id", "summary", "runs", "dtypes", "rank", "sizes", "operators")
OPERATOR_KEYS = ("dtypes", "attributes", "rank", "sizes", "constants")

_RANGE = re.compile(r"(-?[\d.eE+-]+?)\.\.(-?[\d.eE+-]+)")

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `low` to `high`, both included."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}"


Limit = tuple[Value | Range, ...]
"""The allowed values of an attribute, rank or size; () allows any."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The limits for one operator. dtypes: of its inputs and outputs, as named in the language; empty for any.

    rank, sizes: of each input that is not constant, and of each output; () for any. constants: formal inputs that must be
    constant.
    """

    dtypes: frozenset[str]
    attributes: Mapping[str, Limit] = field(default_factory=dict)
    rank: Limit = ()
    sizes: Limit = ()
    constants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Capability:
    """A declared capability. runs: the backend that compiles and runs the regions. rules: (domain, operator) → rule."""

    id: str
    summary: str
    runs: str
    rules: Mapping[tuple[str, str], Rule]


def read_capability(path: Path) -> Capability:
    """Read the capability in the file `path`. Raises PatternError, with the place."""
    fields = read_file(path)
    check_keys(fields, KEYS, "a backend")
    common = Rule(_dtypes(fields.get("dtypes")), rank=_limit(fields.get("rank")), sizes=_limit(fields.get("sizes")))
    listed = required(fields, "operators")
    if not isinstance(listed, Fields):
        raise PatternError("`operators` is not a mapping", span=listed.span, hint="write one operator a line, such as `Relu:`")
    runs = fields.get("runs")
    return Capability(
        id=read_id(fields, path),
        summary=read_summary(fields),
        runs="onnxruntime" if runs is None else _text(runs, "runs").text,
        rules={_operator(key): _rule(key, data, common) for key, data in listed.entries},
    )


def _operator(key: Scalar) -> tuple[str, str]:
    domain, _, name = key.text.rpartition(".")
    if operators.is_domain(domain) and not operators.history(name, domain):
        hint = spelling.hint(name, operators.operator_names(domain), "give the operator's name, with its domain before it")
        raise PatternError(f"`{key.text}` is no operator", span=key.span, hint=hint)
    return domain, name


def _rule(key: Scalar, data: Data, common: Rule) -> Rule:
    if isinstance(data, Scalar) and data.text in ("", "~", "null"):
        return common
    if not isinstance(data, Fields):
        hint = "write nothing after the `:`, or `{dtypes: […], attributes: {…}}`"
        raise PatternError(f"the limits of `{key.text}` are not a mapping", span=data.span, hint=hint)
    check_keys(data, OPERATOR_KEYS, f"`{key.text}`")
    operator, given = _operator(key), data.get("dtypes")
    return replace(
        common,
        dtypes=common.dtypes if given is None else _dtypes(given),
        attributes=_limits(operator, data.get("attributes")),
        rank=_limit(data.get("rank")) or common.rank,
        sizes=_limit(data.get("sizes")) or common.sizes,
        constants=_inputs(operator, data.get("constants")),
    )


def _inputs(operator: tuple[str, str], data: Data | None) -> tuple[str, ...]:
    """Read names of an operator's inputs."""
    domain, name = operator
    known = {formal.name for schema in operators.history(name, domain) for formal in schema.inputs}
    found = []
    for item in () if data is None else data.items if isinstance(data, Items) else (data,):
        word = _text(item, "an input")
        if word.text not in known:
            hint = spelling.hint(word.text, known, f"it has {', '.join(sorted(known))}")
            raise PatternError(f"{name} has no input `{word.text}`", span=word.span, hint=hint)
        found.append(word.text)
    return tuple(found)


def _limits(operator: tuple[str, str], data: Data | None) -> dict[str, Limit]:
    if data is None:
        return {}
    if not isinstance(data, Fields):
        raise PatternError("`attributes` is not a mapping", span=data.span, hint="write `attributes: {group: 1}`")
    domain, name = operator
    known = {attribute for schema in operators.history(name, domain) for attribute in schema.attributes}
    limits: dict[str, Limit] = {}
    for key, limit in data.entries:
        if known and key.text not in known:
            raise PatternError(
                f"{name} has no attribute `{key.text}`",
                span=key.span,
                hint=spelling.hint(key.text, known, f"it has {', '.join(sorted(known))}"),
            )
        limits[key.text] = _limit(limit)
    return limits


def _limit(data: Data | None) -> Limit:
    if data is None:
        return ()
    return tuple(_choice(item) for item in (data.items if isinstance(data, Items) else (data,)))


def _choice(data: Data) -> Value | Range:
    scalar = _text(data, "a limit")
    found = None if scalar.style else _RANGE.fullmatch(scalar.text)
    if found is None:
        return read_scalar(scalar)
    try:
        low, high = (float(end) for end in found.groups())
    except ValueError:
        raise PatternError(f"`{scalar.text}` is no range of numbers", span=scalar.span, hint="write for example `1..7`") from None
    if low > high:
        raise PatternError(f"`{scalar.text}` holds no number", span=scalar.span, hint=f"write `{high:g}..{low:g}`")
    return Range(low, high)


def _dtypes(data: Data | None) -> frozenset[str]:
    if data is None:
        return frozenset()
    found = set()
    for item in data.items if isinstance(data, Items) else (data,):
        word = _text(item, "a dtype")
        if word.text not in DTYPES:
            raise PatternError(f"`{word.text}` is no dtype", span=word.span, hint=spelling.hint(word.text, DTYPES))
        found.add(word.text)
    return frozenset(found)


def _text(data: Data, what: str) -> Scalar:
    if not isinstance(data, Scalar):
        raise PatternError(f"{what} is not text", span=data.span, hint="write a word or a number")
    return data
