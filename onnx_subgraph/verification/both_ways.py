"""A model whose operators have kernels in our library, and definitions: it has to be right by either."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph import kernels
from onnx_subgraph.errors import KernelError
from onnx_subgraph.kernels import Description
from onnx_subgraph.operators.names import ENGINE, OWN_DOMAIN
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.rounding import COARSEST, Truth, with_roundings
from onnx_subgraph.verification.trial import CPU
from onnx_subgraph.verification.verdict import Verdict
from onnx_subgraph.verification.verify import Reference

COARSER = {"float32": 1.0, "bf16x3": 2.0**8, "bf16": COARSEST}
"""How many times a rounding of float32 what a kernel may round its operands by is: 24 bits to 16 bits, to 8."""


def own_library(candidate: ir.Model) -> Description | None:
    """The library of kernels, where the candidate carries operators that it has; None where it has none, or can't be had."""
    carried = {name for domain, name, _ in candidate.functions if domain == OWN_DOMAIN}
    if not carried - {ENGINE}:
        return None
    try:
        library = kernels.describe()
    except KernelError:
        return None
    return library if carried & {*library.operators} else None


def both_ways(
    reference: Reference, candidate: ir.Model, library: Description, numerics: str = "float32", home: Path | None = None
) -> Verdict:
    """Whether the candidate computes the same by its definitions, and with the library.

    The strength is "kernel" where the library has every operator of ours that the candidate has.
    numerics: what its kernels may round; the bound of the noise is then as many times as large for them.
    home: the folder of its external data, where that is not the reference's.
    """
    way = f"the kernels for {library.used}" + ("" if numerics == "float32" else f", {numerics}")
    home = home or reference.path.resolve().parent
    opened = partial(open_model, candidate, home, CPU, optimised=True, libraries=(library.path,))
    found = replace(reference.verdict(candidate, home, also={way: opened}, coarser=COARSER[numerics]), also=(way,))
    if numerics != "float32" and found.verdict == "equivalent":
        found = with_roundings(found, Truth(reference), opened())
    ours = {name for domain, name, _ in candidate.functions if domain == OWN_DOMAIN}
    return replace(found, strength="kernel") if ours <= {*library.operators} else found
