"""One answer for all models of a process to whether a provider loads an operator.

To ask onnxruntime takes a session. The answer depends only on the provider and the libraries of custom operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from onnx_subgraph.custom_ops import libraries
from onnx_subgraph.rewriting.assumed import Assumed
from onnx_subgraph.rewriting.loadability import Loadability


def loadability_of(providers: Sequence[str], assumed: Sequence[str] = ()) -> list[Loadability]:
    """The loadability on each provider of a run. assumed: providers that are not here.

    A library that was built again is asked again. Raises UsageError where an assumed provider has no table.
    """
    loaded = tuple((path, path.stat().st_mtime_ns) for path in libraries())
    return [*(_shared(Loadability, p, loaded) for p in providers), *(_shared(Assumed, p, loaded) for p in assumed)]


@cache
def _shared(kind: type[Loadability], provider: str, loaded: tuple[tuple[Path, int], ...]) -> Loadability:
    return kind(provider)
