"""Writes docs/patterns.md and docs/operators.md, the catalogue of the patterns and operators that come with the package.

`python docs/catalogue.py` writes the pages; a test checks that they are current. The page of patterns has one line for each
pattern and a link to its file.
"""

from __future__ import annotations

import textwrap
from itertools import groupby
from pathlib import Path

from onnx_subgraph.language.header import Header
from onnx_subgraph.language.library import Library, headers, load_patterns
from onnx_subgraph.language.operator import CanonicalOperator
from onnx_subgraph.language.pattern import Pattern

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "patterns.md"
OPERATORS = ROOT / "docs" / "operators.md"

INTRODUCTION = """\
# Patterns

The patterns that come with onnx-subgraph, by group. A pattern's file has its formula, its conditions, and its
replacement for each [target](targets.md); [language.md](language.md) describes the language. `onnx-subgraph
list-patterns` prints the list, and `onnx-subgraph list-patterns ID` one pattern.

<!-- Written by `python docs/catalogue.py` from the files in patterns/. -->
"""


FORMULAS = """\
## formulas

Parts of a `match` that several patterns share: [patterns/formulas.yaml](../patterns/formulas.yaml).
"""


OPERATORS_INTRODUCTION = """\
# Canonical operators

Formulas raise to these operators, which have a replacement for each target.
[language.md](language.md#canonical-operators) describes their files. With `--target function` a fused model contains
these operators, in the domain `onnx_subgraph`, with their definitions.

<!-- Written by `python docs/catalogue.py` from their files in patterns/. -->
"""


def operators_page() -> str:
    """The whole page of operators."""
    library = load_patterns()
    return "\n".join([OPERATORS_INTRODUCTION, *(_operator(o, library) for _, o in sorted(library.operators.items()))])


def _operator(operator: CanonicalOperator, library: Library) -> str:
    where = Path(operator.file).relative_to(ROOT).as_posix()
    rows = "\n".join(
        f"| `{name}` | {kind}{', may be left out' if name in operator.optional else ''} | {what} |"
        for kind, given in (("input", operator.inputs), ("attribute", operator.attributes))
        for name, what in given.items()
    )
    formulas = (p for p in library.patterns if p.raised is not None and p.raised.operator.name == operator.name)
    found = ", ".join(f"[{p.id}](../{Path(p.file).relative_to(ROOT).as_posix()})" for p in formulas)
    lines = [f"## {operator.name}\n", _wrapped(f"{operator.summary}. [{where}](../{where})")]
    lines.append(_wrapped(f"Source: {operator.source}"))
    if operator.kernel:
        lines.append(f"Kernel: in the [library](../kernels/README.md), for {', '.join(sorted(operator.kernel))}\n")
    lines += [f"| name | kind | what it is |\n|---|---|---|\n{rows}\n", f"```\n{operator.definition}\n```\n"]
    return "\n".join([*lines, _wrapped(f"Formulas: {found}.")])


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def page() -> str:
    """The whole page of patterns."""
    patterns = {pattern.id: pattern for pattern in load_patterns().patterns}
    parts = [INTRODUCTION]
    for group, members in groupby(headers(), key=lambda header: header.group):
        rows = "\n".join(_row(header, patterns[header.id]) for header in members)
        parts.append(f"## {group}\n\n| pattern | finds | targets |\n|---|---|---|\n{rows}\n")
    return "\n".join([*parts, FORMULAS])


def _row(header: Header, pattern: Pattern) -> str:
    where = Path(header.file).relative_to(ROOT).as_posix()
    summary = header.summary.replace("|", "\\|")
    operator = pattern.raised.operator.name if pattern.raised is not None else ""
    raised = f" Raises to [{operator}](operators.md#{operator.lower()})." if operator else ""
    return f"| [{header.id}](../{where}) | {summary}.{raised} | {', '.join(sorted({*pattern.replace, 'function'}))} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    OPERATORS.write_text(operators_page(), encoding="utf-8")
