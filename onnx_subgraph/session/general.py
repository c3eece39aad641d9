"""The models that a session is made of: the general one, and the one with engines."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from onnx_subgraph.session.prepare import Prepared, cache_of, fusing, prepare
from onnx_subgraph.session.settings import SessionSettings


def general_models(
    source: Path | bytes, settings: SessionSettings, providers: Sequence[str], weights: Path | None
) -> tuple[Prepared, Prepared]:
    """The general model, fused for onnxruntime, and the one with engines; the same if there is no backend.

    Raises as `prepare` does, and UsageError for an unknown backend.
    """
    plain = replace(settings, backend=None)
    make = partial(prepare, source, cache=cache_of(settings), weights=weights)  # one cache: neither evicts the other
    if settings.backend is None:
        return (general := make(fusing(plain, providers), plain)), general
    recipe = fusing(settings, providers)  # raises before any time is spent
    with ThreadPoolExecutor(1) as beside:
        prepared = beside.submit(make, recipe, settings)
        return make(fusing(plain, providers), plain), prepared.result()
