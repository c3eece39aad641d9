"""An expression of `where` or `let`: its text, syntax tree and place."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from onnx_subgraph.errors import Span


@dataclass(frozen=True, slots=True)
class Expression:
    """A Python expression over the closed vocabulary of `where` and `let`."""

    text: str
    tree: ast.expr = field(compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.text
