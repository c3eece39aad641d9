"""verify(): does this model compute what that one does, within the noise of the computation?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from onnx_subgraph.model.files import load
from onnx_subgraph.paths import StrPath
from onnx_subgraph.rewriting.numerics import numerics_of
from onnx_subgraph.verification.both_ways import both_ways, own_library
from onnx_subgraph.verification.trial import CPU
from onnx_subgraph.verification.verdict import Verdict
from onnx_subgraph.verification.verify import Reference


def verify(
    reference: StrPath,
    candidate: StrPath,
    *,
    providers: Sequence[str] = (CPU,),
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    inputs: StrPath | None = None,
    custom_op_libraries: Sequence[StrPath] = (),
    weights: StrPath | None = None,
    fixed: Mapping[str, tuple[int, ...]] | None = None,
    constant_initializers: bool = False,
    fix_overflows: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Verdict:
    """Holds the candidate against the reference. Both are model files; neither is written to.

    A candidate with operators that our library of kernels has is held by these kernels, too, where the library is to be had.

    seed: of the first feeds. rtol, atol: instead of the measured bound, atol + rtol * |reference|. shapes: input → shape.
    inputs: an .npz of feeds, then the only ones. custom_op_libraries: loaded into every session, and none besides.
    weights: the folder of the candidate's external data, where that is not its own folder.
    fixed: input → shape that the candidate is specialised to: it is then compared at these shapes, and may declare no others.
    fix_overflows: the candidate may have numbers where the reference is NaN or infinite.
    constant_initializers: the candidate's are constants: those that are inputs of the reference as well are none of its own.
    Raises UsageError for a provider that is not there or shapes or feeds that do not fit, ModelError for an unreadable file.
    """
    original = Reference(
        Path(reference),
        providers=providers,
        seed=seed,
        rtol=rtol,
        atol=atol,
        shapes=shapes,
        inputs=inputs,
        custom_op_libraries=custom_op_libraries,
        fixed=fixed,
        constant_initializers=constant_initializers,
        fix_overflows=fix_overflows,
        progress=progress,
    )
    path = Path(candidate)
    model = load(path, weights=None if weights is None else Path(weights))
    home = path.resolve().parent if weights is None else Path(weights)
    library = None if custom_op_libraries else own_library(model)
    if library is None:
        verdict = original.verdict(path, home)
    else:
        verdict = both_ways(original, model, library, numerics_of(model), home)
    return original.with_untaken_bodies(verdict, model)
