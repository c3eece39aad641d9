"""The execution providers of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx_subgraph.verification.sessions import SERVICES

CPU = "CPUExecutionProvider"


def providers_here(given: Any) -> tuple[str, ...]:
    """The providers that run the nodes of a session here; the CPU's if it names none.

    onnxruntime leaves out those that it lacks, with a warning. given: as onnxruntime takes them; it reports what is malformed.
    """
    import onnxruntime

    have = frozenset(onnxruntime.get_available_providers()) - SERVICES
    listed = given if isinstance(given, Sequence) else ()
    names = (one if isinstance(one, str) else next(iter(one), "") for one in listed if isinstance(one, Sequence))
    return tuple(dict.fromkeys(name for name in names if name in have)) or (CPU,)
