"""The header of a pattern: what a list shows of it, read without its blocks and without onnx."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from onnx_subgraph.language.formerly import read_formerly
from onnx_subgraph.language.reading import read_flag, read_id, read_summary
from onnx_subgraph.language.source import Fields, Scalar
from onnx_subgraph.language.targets import read_targets


@dataclass(frozen=True, slots=True)
class Header:
    """What a list shows of a pattern. origin: a description of where it comes from, "" for a built-in one."""

    id: str
    group: str
    summary: str
    targets: tuple[str, ...]
    file: str
    order: int
    formerly: tuple[str, ...] = ()
    late: bool = False
    origin: str = ""


def header_of(fields: Fields, path: Path, order: int, lowered: Mapping[str, Collection[str]], origin: str = "") -> Header:
    """The header of the pattern that `fields` describe. lowered: see `lowered_targets`. Raises PatternError, with the place."""
    return Header(
        identity := read_id(fields, path),
        path.absolute().parent.name,
        read_summary(fields),
        read_targets(fields, lowered),
        str(path),
        order,
        read_formerly(fields, identity),
        read_flag(fields, "late"),
        origin,
    )


def lowered_targets(files: Iterable[Fields]) -> Mapping[str, Collection[str]]:
    """Canonical operator → its targets, in the files of operators and of lowerings."""
    lowered: dict[str, list[str]] = defaultdict(list)
    for fields in files:
        name = fields.get("operator") or fields.get("lowers")
        if isinstance(name, Scalar):
            lowered[name.text] += fields.keys
    return lowered
