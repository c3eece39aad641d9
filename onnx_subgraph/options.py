"""Options: the options of fuse()."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onnx_subgraph.errors import UsageError
from onnx_subgraph.paths import StrPath
from onnx_subgraph.rewriting.marked import Marks
from onnx_subgraph.targets import FLOAT32, check_numerics
from onnx_subgraph.values import check_not_negative, check_one_of, check_shapes, check_whole, providers_of, words

if TYPE_CHECKING:
    from onnx_subgraph.timing.tuning import Tuning, Way


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `fuse`. They are those of the command line, with the same defaults.

    target: "onnxruntime", "standard", "native" or "function".
    numerics: "float32", "bf16x3" or "bf16": the precision to which kernels of the target native may round operands of products.
    prefer: "speed" leaves out fusions that were measured to be slower on one of the providers, "fusion" makes them.
    providers: execution providers, each verified separately.
    assumed: other providers, which must load the result according to a table of their kernels; nothing is run on them.
    constant_initializers: remove initializers from the graph's inputs, so that they are constants.
    opset: "auto", "keep", or the opset to raise the model to. shapes: input name → shape, for feeds. inputs: an .npz of feeds.
    fixed: input name → shape to specialise the model to first; the result takes no other.
    marks: parts that become one operator each. keep_subnormals: keep subnormal weights; with `only` they are kept.
    simplify: fold what follows from constants and known dimensions; not with `only`.
    keep_loops: keep Loops that are recurrent networks; with `only` they are kept.
    rounded: the results of the products that `numerics` may round; None for all.
    accuracy: the largest error of an output against float64 with rounding, as a share of its largest element.
    bench: time the result beside the original. tuning: the measurement behind `skip` and `prefer`, for the report.
    libraries: of custom operators, loaded wherever the model runs, in addition to those of pattern packs.
    rtol, atol: override the measured bound. verify: False writes without verification (the verdict is then "not-run").
    strict: write nothing if a rewrite had to be undone.
    sites: check every rewrite alone on all feeds, also those that are alike, and report each.
    sites_only: check every rewrite alone on drawn values, and do not run the model. Makes no change that can't be checked so.
    compare_ort: find onnxruntime's own fusions.
    excerpts: record the nodes that each rewrite removed and added, for drawings in a report.
    thorough: look for near misses also where the operators alone rule out a match, as `explain` does.
    """

    target: str = "onnxruntime"
    numerics: str = FLOAT32
    prefer: str = "speed"
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    assumed: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    verify: bool = True
    strict: bool = False
    sites: bool = False
    sites_only: bool = False
    compare_ort: bool = False
    fix_overflows: bool = False
    rtol: float | None = None
    atol: float | None = None
    seed: int = 0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: StrPath | None = None
    libraries: Sequence[StrPath] = ()
    opset: str = "auto"
    dry_run: bool = False
    excerpts: bool = False
    thorough: bool = False
    fixed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)
    constant_initializers: bool = False
    keep_subnormals: bool = False
    simplify: bool = True
    keep_loops: bool = False
    bench: bool = False
    rounded: tuple[str, ...] | None = None
    accuracy: float | None = None
    tuning: Tuning | None = None


def in_this_way(options: Options, way: Way) -> Options:
    """The options, changed as the way requires."""
    return replace(
        options,
        skip=(*options.skip, *way.skip),
        prefer=way.prefer,
        target=way.target,
        numerics=way.numerics,
        rounded=way.rounded,
        accuracy=options.accuracy if way.accuracy is None else way.accuracy,
    )


def checked(options: Options) -> Options:
    """The options that hold. Raises UsageError for a value that an option can't have, and for options that do not go together."""
    check_numerics(options.numerics, options.target)
    check_one_of("prefer", options.prefer, ("speed", "fusion"))
    if options.opset not in ("auto", "keep") and not (str(options.opset).isdecimal() and int(options.opset)):
        raise UsageError(f"opset is {options.opset!r}", hint='give "auto", "keep", or the number of an opset')
    check_not_negative(rtol=options.rtol, atol=options.atol, accuracy=options.accuracy)
    check_whole(seed=options.seed)
    check_shapes(options.shapes, options.fixed)
    if options.bench and not options.providers:
        raise UsageError("there is nothing to time on an assumed provider", hint="--provider names one that is here")
    assumed = words(options.assumed)
    providers = words(options.providers) if assumed else providers_of(options.providers)
    options = replace(options, providers=providers, assumed=assumed, only=words(options.only), skip=words(options.skip))
    return _without_runs(options) if options.sites_only else options


def _without_runs(options: Options) -> Options:
    """The options without changes that only a run of the model can verify. Raises UsageError where such a change is asked for."""
    asked = {
        "--no-verify": not options.verify,
        "--bench": options.bench,
        "--compare-ort": options.compare_ort,
        "--inputs": options.inputs is not None,
        "--target native": options.target == "native",
        "--assume-provider": not options.providers,
        "marked parts": bool(options.marks),
        f"--opset {options.opset}": options.opset not in ("auto", "keep"),
    }
    if given := next((name for name, is_given in asked.items() if is_given), None):
        raise UsageError(f"--sites-only does not run the model, and does not go with {given}", hint="leave one of the two out")
    return replace(options, opset="keep", simplify=False, keep_subnormals=True)
