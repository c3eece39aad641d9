"""`onnx-subgraph verify`: does one model compute the same as another?

The verification of `fuse`, for any two models. The reference runs with onnxruntime's optimisation off, the candidate with it off
and on, on inputs that fit the model. A difference is compared with the measured noise of the reference.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from onnx_subgraph.cli.options import (
    constant_initializers_option,
    feeds_options,
    fix_overflows_option,
    json_option,
    libraries_option,
    provider_option,
    quiet_option,
    shapes,
    time_limit_option,
    verbose_option,
)
from onnx_subgraph.cli.streams import MODEL


@click.command(short_help="Say whether one model computes the same as another.")
@click.argument("reference", type=MODEL)
@click.argument("candidate", type=MODEL)
@provider_option
@libraries_option
@feeds_options
@fix_overflows_option
@constant_initializers_option
@time_limit_option
@quiet_option
@verbose_option
@json_option
def verify(
    reference: Path,
    candidate: Path,
    providers: tuple[str, ...],
    constant_initializers: bool,
    libraries: tuple[Path, ...],
    shape: tuple[tuple[str, tuple[int, ...]], ...],
    time_limit: float,
    as_json: bool,
    **feeds: Any,
) -> int:
    """Say whether CANDIDATE computes the same as REFERENCE: exit code 0 if it does, 1 if not, 2 if it is unknown.

    A CANDIDATE of the target native is run both with the library of kernels and without.
    """
    from onnx_subgraph.cli.terminal import progress, show, show_json
    from onnx_subgraph.deadline import within
    from onnx_subgraph.report import json, text
    from onnx_subgraph.verification.verify import verify as compare

    hint = "--shape compares on smaller inputs, --time-limit gives more time"
    compared = partial(
        compare,
        reference,
        candidate,
        providers=providers,
        shapes=shapes(shape),
        custom_op_libraries=libraries,
        constant_initializers=constant_initializers,
        **feeds,
    )
    with progress() as say:
        verdict = within(time_limit, lambda tell: compared(progress=tell), say, hint)
    if as_json:
        show_json({"reference": str(reference), "candidate": str(candidate), **json.verdict(verdict)})
    else:
        show(text.comparison(reference, candidate, verdict), good=verdict.verdict == "equivalent")
    return {"equivalent": 0, "different": 1, "not-run": 2}[verdict.verdict]
