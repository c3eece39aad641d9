"""Which engines a measurement leaves, in eighths of a second on a clock that only runs of regions and of the original move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Signature
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.backends.subgraph import Subgraph
from onnx_subgraph.engine.isolated import Remote
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.errors import OnnxSubgraphWarning
from onnx_subgraph.partitioning import measure
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from onnx_subgraph.partitioning.worth import RegionLimits
from onnx_subgraph.verification.sessions import run
from tests.engine.backends import Scripted, fails
from tests.partitioning.conftest import Clock
from tests.partitioning.models import LAYERS, Without, x
from tests.partitioning.test_partition import written

ORIGINAL, NESTED = 10, 6
"""How long onnxruntime takes for the model, and for each of its two layers by itself: a border costs (6 + 6 - 10) / 2."""


class Taking(OnnxRuntime):
    """A backend in another process, with the time that it takes for each region there, and that of the transfers."""

    def __init__(self, name: str, clock: Clock, seconds: Mapping[str, float], away: float = 0.0) -> None:
        super().__init__()
        self.name, self._clock, self._seconds, self._away = name, clock, seconds, away
        self._compiled: dict[str, Any] = {}

    def compile(self, subgraph: Subgraph, signature: Signature) -> Any:
        self._compiled[subgraph.name] = super().compile(subgraph, signature)
        return Remote(0, subgraph, signature)

    def run(self, compiled: Any, inputs: Sequence[Array]) -> Sequence[Array]:
        name = compiled.subgraph.name
        compiled.seconds = self._seconds[name]
        return self._clock.takes(compiled.seconds + self._away)(super().run(self._compiled[name], inputs))


@pytest.fixture
def parted(tmp_path: Path) -> tuple[Path, Path, list[str]]:
    """The model, its partition into two layers, and their names."""
    source = written(LAYERS, tmp_path)
    options = PartitionOptions("scripted", RegionLimits(1, 9))
    result = partition(source, tmp_path / "parted.onnx", options, backend=Without("Softmax"))
    assert result.output is not None
    return source, result.output, [engine.node for engine in result.engines]


@pytest.mark.parametrize(
    ("first", "second", "away", "beside", "left"),
    [
        (4, 4, 0, 0, []),
        (4, 5, 0, 0, [1]),
        (5.5, 3, 0, 0, [0]),
        (4, 4, 2, 0, []),
        (3, 4, 0, 4, [1]),
        (3, 3, 9, 4, []),
    ],
    ids=["both save", "as fast as before", "slower with its border", "transfers", "slower as a whole", "transfers and the whole"],
)
def test_an_engine_has_to_save_more_than_its_border_costs(
    first: float,
    second: float,
    away: float,
    beside: float,
    left: list[int],
    parted: tuple[Path, Path, list[str]],
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Transfers don't count. A model that is slower as a whole loses the engine that saves least."""
    source, candidate, names = parted
    taken = dict(zip(names, (first / 8, second / 8), strict=True))

    class Beside(EngineSession):
        def run(self, *given: Any) -> list[Array]:
            return clock.takes(beside / 8 * (self.engines[0].backend.name == "taking"))(super().run(*given))

    monkeypatch.setattr(measure, "EngineSession", Beside)
    monkeypatch.setattr(measure, "run", lambda session, feeds: clock.takes(ORIGINAL / 8)(run(session, feeds)))
    monkeypatch.setattr(measure, "OnnxRuntime", lambda: Taking("nested", clock, dict.fromkeys(names, NESTED / 8)))
    backends = {"scripted": Taking("taking", clock, taken, away / 8)}
    found = measure.slower(source, candidate, candidate.parent, backends, "CPUExecutionProvider", x())
    assert found == {
        name: f"measured: {taken[name] * 1e3:.3g} ms by taking and 125 ms to cross its border, 750 ms by onnxruntime"
        for name in (names[number] for number in left)
    }


def test_an_engine_that_fails_while_it_is_measured_is_left(parted: tuple[Path, Path, list[str]], clock: Clock) -> None:
    source, candidate, names = parted
    backends = {"scripted": Scripted(answering=fails(RuntimeError("gone")))}
    with pytest.warns(OnnxSubgraphWarning, match="gone"):
        found = measure.slower(source, candidate, candidate.parent, backends, "CPUExecutionProvider", x())
    assert set(found) == set(names) and all("gone" in why for why in found.values())
