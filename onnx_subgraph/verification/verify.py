"""verify(): whether two models compute the same, within the noise of the computation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph import kernels
from onnx_subgraph.errors import KernelError
from onnx_subgraph.files.models import load
from onnx_subgraph.kernels.marked import KERNELS
from onnx_subgraph.model.nested import within
from onnx_subgraph.paths import StrPath, path_of
from onnx_subgraph.simplification.branches import decided
from onnx_subgraph.values import check_not_negative, check_shapes, check_whole, providers_of
from onnx_subgraph.verification.both_ways import both_ways, numerics_of
from onnx_subgraph.verification.libraries import with_libraries
from onnx_subgraph.verification.lost import lost
from onnx_subgraph.verification.observed import name_bodies
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.sessions import Failure
from onnx_subgraph.verification.trial import CPU
from onnx_subgraph.verification.untaken import check_untaken
from onnx_subgraph.verification.verdict import Run, Verdict


def verify(
    reference: StrPath,
    candidate: StrPath,
    *,
    providers: str | Sequence[str] = (CPU,),
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
    """Compare the candidate with the reference. Both are model files; neither is changed.

    seed: of the first feeds. rtol, atol: the bound atol + rtol * |reference| instead of the measured one. shapes: input → shape.
    inputs: an .npz with the only feeds to use. custom_op_libraries: loaded into every session; no others are.
    weights: the folder of the candidate's external data, if that is not its own folder.
    fixed: input → shape that the candidate is specialised to; it is compared at these shapes, and may declare no others.
    fix_overflows: the candidate may have any value where the reference is NaN or infinite.
    constant_initializers: initializers of the reference that are also inputs count as constants; the candidate lacks these
    inputs.
    A candidate written for our library of kernels is also compared with the library loaded.
    Raises UsageError for a number or shape that can't be, for a provider or library that is missing, and for shapes or feeds that
    do not fit; ModelError for an unreadable file.
    """
    check_not_negative(rtol=rtol, atol=atol)
    check_whole(seed=seed)
    check_shapes(shapes or {}, fixed or {})
    providers, candidate = providers_of(providers), path_of(candidate)
    original = Reference(
        path_of(reference),
        providers=providers,
        seed=seed,
        rtol=rtol,
        atol=atol,
        shapes=shapes,
        inputs=inputs,
        fixed=fixed,
        constant_initializers=constant_initializers,
        fix_overflows=fix_overflows,
        wide=True,
        progress=progress,
    )
    home = None if weights is None else Path(weights)
    model = load(candidate, weights=home)
    name_bodies(model)
    library, missing = _library(model) if CPU in providers and home is None else (None, "")
    with with_libraries(custom_op_libraries):
        if library is None:
            found = original.verdict(candidate, home)
        else:
            found = both_ways(original, model, library, numerics_of(model), candidate)
        found = replace(found, reason="; ".join(filter(None, (found.reason, missing))))
        return _with_untaken_bodies(found, original, model, fix_overflows)


def _with_untaken_bodies(found: Verdict, original: Reference, candidate: ir.Model, fix_overflows: bool) -> Verdict:
    """The verdict with what is known of subgraphs that no run took, and that differ from the original's or that one model lacks.

    It becomes "different" where one is wrong, "not-run" where nothing shows that one is right.
    """
    provider = original.providers[0]
    if found.verdict != "equivalent" or isinstance(cases := original.cases(provider), Failure):
        return found
    if not any(model.functions or len(within(model.graph)) > 1 for model in (original.original, candidate)):
        return found
    before, after, path = decided(original.original), decided(candidate), original.path
    checks = check_untaken(before, after, path, provider, cases, found.reached.reached, fix_overflows)
    if wrong := next((check for check in checks if check.wrong), None):
        assert wrong.accuracy is not None
        far = f"it is {wrong.accuracy.fused:.2g} from the truth, {wrong.accuracy.bound:.2g} is allowed"
        what = f"{'gives' if wrong.rewrite.place.scope else 'reads'} another {wrong.result}"
        problem = f"{wrong.rewrite.root}, which no run took, {what}: {wrong.accuracy.problem or far}"
        run = Run(provider, False, {}, None, wrong.result, float("inf"), 0.0, (), problem)
        return replace(found, verdict="different", runs=(*found.runs, run))
    unknown = next((check for check in checks if not check.proved), None)
    if unknown is not None:
        differs = "which differs" if unknown.rewrite.place.scope else "whose operands differ"
        body, what = unknown.rewrite.root, f"{differs}, and {unknown.unknown or 'drawn values show nothing'}"
    elif missing := lost(before, after, path, provider, cases, original.fed(provider)):
        body, what = missing[0], "which the candidate lacks"
    else:
        return found
    reason = f"no run took {body}, {what}; --inputs FEEDS.npz that take it show it"
    return replace(found, verdict="not-run", reason=reason)


def _library(model: ir.Model) -> tuple[kernels.Description | None, str]:
    """Our library of kernels, for a model that was written for it, or why there is none; None and "" for other models."""
    try:
        return kernels.describe() if KERNELS in model.metadata_props else None, ""
    except KernelError as error:
        return None, f"it ran by its definitions only, without our kernels: {error.message.splitlines()[0]}"
