"""Writes patterns/index.json, the index of the patterns that come with the package.

`python docs/index.py` writes it; a test checks that it is current.
"""

from __future__ import annotations

from pathlib import Path

from onnx_subgraph.language.index import INDEX, Entry, Index, written
from onnx_subgraph.language.kinds import read_kinds
from onnx_subgraph.language.library import built_in_contents, built_in_packs, headers, load_patterns
from onnx_subgraph.language.source import Fields, Scalar
from onnx_subgraph.matching.anchors import needs
from onnx_subgraph.matching.normalise import normalise

(FOLDER,) = built_in_packs()


def index() -> str:
    """The whole index."""
    patterns = load_patterns(checked=True).patterns
    needed = {p.id: needs(normalise(p).primary) if p.is_formula else None for p in patterns}
    entries = tuple(Entry(header, needed[header.id]) for header in headers())
    _, operators, lowerings = read_kinds(built_in_contents())
    places: dict[str, tuple[Path, ...]] = {_name(fields, "operator"): (path,) for path, fields in operators}
    for path, fields in lowerings:
        places[_name(fields, "lowers")] += (path,)
    return written(Index(entries, places), FOLDER, built_in_contents())


def _name(fields: Fields, key: str) -> str:
    name = fields.get(key)
    assert isinstance(name, Scalar)
    return name.text


if __name__ == "__main__":
    (FOLDER / INDEX).write_text(index(), encoding="utf-8")
