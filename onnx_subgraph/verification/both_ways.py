"""A model whose operators have kernels in our library, and definitions: it has to be right by either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.verification.judge import Array, flatten, is_float
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.sessions import Failure, Session, run
from onnx_subgraph.verification.trial import CPU
from onnx_subgraph.verification.truth import UnknownError
from onnx_subgraph.verification.verdict import Rounding, Verdict
from onnx_subgraph.verification.verify import Reference

if TYPE_CHECKING:
    from onnx_subgraph.kernels import Description

COARSER = {"float32": 1.0, "bf16x3": 2.0**8, "bf16": 2.0**16}
"""How many times a rounding of float32 what a kernel may round its operands by is: 24 bits to 16 bits, to 8."""


def both_ways(reference: Reference, candidate: ir.Model, library: Description, numerics: str = "float32") -> Verdict:
    """Whether the candidate computes the same by its definitions, and with the library.

    The strength is "kernel" where the library has every operator of ours that the candidate has.
    numerics: what its kernels may round; the bound of the noise is then as many times as large for them.
    """
    way = f"the kernels for {library.used}" + ("" if numerics == "float32" else f", {numerics}")
    home = reference.path.resolve().parent
    opened = partial(open_model, candidate, home, CPU, optimised=True, libraries=(library.path,))
    found = replace(reference.verdict(candidate, also={way: opened}, coarser=COARSER[numerics]), also=(way,))
    if numerics != "float32" and found.verdict == "equivalent":
        found = _with_roundings(found, reference, opened())
    ours = {name for domain, name, _ in candidate.functions if domain == OWN_DOMAIN}
    return replace(found, strength="kernel") if ours <= {*library.operators} else found


def _with_roundings(verdict: Verdict, reference: Reference, session: Session | Failure) -> Verdict:
    try:
        return replace(verdict, roundings=_worst(_roundings(reference, session)))
    except UnknownError as why:
        said = f"how far the kernels are from float64 is unknown: {why}"
        return replace(verdict, reason="; ".join(filter(None, (verdict.reason, said))))


def _roundings(reference: Reference, session: Session | Failure) -> Iterator[Rounding]:
    """Of every output of floats in every case. Raises UnknownError."""
    cases = reference.cases(reference.providers[0])
    for case in [] if isinstance(cases, Failure) or isinstance(session, Failure) else cases:
        assert not isinstance(session, Failure)
        outputs = run(session, case.fed_to(session))
        if isinstance(outputs, Failure):
            continue
        mine, own, truth = flatten(outputs), flatten(case.outputs), flatten(reference.truth(case.feeds))
        for name, exact in truth.items():
            if name in mine and name in own and is_float(own[name]):
                yield Rounding(name, _distance(mine[name], exact), _distance(own[name], exact))


def _distance(array: Array, exact: Array) -> float:
    """The largest difference, in units of the largest of the truth; numbers alone."""
    wide, numbers = array.astype(np.float64), np.isfinite(array) & np.isfinite(exact)
    size = float(np.abs(exact[numbers]).max(initial=0.0))
    return float(np.abs(wide - exact)[numbers].max(initial=0.0)) / size if size else 0.0


def _worst(roundings: Iterator[Rounding]) -> tuple[Rounding, ...]:
    """For each output the largest of both."""
    worst: dict[str, Rounding] = {}
    for one in roundings:
        before = worst.get(one.output, one)
        worst[one.output] = Rounding(one.output, max(one.kernels, before.kernels), max(one.onnxruntime, before.onnxruntime))
    return tuple(worst.values())
