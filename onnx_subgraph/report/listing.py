"""The list of patterns, and one pattern, as plain text.

`list-patterns` must be fast, so this uses only strings: importing a table library would take longer than reading the patterns.
Summaries are wrapped; ids and targets, which a reader copies, are not.
"""

from __future__ import annotations

import textwrap
from collections.abc import Container, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_subgraph.language.formula import Formula
    from onnx_subgraph.language.header import Header

LEAST_SUMMARY = 50
"""The least width of a column for summaries; in narrower ones they get their own lines."""


def pattern_list(headers: Sequence[Header], width: int) -> str:
    """All patterns by group: id, targets and summary, in at most `width` columns if the ids fit."""
    identities = max((len(header.id) for header in headers), default=0)
    targets = max((len(_targets(header)) for header in headers), default=0)
    beside = width - (2 + identities + 2 + targets + 2)
    lines: list[str] = []
    for (group, origin), members in groupby(headers, key=lambda header: (header.group, header.origin)):
        heading = f"{group}, of {origin}" if origin else group
        lines += ["", heading] if lines else [heading]
        for header in members:
            head = f"  {header.id:{identities}}  {_targets(header):{targets}}"
            if beside >= LEAST_SUMMARY:
                first, *rest = textwrap.wrap(header.summary, beside)
                lines += [f"{head}  {first}", *(f"{'':{len(head)}}  {line}" for line in rest)]
            else:
                lines += [
                    head.rstrip(),
                    *textwrap.wrap(header.summary, max(width, 20), initial_indent="    ", subsequent_indent="    "),
                ]
    count = f"{len(headers)} pattern{'' if len(headers) == 1 else 's'}"
    without = sum("function" not in header.targets for header in headers)
    which = f"all but {without}" if without else "each"
    end = f"{count}, {which} also for the target function; `onnx-subgraph list-patterns PATTERN` shows one"
    return "\n".join([*lines, "", *textwrap.wrap(end, max(width, 20), break_on_hyphens=False)])


def pattern(header: Header, source: str, formulas: Sequence[Formula] = ()) -> str:
    """One pattern: its file, without the test models; and the formulas that it uses."""
    facts = {"pattern": header.id, "group": header.group, "targets": ", ".join(header.targets), "file": short(header.file)}
    facts |= {"from": header.origin} if header.origin else {}
    lines = [f"{name:9}{value}" for name, value in facts.items()]
    return "\n".join([*lines, "", formula(source), *([] if not formulas else ["", *map(shared, formulas)])])


def shared(shared: Formula) -> str:
    """A formula that several patterns share, as its file has it."""
    if "\n" not in shared.text:
        return f"{shared}: {shared.text}"
    return f"{shared}: |\n{textwrap.indent(shared.text, '  ')}"


def formula(source: str, without: Container[str] = ("id", "keeps", "fuses")) -> str:
    """The lines of a pattern file without its head and its test models; a comment belongs to the key below it."""
    key, kept, comments = "", list[str](), list[str]()
    for line in source.splitlines():
        if line.startswith("#"):
            comments.append(line)
            continue
        if line[:1].isalpha():
            key = line.partition(":")[0]
        if key not in without:
            kept += [*comments, line]
        comments.clear()
    return "\n".join(kept).strip("\n")


def short(file: str) -> str:
    """The shortest path to a file from here."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _targets(header: Header) -> str:
    """The targets to show: every pattern has the target `function`, so it is shown only if there is no other."""
    return ", ".join(header.targets[:-1]) or header.targets[-1]
