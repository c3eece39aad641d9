"""`onnx-subgraph partition`: gives the regions of a model that a backend supports to it, verifies the result, and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_subgraph.cli.ci import EXPECT, WRITE_EXPECT, Wanted, write_whole
from onnx_subgraph.cli.finite import Finite, NotNan
from onnx_subgraph.cli.options import (
    complete_ids,
    feeds_options,
    flat,
    identifiers,
    json_option,
    libraries_option,
    patterns_option,
    quiet_option,
    shapes,
    time_limit_option,
    verbose_option,
)
from onnx_subgraph.cli.streams import MODEL, OUTPUT, default_output
from onnx_subgraph.errors import UsageError

if TYPE_CHECKING:
    from onnx_subgraph.expectation.check import Check
    from onnx_subgraph.expectation.expectation import Section
    from onnx_subgraph.partitioning.options import PartitionOptions
    from onnx_subgraph.partitioning.partition import PartitionResult


@click.command(short_help="Make engines of the regions that a backend supports.")
@click.argument("model", type=MODEL)
@click.option(
    "--backend",
    required=True,
    multiple=True,
    metavar="NAME",
    help="The backend that runs the regions: onnxruntime, openvino, static, reference, one that a package "
    "registers, or a .yaml that declares one. May be repeated: each one gets the nodes that the ones before "
    "it left.",
)
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    metavar="OUT",
    show_default="MODEL.partitioned.onnx beside MODEL.onnx",
    help="The file to write; - for standard output.",
)
@click.option(
    "--regions",
    metavar="PATTERN",
    shell_complete=complete_ids,
    help="Make engines of the regions of this pattern, which has `grow`, if the backend supports them. Default: the"
    " largest regions that it supports.",
)
@patterns_option
@click.option(
    "--min-nodes", type=click.IntRange(min=1), default=3, metavar="N", help="The fewest nodes that are worth an engine."
)
@click.option(
    "--max-crossing",
    type=Finite(min=0),
    default=0.5,
    metavar="SHARE",
    help="The largest share of the bytes that a region's operators read and write that may cross its border.",
)
@click.option(
    "--allow",
    type=identifiers,
    multiple=True,
    metavar="OP,…",
    help="Operators, or names of nodes, that may be in a region; * matches any characters. Default: all. May be repeated.",
)
@click.option(
    "--deny",
    type=identifiers,
    multiple=True,
    metavar="OP,…",
    help="Operators, or names of nodes, that may not be in a region. May be repeated.",
)
@click.option(
    "--gain",
    type=NotNan(min=0),
    metavar="SHARE",
    show_default="what the backend says of itself",
    help="The share of a region's time that the backend is expected to save, compared with the estimated cost of "
    "crossing its border; inf takes all regions.",
)
@click.option(
    "--bodies",
    is_flag=True,
    help="Also look for regions in bodies of If and Loop that the backend does not take as a whole.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Time every region, and keep only those that the backend runs faster. The result depends on the machine.",
)
@click.option(
    "--isolated/--no-isolated",
    default=None,
    show_default="isolated unless the backend comes with onnx-subgraph",
    help="Verify and time with the backend in a separate process: a region in which it crashes is restored.",
)
@click.option("--no-verify", is_flag=True, help="Write the model without comparing it with the original.")
@libraries_option
@feeds_options
@click.option(
    "--accuracy",
    type=Finite(min=0, min_open=True),
    metavar="X",
    show_default="the model's own measured noise",
    help="The largest error of an output against float64 with the backend, as a share of its largest element; for "
    "backends with less precision than float32, such as openvino:bf16.",
)
@time_limit_option
@EXPECT
@WRITE_EXPECT
@click.option("--dry-run", is_flag=True, help="Do everything but write.")
@quiet_option
@verbose_option
@json_option
def partition(
    model: Path,
    backend: tuple[str, ...],
    output: Path | None,
    regions: str | None,
    patterns: tuple[Path, ...],
    min_nodes: int,
    max_crossing: float,
    allow: tuple[tuple[str, ...], ...],
    deny: tuple[tuple[str, ...], ...],
    gain: float | None,
    bodies: bool,
    measure: bool,
    isolated: bool | None,
    no_verify: bool,
    accuracy: float | None,
    expect: Path | None,
    write_expect: Path | None,
    dry_run: bool,
    time_limit: float,
    as_json: bool,
    shape: tuple[tuple[str, tuple[int, ...]], ...],
    **feeds: Any,
) -> int:
    """Find the largest convex regions of MODEL that a backend supports, and replace each by one onnx_subgraph::Engine operator.

    The result is compared with MODEL twice: with the backend, and without it, by inlining. A region that the backend does not
    run, or computes wrongly, is restored. If the models are not equivalent, or the result is not as --expect wants it, nothing is
    written.
    """
    given = shapes(shape)
    if measure and no_verify:
        raise click.UsageError("--measure needs verification: leave --no-verify out")
    if accuracy is not None and no_verify:
        raise click.UsageError("--accuracy needs verification: leave --no-verify out")

    from onnx_subgraph.cli.terminal import is_verbose, progress, show, show_json, warn
    from onnx_subgraph.deadline import within
    from onnx_subgraph.expectation.partitions import check_partition, partition_expectation
    from onnx_subgraph.files.atomic import check_target
    from onnx_subgraph.partitioning.options import PartitionOptions
    from onnx_subgraph.partitioning.partition import partition as run
    from onnx_subgraph.partitioning.worth import RegionLimits
    from onnx_subgraph.report import json, text
    from onnx_subgraph.report import regions as report

    output = output or default_output(model, "partitioned")
    if not dry_run:
        check_target(output, never=(model,))
    wanted = Wanted(expect, write_expect)
    wanted.check((output,))
    section = _section(wanted, model, patterns)
    checks: tuple[Check, ...] = ()

    def accepts(result: PartitionResult) -> bool:
        nonlocal checks
        if section is not None:
            checks = check_partition(section, result)
        return all(check.met for check in checks)

    limits = RegionLimits(min_nodes, max_crossing, flat(allow), flat(deny), gain=gain, bodies=bodies)
    options = PartitionOptions(
        backend, limits, measure, isolated, verify=not no_verify, accuracy=accuracy, shapes=given, dry_run=dry_run, **feeds
    )
    if regions is not None:
        options = _of_regions(options, regions, patterns)
    hint = "--no-verify leaves work out, --shape verifies on smaller inputs, --time-limit gives more time"
    with progress() as say:
        result = within(
            time_limit,
            lambda tell: run(model, output, options, tell, accepts=accepts),
            lambda stage: say(f"{model}: {stage}"),
            hint,
        )
    verdict = result.verdict.verdict
    if verdict == "different":
        code = 1
    elif verdict == "not-run" and not no_verify:
        code = 2
    else:
        code = int(not accepts(result))
    if as_json:
        show_json(report.as_json(result) | ({"expectations": json.expectations(checks)} if checks else {}))
    else:
        show(report.as_text(result, verbose=is_verbose()), good=not code)
        if checks:
            show(text.expectations(checks), good=not code)
    if write_expect is not None and not code:
        write_whole(write_expect, partition_expectation(result).encode())
    elif write_expect is not None:
        warn(f"{write_expect} was not written: the partition is not verified")
    return code


def _section(wanted: Wanted, model: Path, patterns: Sequence[Path]) -> Section | None:
    """The expectations of the model; None without a file. Raises ExpectationError for mistakes in the file."""
    if wanted.expect is None:
        return None
    from onnx_subgraph.expectation.partitions import check_section
    from onnx_subgraph.language.library import load_patterns

    expectation = wanted.expectation([model], load_patterns(patterns))
    assert expectation is not None
    section = expectation.section(model)
    check_section(section)
    return section


def _of_regions(options: PartitionOptions, name: str, patterns: Sequence[Path]) -> PartitionOptions:
    """The options for the regions of a pattern, with the libraries of its pack. Raises UsageError for a formula."""
    from onnx_subgraph.cli.ids import current_ids
    from onnx_subgraph.language.library import load_patterns

    library = load_patterns(patterns)
    (current,) = current_ids([name], library, "regions")
    pattern = library.get(current)
    if pattern.grow is None:
        raise UsageError(f"the pattern {current} has no regions: it is a formula", hint="name one with `grow`")
    brought = (path for pack in library.packs for path in pack.libraries)
    return replace(options, pattern=pattern, libraries=(*brought, *options.libraries))
