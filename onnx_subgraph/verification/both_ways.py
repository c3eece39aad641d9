"""A model whose operators have kernels in our library, and definitions: it has to be right by either."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import onnx_ir as ir

from onnx_subgraph.kernels import Description
from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.rounding import COARSEST, Truth, with_roundings
from onnx_subgraph.verification.trial import CPU
from onnx_subgraph.verification.verdict import Verdict
from onnx_subgraph.verification.verify import Reference

COARSER = {"float32": 1.0, "bf16x3": 2.0**8, "bf16": COARSEST}
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
        found = with_roundings(found, Truth(reference), opened())
    ours = {name for domain, name, _ in candidate.functions if domain == OWN_DOMAIN}
    return replace(found, strength="kernel") if ours <= {*library.operators} else found
