"""Compute values that only earlier rewrites added to the model.

A later rewrite may read them. They can't be captured from the original, but the values that they are computed from can.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.verification.sessions import Failure
from onnx_subgraph.verification.side import Side

Captured = Mapping[str, Any] | Failure


class Remade:
    """The values that these rewrites, in their order, added to the main graph. known: the names that can be captured."""

    def __init__(self, cuttings: Sequence[Cutting], known: Collection[str], provider: str) -> None:
        self._cuttings, self._known, self._provider = cuttings, known, provider
        self._place = {cutting: place for place, cutting in enumerate(cuttings)}
        self._makers: dict[str, list[int]] = {}
        for place, cutting in enumerate(cuttings):
            for value in () if cutting.rewrite.place.scope else (v for node in cutting.after.graph for v in node.outputs):
                self._makers.setdefault(str(value.name), []).append(place)

    def missing(self, cutting: Cutting) -> str:
        """A value that the rewrite reads, and that can neither be captured nor computed; "" where there is none."""
        return next((name for name in cutting.reads if not self._sources(name, self._place[cutting])), "")

    def sources(self, cutting: Cutting) -> tuple[str, ...]:
        """The values to capture for this rewrite, for which `missing` is ""."""
        place = self._place[cutting]
        return tuple(dict.fromkeys(source for name in cutting.reads for source in self._sources(name, place)))

    def completed(self, cutting: Cutting, captured: Captured) -> Captured:
        """The values that this rewrite reads, from captured ones; or why they can't be computed."""
        if isinstance(captured, Failure):
            return captured
        values = {name: captured[name] for name in self.sources(cutting)}
        for name in cutting.reads:
            if (failure := self._compute(name, self._place[cutting], values)) is not None:
                return failure
        return {name: values[name] for name in cutting.reads}

    def _maker(self, name: str, place: int) -> int | None:
        """The last rewrite before `place` that computes a value."""
        return max((maker for maker in self._makers.get(name, ()) if maker < place), default=None)

    def _sources(self, name: str, place: int) -> tuple[str, ...]:
        """The values to capture from which `name` is computed; () where it can't be."""
        if name in self._known:
            return (name,)
        maker = self._maker(name, place)
        if maker is None:
            return ()
        found = [self._sources(str(value.name), maker) for value in self._cuttings[maker].after.graph.inputs]
        return tuple(source for sources in found for source in sources) if all(found) else ()

    def _compute(self, name: str, place: int, values: dict[str, Any]) -> Failure | None:
        """Add a value to `values`; or return why it can't be computed."""
        maker = None if name in values else self._maker(name, place)
        if maker is None:
            return None
        for value in self._cuttings[maker].after.graph.inputs:
            if (failure := self._compute(str(value.name), maker, values)) is not None:
                return failure
        results = Side(_yielding(self._cuttings[maker].after, name), self._provider).run(values)
        if isinstance(results, Failure):
            return results
        values[name] = results[name]
        return None


def _yielding(model: ir.Model, name: str) -> ir.Model:
    """A copy whose only output is this inner value."""
    copy = model.clone()
    copy.graph.outputs.clear()
    copy.graph.outputs.append(next(v for node in copy.graph for v in node.outputs if v.name == name))
    return copy
