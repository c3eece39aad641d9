"""Verify a model whose operators have both a definition and a kernel in our library. It must be right with either."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph.kernels import Description
from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.verification.fed import Fed
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.rounding import COARSEST, Truth, with_roundings
from onnx_subgraph.verification.sessions import Failure, Session
from onnx_subgraph.verification.trial import CPU
from onnx_subgraph.verification.verdict import Verdict

COARSER = {"float32": 1.0, "bf16x3": 2.0**8, "bf16": COARSEST}
"""Allowed rounding of a kernel's operands, in units of float32's: 16 or 8 significant bits instead of 24."""


def both_ways(
    reference: Reference, candidate: ir.Model, library: Description, numerics: str = "float32", file: Path | None = None
) -> Verdict:
    """Whether the candidate computes the same with its definitions, and with the library.

    The strength is "kernel" where the library has all of the candidate's operators of our domain. numerics: how far its kernels
    may round; the noise bound for them is larger by that factor. file: the candidate's file, if it has one.
    """
    way = f"the kernels for {library.used}" + ("" if numerics == "float32" else f", {numerics}")
    home = (file or reference.path).resolve().parent

    def opened(fed: Fed) -> Session | Failure:
        return open_model(fed.to(candidate), home, CPU, optimised=True, libraries=(library.path,))

    found = replace(reference.verdict(file or candidate, also={way: opened}, coarser=COARSER[numerics]), also=(way,))
    if numerics != "float32" and found.verdict == "equivalent":
        found = with_roundings(found, Truth(reference), opened(reference.fed(reference.providers[0])))
    ours = {name for domain, name, _ in candidate.functions if domain == OWN_DOMAIN}
    return replace(found, strength="kernel") if ours <= {*library.operators} else found


def numerics_of(model: ir.Model) -> str:
    """The coarsest rounding that the model allows a kernel of our library."""
    ours = (node.attributes.get_string("numerics", "float32") for node in model.graph.all_nodes() if node.domain == OWN_DOMAIN)
    return max(ours, key=lambda word: COARSER.get(str(word), 1.0), default="float32")
