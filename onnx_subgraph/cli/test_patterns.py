"""`onnx-subgraph test-patterns`: proves patterns.

Each pattern generates models that must fuse and mutants that must not. All of them are compared with a float64 evaluation of the
formula. The exit code is 1 if a pattern fails its proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnx_subgraph.cli.finite import Finite
from onnx_subgraph.cli.ids import current_ids
from onnx_subgraph.cli.options import (
    complete_ids,
    json_option,
    libraries_option,
    patterns_option,
    quiet_option,
    verbose_option,
)
from onnx_subgraph.errors import OnnxSubgraphError, TimeLimitError, UsageError

if TYPE_CHECKING:
    from onnx_subgraph.clock import Progress
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.language.pattern import Pattern
    from onnx_subgraph.proving import Proof


@click.command("test-patterns", short_help="Prove patterns on generated models and mutants.")
@click.argument("names", metavar="[PATTERN]...", nargs=-1, shell_complete=complete_ids)
@patterns_option
@libraries_option
@click.option(
    "--time-limit",
    type=Finite(min=0),
    default=3600,
    metavar="SECONDS",
    help="Stop after this time, with exit code 2 and the patterns proved until then. 0 for no limit.",
)
@click.option("--watch", is_flag=True, help="Prove each pattern under --patterns again when its file is saved, until ^C.")
@quiet_option
@verbose_option
@json_option
def test_patterns(
    names: tuple[str, ...],
    patterns: tuple[Path, ...],
    libraries: tuple[Path, ...],
    time_limit: float,
    watch: bool,
    as_json: bool,
) -> int:
    """Prove these patterns: on generated models that must fuse, and on mutants that must not.

    Without names, those under --patterns are proved, and built-in ones that they lower in another way; without --patterns, all.
    If a model does not fuse, the proof says how far the pattern matched, and where it failed.
    """
    from onnx_subgraph.language.library import load_patterns

    if watch:
        if not patterns or as_json:
            raise UsageError("--watch has nothing to watch" if not patterns else "--watch prints reports", hint=_WATCHING)
        return _watched(names, patterns, libraries, time_limit)
    library = load_patterns(patterns, checked=True)
    names = current_ids(names, library)
    own = [p for p in library.patterns if _is_own(p)] if patterns else []
    chosen = [p for p in library.patterns if p.id in names] if names else own or library.patterns
    return _proved(chosen, library, libraries, time_limit, as_json=as_json)


def _is_own(pattern: Pattern) -> bool:
    """Whether a pattern, or one of its lowerings, is not built in."""
    from onnx_subgraph.language.library import is_built_in

    lowered = any(block.lowering for target in pattern.replace for block in pattern.blocks(target))
    return lowered or not is_built_in(pattern.file)


_WATCHING = "onnx-subgraph test-patterns --patterns my_patterns --watch"


def _watched(names: tuple[str, ...], patterns: tuple[Path, ...], libraries: tuple[Path, ...], time_limit: float) -> int:
    """Proves the patterns under `patterns`, and changed files, until ^C. Prints mistakes in files."""
    from onnx_subgraph.cli.failure import describe
    from onnx_subgraph.cli.watching import changes
    from onnx_subgraph.language.library import load_patterns

    for changed in changes(patterns):
        try:
            library = load_patterns(patterns, checked=True)
            named = current_ids(names, library)
            mine = [p for p in library.patterns if Path(p.file).resolve() in changed and (not named or p.id in named)]
            if mine:
                _proved(mine, library, libraries, time_limit, as_json=False)
        except OnnxSubgraphError as error:
            click.echo(f"Error: {describe(error)}", err=True)
        click.echo(f"Watching {', '.join(map(str, patterns))}; ^C ends it.", err=True)
    return 0


def _proved(chosen: Sequence[Pattern], library: Library, libraries: tuple[Path, ...], time_limit: float, *, as_json: bool) -> int:
    """Proves these patterns, prints the result, and returns the exit code. Raises TimeLimitError if time ran out."""
    from onnx_subgraph.cli.terminal import progress, show, show_json
    from onnx_subgraph.deadline import within
    from onnx_subgraph.proving import prove
    from onnx_subgraph.report import json
    from onnx_subgraph.report import proofs as proofs_text
    from onnx_subgraph.verification.libraries import with_libraries

    proofs: list[Proof] = []
    over: TimeLimitError | None = None

    def prove_all(tell: Progress) -> None:
        for number, pattern in enumerate(chosen, start=1):
            stage = f"{number} of {len(chosen)}: {pattern.id}"
            tell(stage)
            proofs.append(prove(pattern, lambda models, stage=stage: tell(f"{stage}, {models}")))  # type: ignore[misc]

    try:
        with progress() as say, with_libraries(libraries, library.packs):
            within(time_limit, prove_all, say, "name the patterns to prove, or give more time: --time-limit")
    except TimeLimitError as error:
        left = f"{len(chosen) - len(proofs)} of {len(chosen)} patterns were not proved"
        over = TimeLimitError(error.message.replace("nothing was written", left), hint=error.hint)
    failed = any(proof.failures for proof in proofs)
    if as_json:
        show_json({"patterns": [json.proof(proof) for proof in proofs]})
    elif proofs:
        show(proofs_text.proofs(proofs), good=over is None and not failed)
    if over is not None:
        raise over
    return 1 if failed else 0
