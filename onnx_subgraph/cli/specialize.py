"""`onnx-subgraph specialize`: makes a model static, fuses it, verifies it, and writes it.

This does ahead of time, for given shapes, what a `StaticSession` does at run time for the shapes that it meets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnx_subgraph.cli.ids import current_ids
from onnx_subgraph.cli.options import (
    beside_options,
    feeds_options,
    flat,
    ids_option,
    json_option,
    libraries_option,
    numerics_option,
    opset_choice,
    patterns_option,
    provider_option,
    quiet_option,
    shapes,
    target_option,
    time_limit_option,
    verbose_option,
)
from onnx_subgraph.cli.streams import MODEL, OUTPUT, default_output
from onnx_subgraph.cli.written import check_written
from onnx_subgraph.errors import UsageError


@click.command(short_help="Fix a model's input shapes, fold, fuse, verify, and write it.")
@click.argument("model", type=MODEL)
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    metavar="OUT",
    show_default="MODEL.1x128.onnx beside MODEL.onnx",
    help="The file to write; - for standard output.",
)
@patterns_option
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="MODULE",
    help="Make one operator of each module whose path matches, for example encoder.layer.*. May be repeated.",
)
@click.option("--from", "first", multiple=True, metavar="VALUE", help="Make one operator of the nodes between this value …")
@click.option("--to", "last", multiple=True, metavar="VALUE", help="… and this one. Both may be repeated.")
@ids_option("--skip", "Do not use these patterns. May be repeated.")
@target_option
@numerics_option
@beside_options
@provider_option
@click.option("--no-verify", is_flag=True, help="Write the model without comparing it with the original.")
@libraries_option
@feeds_options
@click.option(
    "--opset",
    type=opset_choice,
    default="auto",
    metavar="auto|keep|N",
    help="Raise the opset if a replacement needs it (auto), never (keep), or to N.",
)
@time_limit_option
@quiet_option
@verbose_option
@json_option
def specialize(
    model: Path,
    output: Path | None,
    patterns: tuple[Path, ...],
    scopes: tuple[str, ...],
    first: tuple[str, ...],
    last: tuple[str, ...],
    skip: tuple[tuple[str, ...], ...],
    target: str,
    numerics: str,
    constant_initializers: bool,
    keep_subnormals: bool,
    no_simplify: bool,
    keep_loops: bool,
    providers: tuple[str, ...],
    no_verify: bool,
    opset: str,
    time_limit: float,
    as_json: bool,
    shape: tuple[tuple[str, tuple[int, ...]], ...],
    **feeds: Any,
) -> int:
    """Fix the shapes of MODEL's inputs with --shape, compute what becomes constant, fuse, verify, and write the result.

    With --scope, or --from and --to, a part of it becomes one operator, a function that the model carries. Modules are those that
    torch's exporters recorded; equal ones share a definition.

    Dimensions of one name are fixed together; those that no --shape fixes stay free. The result computes what MODEL computes on
    inputs of these shapes, and takes no other shapes. It is an ordinary model: any runtime that has its operators runs it.
    """
    fixed = shapes(shape)
    if not fixed and not (scopes or first or last):
        raise UsageError("no shape was given to specialize the model to", hint="give one, for example --shape input_ids=1x128")
    if output is None and not fixed:
        output = default_output(model, "marked")
    elif output is None:
        name = "_".join(dict.fromkeys("x".join(map(str, sizes)) or "scalar" for sizes in fixed.values()))
        output = default_output(model, name)

    from onnx_subgraph.cli.fused import exit_code
    from onnx_subgraph.cli.terminal import is_verbose, progress, show, show_json
    from onnx_subgraph.deadline import within
    from onnx_subgraph.files.atomic import check_target
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.options import Options
    from onnx_subgraph.pipeline import fuse
    from onnx_subgraph.report import json, text
    from onnx_subgraph.report.relevance import telling
    from onnx_subgraph.rewriting.marked import Marks

    check_target(output, never=(model,))
    check_written((output,))
    library = load_patterns(patterns)
    skip_ids = current_ids(flat(skip), library, "skip")
    options = Options(
        target=target,
        numerics=numerics,
        constant_initializers=constant_initializers,
        keep_subnormals=keep_subnormals,
        simplify=not no_simplify,
        keep_loops=keep_loops,
        providers=providers,
        skip=skip_ids,
        verify=not no_verify,
        shapes=fixed,
        fixed=fixed,
        marks=Marks(scopes, first, last),
        opset=opset,
        **feeds,
    )
    hint = "--no-verify and --skip leave work out, --shape with smaller sizes verifies faster, --time-limit gives more time"
    with progress() as say:
        result = within(
            time_limit, lambda tell: fuse(model, output, library, options, tell), lambda stage: say(f"{model}: {stage}"), hint
        )
    told = telling(result, library)
    code = exit_code(result, options.verify)
    if as_json:
        show_json(json.fusion(told))
    else:
        hidden = len(result.near_misses) - len(told.near_misses)
        show(text.fusion(told, hidden=hidden, verbose=is_verbose()), good=not code)
    return code
