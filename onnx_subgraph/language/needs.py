"""The operators that built-in patterns need: an index, so that a pattern that can't match a model is not read.

`patterns/needs.json` holds, for each formula, sets of operators such that every match has one of each. `python docs/needs.py`
writes it, because they follow from the normal form of the formula. It is valid only for the very files that it was made from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from onnx_subgraph.language.formulas import FORMULA_FILE
from onnx_subgraph.language.pattern import Needs
from onnx_subgraph.operators.names import qualified

INDEX = "needs.json"


def read_needs(folder: Path, files: Iterable[tuple[Path, bytes]]) -> Mapping[str, Needs]:
    """Pattern → what it needs, for the patterns of a built-in pack in these files. Empty where the index was made from others."""
    if not (folder / INDEX).is_file():
        return {}
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    if index["digest"] != _digest(folder, files):
        return {}
    return {name: tuple(frozenset(map(_operator, need)) for need in needs) for name, needs in index["needs"].items()}


def written_needs(folder: Path, files: Iterable[tuple[Path, bytes]], needs: Mapping[str, Needs]) -> str:
    """The index, as text."""
    written = {name: sorted(sorted(map(qualified, need)) for need in needs[name]) for name in sorted(needs)}
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(sets)}" for name, sets in written.items())
    return f'{{\n  "digest": "{_digest(folder, files)}",\n  "needs": {{\n{lines}\n  }}\n}}\n'


def _digest(folder: Path, files: Iterable[tuple[Path, bytes]]) -> str:
    """A digest of the files of the pack and of the formulas that they may use."""
    whole = hashlib.sha256()
    formulas = ((path, path.read_bytes()) for path in sorted(folder.rglob(FORMULA_FILE)))
    for path, content in (*sorted(files), *formulas):
        whole.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        whole.update(content)
    return whole.hexdigest()


def _operator(text: str) -> tuple[str, str]:
    domain, _, name = text.rpartition(".")
    return domain, name
