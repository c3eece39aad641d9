"""`onnx-subgraph list-patterns`: the list of patterns, or one of them.

It does not check pattern files against the operator schemas, because that would import onnx: the list appears in under 0.3 s.
Commands that use a pattern report its mistakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnx_subgraph.cli.options import complete_ids, json_option, patterns_option
from onnx_subgraph.errors import PatternError

if TYPE_CHECKING:
    from onnx_subgraph.language.header import Header


@click.command("list-patterns", short_help="List all patterns, or show one.")
@click.argument("pattern", required=False, shell_complete=complete_ids)
@patterns_option
@json_option
def list_patterns(pattern: str | None, patterns: tuple[Path, ...], as_json: bool) -> int:
    """List all patterns, including those of installed packs, or show one: its formula, its replacements, and its file."""
    from onnx_subgraph.cli.terminal import show_json, show_text, warn, width
    from onnx_subgraph.language.formulas import used_formulas
    from onnx_subgraph.language.library import headers, part_of, renamed, unknown_id
    from onnx_subgraph.language.shared import source_of

    known = (*headers(patterns), *_installed(patterns))
    if pattern is None:
        if as_json:
            from onnx_subgraph.report import json

            show_json({"patterns": [json.header(header) for header in known]})
        else:
            from onnx_subgraph.report import listing

            show_text(listing.pattern_list(known, width()))
        return 0
    current = pattern if any(header.id == pattern for header in known) else renamed(known).get(pattern, pattern)
    if current != pattern:
        warn(f"Warning: {part_of(pattern, current)}")
    header = next((header for header in known if header.id == current), None)
    if header is None:
        raise unknown_id(pattern, (header.id for header in known))
    source, used = source_of(Path(header.file), header.id), used_formulas(Path(header.file), header.id)
    if as_json:
        from onnx_subgraph.report import json

        formulas = {str(formula): formula.text for formula in used}
        show_json({**json.header(header), "source": source, "formulas": formulas})
    else:
        from onnx_subgraph.report import listing

        show_text(listing.pattern(header, source, used))
    return 0


def _installed(given: Sequence[Path]) -> tuple[Header, ...]:
    """The patterns of installed packs that were not named; a pack with a mistake in it is reported."""
    from onnx_subgraph.cli.terminal import warn
    from onnx_subgraph.language.installed import installed_packs, pack_folder
    from onnx_subgraph.language.library import headers

    found: list[Header] = []
    for name, point in installed_packs().items():
        try:
            folder = pack_folder(point)
            if folder not in given:
                use = f"installed; --patterns {name} uses it"
                found += (replace(header, origin=f"{header.origin} ({use})") for header in headers(folder, built_in=False))
        except PatternError as error:
            warn(f"Warning: the installed pack {name} can't be read: {error}")
    return tuple(found)
