"""The index of the built-in patterns: what is known of them before their files are parsed.

`patterns/index.json` holds their headers, what they need, and the files of the canonical operators. `python docs/index.py` writes
it: what a formula needs follows from its normal form. It is valid only for the very files that it was made from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from onnx_subgraph.language.formulas import FORMULA_FILE
from onnx_subgraph.language.header import Header
from onnx_subgraph.language.pattern import Needs
from onnx_subgraph.operators.names import qualified

INDEX = "index.json"
_Contents = Iterable[tuple[Path, bytes]]


class Entry(NamedTuple):
    """A pattern of the index. needs: see `Pattern`; None for what is no formula."""

    header: Header
    needs: Needs | None


class Index(NamedTuple):
    """The patterns in their order. operators: canonical operator → its file, and those of its lowerings."""

    entries: tuple[Entry, ...]
    operators: Mapping[str, tuple[Path, ...]]


def read_index(folder: Path, files: _Contents) -> Index | None:
    """The index of a built-in pack, whose pattern files are `files`. None where it was made from others."""
    if not (folder / INDEX).is_file():
        return None
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    if index["digest"] != _digest(folder, files):
        return None
    entries = tuple(_entry(row, folder, order) for order, row in enumerate(index["patterns"]))
    return Index(entries, {name: tuple(folder / file for file in files) for name, files in index["operators"].items()})


def _entry(row: Mapping[str, Any], folder: Path, order: int) -> Entry:
    file, needs = folder / row["file"], row["needs"]
    targets, formerly = tuple(row["targets"]), tuple(row["formerly"])
    header = Header(row["id"], file.parent.name, row["summary"], targets, str(file), order, formerly, row["late"])
    return Entry(header, None if needs is None else tuple(frozenset(map(_operator, need)) for need in needs))


def _operator(text: str) -> tuple[str, str]:
    domain, _, name = text.rpartition(".")
    return domain, name


def written(index: Index, folder: Path, files: _Contents) -> str:
    """The index as text, one line for each pattern and operator."""

    def lines(items: Iterable[object]) -> str:
        return ",\n".join(f"    {item}" for item in items)

    def place(path: Path | str) -> str:
        return Path(path).relative_to(folder).as_posix()

    rows = [
        {
            "id": header.id,
            "file": place(header.file),
            "summary": header.summary,
            "targets": header.targets,
            "formerly": header.formerly,
            "late": header.late,
            "needs": None if needs is None else sorted(sorted(map(qualified, need)) for need in needs),
        }
        for header, needs in index.entries
    ]
    patterns = lines(json.dumps(row, ensure_ascii=False) for row in rows)
    places = {name: [*map(place, index.operators[name])] for name in sorted(index.operators)}
    operators = lines(f"{json.dumps(name)}: {json.dumps(files)}" for name, files in places.items())
    digest = _digest(folder, files)
    return f'{{\n  "digest": "{digest}",\n  "patterns": [\n{patterns}\n  ],\n  "operators": {{\n{operators}\n  }}\n}}\n'


def _digest(folder: Path, files: _Contents) -> str:
    """A digest of the files of the pack and of the formulas that they may use."""
    whole = hashlib.sha256()
    formulas = ((path, path.read_bytes()) for path in sorted(folder.rglob(FORMULA_FILE)))
    for path, content in (*sorted(files), *formulas):
        whole.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        whole.update(content)
    return whole.hexdigest()
