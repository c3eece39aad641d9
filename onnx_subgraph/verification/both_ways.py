"""A model whose operators have kernels in our library, and definitions: it has to be right by either."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import onnx_ir as ir

from onnx_subgraph.kernels import Description
from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.trial import CPU
from onnx_subgraph.verification.verdict import Verdict
from onnx_subgraph.verification.verify import Reference


def both_ways(reference: Reference, candidate: ir.Model, library: Description) -> Verdict:
    """Whether the candidate computes the same by its definitions, and with the library.

    The strength is "kernel" where the library has every operator of ours that the candidate has.
    """
    way = f"the kernels for {library.used}"
    home = reference.path.resolve().parent
    opened = partial(open_model, candidate, home, CPU, optimised=True, libraries=(library.path,))
    found = replace(reference.verdict(candidate, also={way: opened}), also=(way,))
    ours = {name for domain, name, _ in candidate.functions if domain == OWN_DOMAIN}
    return replace(found, strength="kernel") if ours <= {*library.operators} else found
