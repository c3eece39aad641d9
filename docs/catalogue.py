"""Writes docs/patterns.md and docs/operators.md, the catalogue of the patterns and operators that come with the package.

`python docs/catalogue.py` writes the pages from the files; a test holds that they are current. What a pattern looks for and what
replaces it is shown as its file says it, without the models that it is tested on.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from onnx_subgraph.language.formulas import built_in_formulas, used_formulas
from onnx_subgraph.language.library import Header, Library, headers, load_patterns
from onnx_subgraph.language.operator import CanonicalOperator
from onnx_subgraph.language.shared import source_of
from onnx_subgraph.report.listing import formula, shared

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "patterns.md"
OPERATORS = ROOT / "docs" / "operators.md"

INTRODUCTION = """\
# Patterns

The fusions that come with onnx-subgraph: what each looks for, when, and what replaces it for which target. How to read them is
said in [language.md](language.md). The targets are `onnxruntime` (operators with a kernel there) and `standard` (operators of
ONNX); every pattern also has the target `function`. `onnx-subgraph list-patterns` prints the list.

<!-- Written by `python docs/catalogue.py` from the files in patterns/. -->
"""


FORMULAS = """\
## formulas

Parts of a `match` that several patterns share. [patterns/formulas.yaml](../patterns/formulas.yaml)
"""


OPERATORS_INTRODUCTION = """\
# Canonical operators

What formulas raise to, and what stands for it on each target. [language.md](language.md#canonical-operators) says how to read
them. With `--target function` a fused model holds these operators, in the domain `onnx_subgraph`, with their definitions.

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
    formulas = (p.id for p in library.patterns if p.raised is not None and p.raised.operator.name == operator.name)
    found = ", ".join(f"[{name}](patterns.md#{name})" for name in formulas)
    lines = [f"## {operator.name}\n", f"{operator.summary}. [{where}](../{where})\n", f"Source: {operator.source}\n"]
    if operator.kernel:
        lines.append(f"Kernel: in the [library](../kernels/README.md), for {', '.join(sorted(operator.kernel))}\n")
    lines += [f"| name | kind | what it is |\n|---|---|---|\n{rows}\n", f"```\n{operator.definition}\n```\n"]
    return "\n".join([*lines, f"Formulas: {found}.\n"])


def page() -> str:
    """The whole page of patterns."""
    groups = [(group, list(members)) for group, members in groupby(headers(), key=lambda header: header.group)]
    contents = [f"* [{group}](#{group}): {', '.join(f'[{h.id}](#{h.id})' for h in members)}" for group, members in groups]
    formulas = "\n\n".join(map(shared, built_in_formulas().values()))
    contents.append("* [formulas](#formulas) that several of them share")
    parts = [INTRODUCTION, "\n".join(contents) + "\n"]
    for group, members in groups:
        parts += [f"## {group}\n", *map(_entry, members)]
    parts.append(f"{FORMULAS}\n```yaml\n{formulas}\n```\n")
    return "\n".join(parts)


def _entry(header: Header) -> str:
    file = Path(header.file)
    source = formula(source_of(file, header.id))
    shown = "\n".join(line for line in source.splitlines() if not line.startswith("summary:"))
    where = file.relative_to(ROOT).as_posix()
    names = ", ".join(f"[{f}](#formulas)" for f in used_formulas(file, header.id))
    uses = f" Uses {names}." if names else ""
    return f"### {header.id}\n\n{header.summary}. [{where}](../{where}){uses}\n\n```yaml\n{shown}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    OPERATORS.write_text(operators_page(), encoding="utf-8")
