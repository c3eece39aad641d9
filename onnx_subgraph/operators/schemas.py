"""The schema of an operator at an opset, from onnx or from the table of onnxruntime's operators.

The default domain is `""`. Schemas are immutable and cached. An operator has no schema at an opset that has removed it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

Default = bool | int | float | str | tuple["Default", ...]

_TABLE = Path(__file__).with_name("contrib.json")
_NO_MAXIMUM = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Formal:
    """A formal input or output. A variadic formal stands for any number of operands.

    types: the accepted types, as `tensor(float)`. variable: the type variable, as `T`; formals with the same variable have the
    same type. "" where it is unknown.
    """

    name: str
    optional: bool
    variadic: bool
    types: frozenset[str]
    variable: str = ""


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """A formal attribute. type: onnx's name, as `FLOAT`. default: None where there is none, or where it is a tensor."""

    name: str
    type: str
    required: bool
    default: Default | None


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """The formal inputs, outputs and attributes of an operator, as of the opset `since_version` of its domain."""

    name: str
    domain: str
    since_version: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    attributes: Mapping[str, AttributeSpec]
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int

    def input(self, name: str) -> int | None:
        """The position of the formal input `name`, or None."""
        return next((i for i, formal in enumerate(self.inputs) if formal.name == name), None)


def formal_at(formals: tuple[Formal, ...], position: int) -> Formal:
    """The formal of the operand at a position. The last formal also stands for all positions after it."""
    return formals[min(position, len(formals) - 1)]


def schema(name: str, domain: str = "", opset: int | None = None) -> Schema | None:
    """The schema of the operator at `opset` of its domain (None: the latest); None where it is unknown or removed."""
    domain = canonical(domain)
    found = _standard(name, domain, opset if opset is not None else _NO_MAXIMUM)
    if found is not None:
        return found
    versions = [s for s in _contributed(name, domain) if opset is None or domain == "" or s.since_version <= opset]
    return versions[0] if versions else None


def schema_of_anything(name: str, domain: str, attributes: Iterable[str]) -> Schema:
    """A schema for an operator of an unknown domain: it accepts any operands, and these attributes with any type."""
    anything = (Formal("", True, True, frozenset()),)
    known = {attribute: AttributeSpec(attribute, "", False, None) for attribute in attributes}
    return Schema(name, domain, 1, anything, anything, known, 0, _NO_MAXIMUM, 0, _NO_MAXIMUM)


@lru_cache(maxsize=1024)
def history(name: str, domain: str = "") -> tuple[Schema, ...]:
    """Every schema that the operator has had, latest first; () for an unknown operator."""
    domain = canonical(domain)
    standard = (_standard(name, domain, version) for version in versions_of(name, domain))
    found = tuple(s for s in standard if s is not None)
    return found or _contributed(name, domain)


def is_standard(name: str, domain: str = "") -> bool:
    """Whether the operator is, or was, part of the ONNX standard."""
    return bool(versions_of(name, canonical(domain)))


@cache
def operator_names(domain: str = "") -> tuple[str, ...]:
    """The names of all operators of `domain` at any opset, sorted."""
    domain = canonical(domain)
    standard = _versions() if domain == "" or domain.startswith("ai.onnx") else ()  # ONNX keeps these domains for itself
    return tuple(sorted({n for d, n in (*standard, *_rows()) if d == domain}))


@cache
def domains() -> tuple[str, ...]:
    """The domains whose operators are known, sorted; `""` first."""
    return tuple(sorted({d for d, _ in (*_versions(), *_rows())}))


@cache
def is_domain(name: str) -> bool:
    """Whether the operators of a domain are known. The most used ones are known without the list of all."""
    return name == "" or any(name == domain for domain, _ in _rows()) or name in domains()


@cache
def latest_opset() -> int:
    """The latest released opset of the default domain that the installed onnx knows."""
    import onnx

    return int(onnx.defs.onnx_opset_version())


def canonical(domain: str) -> str:
    """The name of a domain; `""` for the default domain, also by its long name."""
    return "" if domain == "ai.onnx" else domain


# The ONNX standard


@cache
def _versions() -> Mapping[tuple[str, str], tuple[int, ...]]:
    import onnx

    found: dict[tuple[str, str], list[int]] = {}
    for one in onnx.defs.get_all_schemas_with_history():
        if not one.deprecated and _released(one.domain, one.since_version):
            found.setdefault((one.domain, one.name), []).append(one.since_version)
    return {key: tuple(versions) for key, versions in found.items()}


@lru_cache(maxsize=1024)
def versions_of(name: str, domain: str) -> tuple[int, ...]:
    """The versions of one operator, latest first. Most commands ask for a few operators, and onnx takes long to list all."""
    import onnx

    found: list[int] = []
    below = latest_opset() if domain == "" else _NO_MAXIMUM
    while below > 0:
        try:
            one = onnx.defs.get_schema(name, below, domain)
        except onnx.defs.SchemaError:
            break
        if not one.deprecated:
            found.append(one.since_version)
        below = one.since_version - 1
    return tuple(found)


