"""Fuse a model, then make engines of the regions that a backend supports. Any onnxruntime can run the result by inlining."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from onnx_subgraph import temporary
from onnx_subgraph.backends.names import names_in
from onnx_subgraph.clock import Progress
from onnx_subgraph.files.models import hand_on, load
from onnx_subgraph.language.library import Library
from onnx_subgraph.operators.names import operator_of
from onnx_subgraph.options import Options
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from onnx_subgraph.partitioning.worth import MEASURED, RegionLimits
from onnx_subgraph.pipeline import Accepts, fuse
from onnx_subgraph.result import Engines, FuseResult
from onnx_subgraph.timing.tuning import Way


def fuse_with_engines(
    model: Path,
    output: Path,
    library: Library,
    options: Options,
    way: Way,
    progress: Progress | None = None,
    accepts: Accepts | None = None,
) -> FuseResult:
    """Like `fuse`, with engines of the way's backends in the output. Raises what `fuse` and `partition` raise.

    If the backend runs nothing, or nothing correctly, the fused model is written without engines.
    """
    if not way.backend:
        return fuse(model, output, library, options, progress, accepts)
    with temporary.folder() as folder:
        fused = fuse(model, folder / model.name, library, replace(options, bench=False), progress, accepts)
        if fused.output is None:
            return fused
        made = partition(fused.output, output, _partitioning(library, options, way), progress)
        if made.output is None:
            hand_on(fused.output, output)
    engines = Engines(
        way.backend,
        0 if made.output is None else len(made.engines),
        sum(sum(one.operators.values()) for one in made.engines),
        tuple(dict.fromkeys((*(one.reason for one in made.refused), *([made.verdict.reason] if made.output is None else [])))),
    )
    if not engines.count:
        return replace(fused, output=output, engines=engines)
    return replace(
        fused,
        output=output,
        nodes_after=made.nodes_after,
        operators_after=Counter(operator_of(node) for node in load(output).graph.all_nodes()),
        verdict=made.verdict,
        unchanged=False,
        seconds={**fused.seconds, **{f"engines: {stage}": taken for stage, taken in made.seconds.items()}},
        engines=engines,
    )


def _partitioning(library: Library, options: Options, way: Way) -> PartitionOptions:
    backends = names_in(way.backend)
    return PartitionOptions(
        backends,
        RegionLimits() if way.results is None else MEASURED,
        results={} if way.results is None else {backends[0]: way.results},
        verify=options.verify,
        accuracy=options.accuracy,
        rtol=options.rtol,
        atol=options.atol,
        seed=options.seed,
        shapes=options.fixed or options.shapes,
        inputs=options.inputs,
        libraries=(*(path for pack in library.packs for path in pack.libraries), *options.libraries),
    )
