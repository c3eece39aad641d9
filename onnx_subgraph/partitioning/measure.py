"""Find engines that are slower than onnxruntime on this machine, by timing their regions in place.

Every round runs the original, the engines by their backend, and the engines by nested sessions of onnxruntime. The difference of
the last and the first is the cost of crossing the borders. An engine must save its share of it.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend, Signature
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.engine.isolated import Remote
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.verification.sessions import Failure, open_session, run

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_subgraph.backends.subgraph import Subgraph

ROUNDS, SECONDS = 40, 4.0
"""The most rounds, in turn, and the time limit in seconds."""
LEAST = 5
"""The fewest rounds."""


class Timed(Backend):
    """A backend that records the time of its runs: region → seconds. away: seconds for transfers to and from another process."""

    def __init__(self, inner: Backend) -> None:
        self.name, self.version = inner.name, inner.version
        self.specializes, self.concurrent = inner.specializes, inner.concurrent
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.away: dict[str, list[float]] = defaultdict(list)
        self._inner = inner

    def supports(self, node: ir.Node) -> bool:
        """Ask the inner backend."""
        return self._inner.supports(node)

    def compile(self, subgraph: Subgraph, signature: Signature) -> Any:
        """Compile with the inner backend, and remember the region's name."""
        return subgraph.name, self._inner.compile(subgraph, signature)

    def run(self, compiled: Any, inputs: Sequence[Array]) -> Sequence[Array]:
        """Run with the inner backend, timed."""
        name, region = compiled
        begun = time.perf_counter()
        outputs = self._inner.run(region, inputs)
        seconds = time.perf_counter() - begun
        inside = region.seconds if isinstance(region, Remote) else seconds
        self.seconds[name].append(inside)
        self.away[name].append(seconds - inside)
        return outputs


def slower(
    original: Path, candidate: Path, weights: Path, backends: Mapping[str, Backend], provider: str, feeds: Mapping[str, Any]
) -> dict[str, str]:
    """The engines of `candidate` that are not faster on these feeds, or fail: name → why. weights: the folder of its data.

    backends: by the names in the engines. Backends may run in other processes; the time to send arrays there and back is not
    counted.
    """
    plain = open_session(original, provider, optimised=True)
    if isinstance(plain, Failure):
        return {}
    timed, nesting = {name: Timed(backend) for name, backend in backends.items()}, Timed(OnnxRuntime())
    sessions = {
        "backend": EngineSession(candidate, backends=timed, weights=weights),
        "onnxruntime": EngineSession(candidate, backends=dict.fromkeys(timed, nesting), weights=weights),
    }
    ways: dict[str, Callable[[], object]] = {"original": lambda: run(plain, feeds)}
    for who, session in sessions.items():
        ways[who] = lambda session=session: session.run(None, feeds)  # type: ignore[misc]
    whole = _in_turn(ways)
    failed = {engine.subgraph.name: engine.failure for engine in sessions["backend"].engines if engine.failure}
    if failed:
        return failed
    by = {name: one for one in timed.values() for name in one.seconds}
    whole["backend"] -= sum(statistics.median(one.away[name][1:]) for name, one in by.items())
    engines = {name: statistics.median(one.seconds[name][1:]) for name, one in by.items()}
    nested = {name: statistics.median(seconds[1:]) for name, seconds in nesting.seconds.items()}
    crossing = max(0.0, whole["onnxruntime"] - whole["original"]) / max(1, len(nested))
    saved = {name: nested[name] - crossing - seconds for name, seconds in engines.items() if name in nested}
    losing = [name for name, seconds in saved.items() if seconds <= 0]
    if not losing and saved and whole["backend"] > whole["original"]:
        losing = [min(saved, key=lambda name: saved[name])]
    return {
        name: f"measured: {_ms(engines[name])} by {by[name].name} and {_ms(crossing)} to cross its border, "
        f"{_ms(nested[name])} by onnxruntime"
        for name in losing
    }


def _in_turn(ways: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each way, all run in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    begun = time.perf_counter()
    for number in range(ROUNDS):
        for name, once in ways.items():
            start = time.perf_counter()
            once()
            seconds[name].append(time.perf_counter() - start)
        if number >= LEAST and time.perf_counter() - begun > SECONDS:
            break
    return {name: statistics.median(taken[1:]) for name, taken in seconds.items()}


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