def _released(domain: str, version: int) -> bool:
    return domain != "" or version <= latest_opset()


@lru_cache(maxsize=8192)
def _standard(name: str, domain: str, opset: int) -> Schema | None:
    import onnx

    if domain == "":
        opset = min(opset, latest_opset())
    try:
        found = onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return None if found.deprecated else _from_onnx(found.since_version, found)


_MADE: dict[tuple[str, str, int], Schema] = {}


def _from_onnx(version: int, source: onnx.defs.OpSchema) -> Schema:
    key = source.domain, source.name, version
    if key not in _MADE:
        types = {one.type_param_str: frozenset(one.allowed_type_strs) for one in source.type_constraints}
        _MADE[key] = Schema(
            name=source.name,
            domain=source.domain,
            since_version=version,
            inputs=tuple(_formal(one, types) for one in source.inputs),
            outputs=tuple(_formal(one, types) for one in source.outputs),
            attributes=MappingProxyType({n: _attribute(a) for n, a in sorted(source.attributes.items())}),
            min_inputs=source.min_input,
            max_inputs=source.max_input,
            min_outputs=source.min_output,
            max_outputs=source.max_output,
        )
    return _MADE[key]


def _formal(source: onnx.defs.OpSchema.FormalParameter, types: Mapping[str, frozenset[str]]) -> Formal:
    """The formal of an operator with these types of its variables. onnx 1.20 can't give the types of a formal by itself."""
    option, given = _word(source.option), source.type_str
    variable = given if source.is_homogeneous else ""
    return Formal(source.name, option == "Optional", option == "Variadic", types.get(given, frozenset((given,))), variable)


def _attribute(source: onnx.defs.OpSchema.Attribute) -> AttributeSpec:
    return AttributeSpec(source.name, _word(source.type), source.required, default_value(source.default_value))


def _word(member: object) -> str:
    """The name of a member of an onnx enumeration. onnx's type stubs lack `name`."""
    return str(getattr(member, "name", member))


def default_value(attribute: onnx.AttributeProto) -> Default | None:
    """The value of an attribute as numbers, strings and tuples; None where it has no value, or a tensor or graph."""
    import onnx

    kinds = onnx.AttributeProto
    if attribute.type in (kinds.FLOAT, kinds.INT, kinds.STRING, kinds.FLOATS, kinds.INTS, kinds.STRINGS):
        return _as_default(onnx.helper.get_attribute_value(attribute))
    return None


def _as_default(value: Any) -> Default:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        return _shortest(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(_as_default, value))
    return value  # type: ignore[no-any-return]


def _shortest(value: float) -> float:
    """The shortest decimal that rounds to the same float32: 1e-5 where a schema stores 9.999999747378752e-06."""
    import numpy as np

    return float(str(np.float32(value)))


# onnxruntime's operators


_Row = tuple[Mapping[str, Any], Sequence[frozenset[str]]]
"""An operator as the table has it, and the types that it names by their index."""


@cache
def _rows() -> Mapping[tuple[str, str], Sequence[_Row]]:
    """The rows of the table, by domain and operator."""
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    types = [frozenset(names) for names in table["types"]]
    found: dict[tuple[str, str], list[_Row]] = {}
    for domain, operators in table["operators"].items():
        for row in operators:
            found.setdefault((domain, row["name"]), []).append((row, types))
    return found


@lru_cache(maxsize=1024)
def _contributed(name: str, domain: str) -> tuple[Schema, ...]:
    """Every schema of one of onnxruntime's operators, latest first."""
    schemas = (_from_table(domain, row, types) for row, types in _rows().get((domain, name), ()))
    return tuple(sorted(schemas, key=lambda s: -s.since_version))


def _from_table(domain: str, row: Mapping[str, Any], types: Sequence[frozenset[str]]) -> Schema:
    def formals(key: str) -> tuple[Formal, ...]:
        return tuple(Formal(name, option == "?", option == "*", types[index]) for name, option, index in row[key])

    attributes = {
        name: AttributeSpec(name, kind, required, None if default is None else _as_default(default))
        for name, (kind, required, default) in row["attributes"].items()
    }
    least_in, most_in = row["inputs_range"]
    least_out, most_out = row["outputs_range"]
    return Schema(
        name=row["name"],
        domain=domain,
        since_version=row["since"],
        inputs=formals("inputs"),
        outputs=formals("outputs"),
        attributes=MappingProxyType(attributes),
        min_inputs=least_in,
        max_inputs=most_in,
        min_outputs=least_out,
        max_outputs=most_out,
    )
