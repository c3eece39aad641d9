"""`onnx-subgraph test-patterns`: every pattern proves itself.

From each pattern, models are generated that must fuse and mutants that must not, and all of them are compared with a float64
evaluation of the formula. The exit code is 1 when one pattern fails its proof.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnx_subgraph.cli.options import check_ids, json_option, patterns_option

if TYPE_CHECKING:
    from onnx_subgraph.proving import Proof


@click.command("test-patterns", short_help="Prove patterns on generated models and mutants.")
@click.argument("names", metavar="[PATTERN]...", nargs=-1)
@patterns_option
@json_option
def test_patterns(names: tuple[str, ...], patterns: tuple[Path, ...], as_json: bool) -> int:
    """Prove all patterns, or these: on generated models that must fuse, and on mutants that must not."""
    from onnx_subgraph.cli.terminal import progress, show, show_json
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.report import json, text

    library = load_patterns(patterns)
    check_ids(names, library)

    from onnx_subgraph.proving import prove

    chosen = [pattern for pattern in library.patterns if not names or pattern.id in names]
    proofs: list[Proof] = []
    with progress() as say:
        for number, pattern in enumerate(chosen, start=1):
            say(f"{number} of {len(chosen)}: {pattern.id}")
            proofs.append(prove(pattern))
    if as_json:
        show_json({"patterns": [json.proof(proof) for proof in proofs]})
    else:
        show(text.proofs(proofs))
    return 1 if any(proof.failures for proof in proofs) else 0
