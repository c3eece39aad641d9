"""Each rewrite by itself: is what it put there as near to the truth as what was there before?

The values that really flow into the place are captured from the model before it was rewritten. On them what was replaced and
what replaces it are run by the provider, and both are held against a float64 evaluation of what was replaced. So a fusion that
is more accurate is never called wrong, and a wrong one is seen that the rest of the network hides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.rewriting.rewrite import Place, Rewrite
from onnx_subgraph.verification.accuracy import Accuracy, accuracy, has_float_attribute
from onnx_subgraph.verification.capture import capturable, capture
from onnx_subgraph.verification.cases import Case
from onnx_subgraph.verification.sessions import Failure, open_session, run
from onnx_subgraph.verification.truth import UnknownError, evaluate

FIRST_BATCH = 4
"""For so many sites the values are captured first; that shows how many bytes a site takes."""
BATCH_BYTES = 1 << 28
"""What the captured values of one batch of sites may take in memory, as far as a batch before it can tell."""


@dataclass(frozen=True, slots=True)
class SiteCheck:
    """One rewrite on one provider. result: the name of the value that is furthest from its bound, of all its results and cases.

    accuracy: of that value; None where it could not be told, and then `unknown` says why.
    """

    rewrite: Rewrite
    provider: str
    result: str = ""
    accuracy: Accuracy | None = None
    unknown: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the rewrite is shown to be further from the truth than it may be."""
        return self.accuracy is not None and not self.accuracy.holds


def check_sites(
    model: ir.Model, source: Path, cuttings: Sequence[Cutting], provider: str, cases: Sequence[Case] | Failure
) -> tuple[SiteCheck, ...]:
    """Holds every rewrite of `model`, which is as it was before them, against the truth, in the order of the rewrites.

    source: the file that the model was read from. cases: the feeds to run it on.
    """
    if isinstance(cases, Failure):
        return tuple(SiteCheck(c.rewrite, provider, unknown=cases.message) for c in cuttings)
    known = capturable(model)
    reasons = [(cutting, _out_of_reach(cutting, known)) for cutting in cuttings]
    checks = {c.rewrite.place: SiteCheck(c.rewrite, provider, unknown=why) for c, why in reasons if why}
    waiting = [cutting for cutting, why in reasons if not why]
    size = FIRST_BATCH
    while waiting:
        batch, waiting = waiting[:size], waiting[size:]
        found, taken = _check_batch(model, source, batch, provider, cases)
        checks |= found
        size = max(1, min(256, int(BATCH_BYTES * len(batch) / max(1, taken))))
    return tuple(checks[cutting.rewrite.place] for cutting in cuttings)


def _out_of_reach(cutting: Cutting, known: set[str]) -> str:
    """Why the values that flow into a place can't be captured; "" where they can."""
    if cutting.rewrite.place.scope:
        return f"it is inside {cutting.rewrite.place.scope}, whose values can't be captured"
    missing = [name for name in cutting.reads if name not in known]
    return f"it reads {missing[0]}, which the model did not have before" if missing else ""


def _check_batch(
    model: ir.Model, source: Path, batch: Sequence[Cutting], provider: str, cases: Sequence[Case]
) -> tuple[dict[Place, SiteCheck], int]:
    """The checks of a few sites by their places, and the most bytes that their captured values took."""
    checks: dict[Place, SiteCheck] = {}
    names = list(dict.fromkeys(name for cutting in batch for name in cutting.reads))
    taken = 0
    for values in capture(model, source, names, provider, [case.feeds for case in cases]):
        if not isinstance(values, Failure):
            taken = max(taken, sum(array.nbytes for array in values.values() if isinstance(array, np.ndarray)))
        for cutting in batch:
            if isinstance(values, Failure):
                check = SiteCheck(cutting.rewrite, provider, unknown=f"onnxruntime says: {values.message}")
            else:
                check = _check(cutting, {name: values[name] for name in cutting.reads}, provider)
            place = cutting.rewrite.place
            checks[place] = max(checks.get(place, check), check, key=_gravity)
    return checks, taken


def _gravity(check: SiteCheck) -> tuple[int, float]:
    found = check.accuracy
    if found is None:
        return 0, 0.0
    return 2 if found.problem else 1, found.fused / found.bound if found.bound else found.fused


def _check(cutting: Cutting, values: Mapping[str, Any], provider: str) -> SiteCheck:
    rewrite = cutting.rewrite
    try:
        before, after = _proto(cutting.before, values), _proto(cutting.after, values)
        truth = evaluate(before, _read_by(before, values))
    except UnknownError as why:
        return SiteCheck(rewrite, provider, unknown=f"it can't be evaluated in float64: {why}")
    except (ValueError, TypeError, NotImplementedError) as why:  # a value that is no tensor, a model over 2 GiB
        return SiteCheck(rewrite, provider, unknown=f"it can't be taken out of the model: {why}")
    unfused, fused = _run(before, values, provider), _run(after, values, provider)
    if isinstance(fused, Failure):
        if isinstance(unfused, Failure):
            return SiteCheck(rewrite, provider, unknown=f"onnxruntime does not run it by itself: {unfused.message}")
        return SiteCheck(rewrite, provider, "", Accuracy(float("inf"), 0.0, 0.0, f"does not run: {fused.message}"))
    stored = has_float_attribute(after) and not has_float_attribute(before)
    checks = (
        SiteCheck(
            rewrite,
            provider,
            was,
            accuracy(
                np.asarray(fused[now]),
                None if isinstance(unfused, Failure) else np.asarray(unfused[was]),
                np.asarray(truth[was]),
                stored=stored,
            ),
        )
        for was, now in cutting.results
    )
    return max(checks, key=_gravity)


def _run(proto: onnx.ModelProto, values: Mapping[str, Any], provider: str) -> dict[str, Any] | Failure:
    session = open_session(proto.SerializeToString(), provider, optimised=False)
    return session if isinstance(session, Failure) else run(session, _read_by(proto, values))


def _read_by(proto: onnx.ModelProto, values: Mapping[str, Any]) -> dict[str, Any]:
    return {value.name: values[value.name] for value in proto.graph.input}


def _proto(model: ir.Model, values: Mapping[str, Any]) -> onnx.ModelProto:
    """The model with all weights inside, its inputs declared as what is fed to them, and nothing else declared."""
    proto: onnx.ModelProto = ir.to_proto(model)
    for tensor in proto.graph.initializer:
        held = model.graph.initializers[tensor.name].const_value
        if tensor.data_location == onnx.TensorProto.EXTERNAL and held is not None:
            tensor.CopyFrom(ir.to_proto(ir.Tensor(held.numpy(), dtype=held.dtype, name=tensor.name)))
    for value in proto.graph.input:
        array = np.asarray(values[value.name])
        value.CopyFrom(helper.make_tensor_value_info(value.name, _element_type(array), [None] * array.ndim))
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.ClearField("type")
    return proto


def _element_type(array: np.ndarray) -> int:
    return int(ir.DataType.from_numpy(array.dtype))


def worst(checks: Sequence[SiteCheck]) -> Iterator[SiteCheck]:
    """For each rewrite, the gravest of its checks on all providers."""
    by_place: dict[Place, SiteCheck] = {}
    for check in checks:
        place = check.rewrite.place
        by_place[place] = max(by_place.get(place, check), check, key=_gravity)
    yield from by_place.values()
