"""Writes docs/patterns.md, the catalogue of the patterns that come with the package, from the pattern files.

`python docs/catalogue.py` writes the page; a test holds that it is current. What a pattern looks for and what replaces it is
shown as its file says it, without the models that it is tested on.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from onnx_subgraph.language.library import Header, headers
from onnx_subgraph.report.listing import formula

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "patterns.md"

INTRODUCTION = """\
# Patterns

The fusions that come with onnx-subgraph: what each looks for, when, and what replaces it for which target. How to read them is
said in [language.md](language.md). The targets are `onnxruntime` (operators with a kernel there) and `standard` (operators of
ONNX); every pattern also has the target `function`. `onnx-subgraph list-patterns` prints the list.

<!-- Written by `python docs/catalogue.py` from the files in patterns/. -->
"""


def page() -> str:
    """The whole page."""
    groups = [(group, list(members)) for group, members in groupby(headers(), key=lambda header: header.group)]
    contents = [f"* [{group}](#{group}): {', '.join(f'[{h.id}](#{h.id})' for h in members)}" for group, members in groups]
    parts = [INTRODUCTION, "\n".join(contents) + "\n"]
    for group, members in groups:
        parts += [f"## {group}\n", *map(_entry, members)]
    return "\n".join(parts)


def _entry(header: Header) -> str:
    file = Path(header.file)
    source = formula(file.read_text(encoding="utf-8"))
    shown = "\n".join(line for line in source.splitlines() if not line.startswith("summary:"))
    where = file.relative_to(ROOT).as_posix()
    return f"### {header.id}\n\n{header.summary}. [{where}](../{where})\n\n```yaml\n{shown}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
