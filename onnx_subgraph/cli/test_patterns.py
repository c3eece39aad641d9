"""`onnx-subgraph test-patterns`: every pattern proves itself.

From each pattern, models are generated that must fuse and mutants that must not, and all of them are compared with a float64
evaluation of the formula. The exit code is 1 when one pattern fails its proof.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnx_subgraph.cli.ids import current_ids
from onnx_subgraph.cli.options import complete_ids, json_option, libraries_option, patterns_option, quiet_option, verbose_option

if TYPE_CHECKING:
    from onnx_subgraph.clock import Progress
    from onnx_subgraph.proving import Proof


@click.command("test-patterns", short_help="Prove patterns on generated models and mutants.")
@click.argument("names", metavar="[PATTERN]...", nargs=-1, shell_complete=complete_ids)
@patterns_option
@libraries_option
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0),
    default=3600,
    metavar="SECONDS",
    help="End after this time, with exit code 2 and the patterns that were proved until then. 0 for no limit.",
)
@quiet_option
@verbose_option
@json_option
def test_patterns(
    names: tuple[str, ...], patterns: tuple[Path, ...], libraries: tuple[Path, ...], time_limit: float, as_json: bool
) -> int:
    """Prove all patterns, or these: on generated models that must fuse, and on mutants that must not.

    Of an instance that is not found it says how far the pattern got in it, and where it failed.
    """
    from onnx_subgraph.cli.terminal import progress, show, show_json
    from onnx_subgraph.deadline import within
    from onnx_subgraph.errors import TimeLimitError
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.report import json
    from onnx_subgraph.report import proofs as proofs_text

    library = load_patterns(patterns)
    names = current_ids(names, library)

    from onnx_subgraph.proving import prove
    from onnx_subgraph.verification.libraries import with_libraries

    chosen = [pattern for pattern in library.patterns if not names or pattern.id in names]
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
