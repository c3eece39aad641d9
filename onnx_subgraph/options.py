"""Options: the options of fuse()."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onnx_subgraph.paths import StrPath
from onnx_subgraph.rewriting.marked import Marks
from onnx_subgraph.rewriting.numerics import FLOAT32

if TYPE_CHECKING:
    from onnx_subgraph.timing.tuning import Tuning, Way


@dataclass(frozen=True, slots=True)
class Options:
    """How to fuse. The command line's options, one for one; the defaults are the command line's defaults.

    target: "onnxruntime", "standard", "native" or "function". numerics: "float32", "bf16x3" or "bf16", what kernels of the target
    native may round operands of products to. prefer: "speed" leaves apart what was measured to be slower on one of the providers,
    "fusion" fuses it. providers: execution providers, each verified by itself. assumed: others, that must load the result as a
    table of their kernels has it, and that nothing is run on.
    constant_initializers: take initializers that are inputs as well out of the inputs, so that they are constants.
    opset: "auto", "keep", or the opset to raise the model to. shapes: input name → shape, for feeds. inputs: an .npz of feeds.
    fixed: input name → shape that the model is specialised to first; the result takes no other. marks: what then becomes one
    operator each. keep_subnormals: make no subnormal weight zero; with `only` none is. simplify: compute what constants and known
    dimensions decide; not with `only`. keep_loops: leave Loops that are recurrent networks; with `only` none becomes an operator.
    rounded: the results of the products that may be rounded as `numerics` says; None for all. accuracy: how far an output may be
    from float64 where they are rounded, as a share of its largest element.
    bench: time the result beside the original. tuning: what `skip` and `prefer` were measured to be best as, for the report.
    libraries: of custom operators, loaded wherever the model runs, beside those of the packs of patterns.
    rtol, atol: override the measured bound. verify: False writes without verification (the verdict is then "not-run").
    strict: write nothing where a rewrite had to be undone. sites: hold every rewrite by itself on all feeds, whichever others it
    is like, and report how each stands. compare_ort: find out what onnxruntime would have fused by itself. excerpts: whether each
    rewrite notes down the nodes that it removed and added, for a report to draw. thorough: look for near misses also where the
    operators alone speak against a match, as `explain` does.
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
