"""Writes patterns/needs.json, the index of the operators that the patterns that come with the package need.

`python docs/needs.py` writes it; a test checks that it is current.
"""

from __future__ import annotations

from onnx_subgraph.language.library import built_in_contents, built_in_packs, load_patterns
from onnx_subgraph.language.needs import INDEX, written_needs
from onnx_subgraph.matching.anchors import needs
from onnx_subgraph.matching.normalise import normalise

(FOLDER,) = built_in_packs()


def index() -> str:
    """The whole index."""
    formulas = (pattern for pattern in load_patterns().patterns if pattern.is_formula)
    return written_needs(FOLDER, built_in_contents(), {p.id: needs(normalise(p).primary) for p in formulas})


if __name__ == "__main__":
    (FOLDER / INDEX).write_text(index(), encoding="utf-8")
