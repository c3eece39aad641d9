"""An engine computes what its region computes, whatever its backend does, and reports which region failed and why."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from onnx_subgraph.backends.backend import Declined
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.backends.reference import Reference
from onnx_subgraph.engine import deadline
from onnx_subgraph.engine.breaker import ENGINES, FAILURES, Breaker
from onnx_subgraph.engine.engine import Engine
from onnx_subgraph.engine.expectation import expected
from onnx_subgraph.engine.sample import is_due, problem
from onnx_subgraph.engine.settings import EngineSettings
from onnx_subgraph.errors import EngineError, OnnxSubgraphWarning, UsageError
from tests.children import child_of, succeeds
from tests.engine.backends import REGION, Scripted, fails, feed, region, sleeps, waits


def engine(backend: Scripted, settings: EngineSettings | None = None, text: str = REGION) -> Engine:
    return Engine(region(text), backend, OnnxRuntime(), settings or EngineSettings())


def right(outputs: Any, batch: int = 2) -> bool:
    y = np.maximum(feed(batch)[0] * np.float32([1, 2, 3, 4]), 0)
    return len(outputs) == 2 and np.array_equal(outputs[0], y) and np.allclose(outputs[1], y.sum(-1))


def test_a_region_is_compiled_once_for_each_signature() -> None:
    backend = Scripted()
    made = engine(backend)
    for batch in (1, 2, 1, 3, 2, 1):
        assert right(made.run(feed(batch)), batch)
    assert [shape for ((_, shape),) in backend.compiled] == [(1, 4), (2, 4), (3, 4)]
    assert made.fallbacks == 0 and made.failure == ""


def test_the_signature_that_was_not_run_for_the_longest_time_is_dropped() -> None:
    backend = Scripted()
    made = engine(backend, EngineSettings(signatures=2))
    for batch in (1, 2, 1, 3, 1):
        assert right(made.run(feed(batch)), batch)
    assert [shape[0] for ((_, shape),) in backend.compiled] == [1, 2, 3]


def test_a_backend_that_does_not_specialize_compiles_once() -> None:
    backend = Scripted()
    backend.specializes = False
    made = engine(backend)
    assert all(right(made.run(feed(batch)), batch) for batch in (1, 2, 3))
    assert len(backend.compiled) == 1


FAULTS: dict[str, tuple[Scripted, str]] = {
    "raises in compile": (
        Scripted(compiling=fails(RuntimeError("no kernel for Mul"))),
        "did not compile it: .*no kernel for Mul",
    ),
    "raises in run": (Scripted(answering=fails(OSError("device lost"))), "did not run it: OSError: device lost"),
    "gives a wrong shape": (Scripted(answering=lambda o: [o[0][:1], o[1]]), r"gave y of shape \[1, 4\], not \[2, 4\]"),
    "gives a wrong dtype": (Scripted(answering=lambda o: [o[0].astype(np.float64), o[1]]), "gave y as float64, not as float32"),
    "gives too few outputs": (Scripted(answering=lambda o: o[:1]), "gave 1 outputs, the region has 2"),
    "gives too many outputs": (Scripted(answering=lambda o: [*o, o[0]]), "gave 3 outputs, the region has 2"),
    "gives no arrays": (Scripted(answering=lambda o: [None, o[1]]), "gave NoneType for y"),
    "says it in lines": (
        Scripted(answering=fails(OSError("lost:\n\n  the device\n of\nthis\nmachine"))),
        "OSError: lost: the device of this(?! machine)",
    ),
    "says very much": (Scripted(answering=fails(OSError("x" * 999))), r"OSError: x{388}\.\.\."),
    "gives nothing": (Scripted(answering=lambda o: None), "did not run it: .*NoneType"),
}


@pytest.mark.parametrize(("backend", "why"), FAULTS.values(), ids=FAULTS)
def test_the_fallback_runs_and_the_message_names_the_region_and_the_reason(backend: Scripted, why: str) -> None:
    made = engine(backend)
    with pytest.warns(OnnxSubgraphWarning, match=rf"region /layer.3/Engine, with x float32\[2, 4\]: backend scripted .*{why}"):
        assert right(made.run(feed()))
    assert made.fallbacks == 1 and made.failure
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the message is printed once
        assert right(made.run(feed()))
    assert made.fallbacks == 2


@pytest.mark.parametrize(("backend", "why"), FAULTS.values(), ids=FAULTS)
def test_strict_settings_raise_instead(backend: Scripted, why: str) -> None:
    with pytest.raises(EngineError, match=why):
        engine(backend, EngineSettings(strict=True)).run(feed())


LOOKUP = """<ir_version: 10, opset_import: ["" : 17]> region (int64[n] i) => (float[n] y)
<float[4] w = {1.0, 2.0, 3.0, 4.0}> { y = Gather (w, i) }"""


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("stage", ["compile", "run"])
def test_inputs_that_onnxruntime_refuses_are_no_failure_of_the_backend(stage: str, strict: bool) -> None:
    """One request with a word that does not exist must not end the engine for all others."""
    wrong = fails(IndexError("no such row"))
    backend = Scripted(**{"compiling" if stage == "compile" else "answering": wrong})
    made = engine(backend, EngineSettings(strict=strict), LOOKUP)
    for size in range(1, FAILURES + 3):
        with warnings.catch_warnings(), pytest.raises(InvalidArgument, match="out of data bounds"):
            warnings.simplefilter("error")
            made.run([np.full(size, 9)])
    assert (made.fallbacks, made.failure) == (0, "")
    backend.compiling = backend.answering = lambda given: given
    assert np.array_equal(made.run([np.arange(4).repeat(8)])[0], np.arange(1, 5, dtype=np.float32).repeat(8))
    assert made.fallbacks == 0


def test_a_declined_run_is_no_failure() -> None:
    backend = Scripted()
    made = engine(backend)
    backend.answering = fails(Declined("has a zero"))
    for _ in range(FAILURES + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert right(made.run(feed()))
    backend.answering = lambda outputs: outputs
    assert right(made.run(feed())) and (made.fallbacks, made.failure) == (FAILURES + 1, "")
    for given, said in (("has a zero",), "has a zero"), ((), "declined it"):
        backend.answering = fails(Declined(*given))
        with pytest.raises(EngineError, match=f"backend scripted {said}"):
            made.warm(feed())


@pytest.mark.parametrize(
    "then", [None, OSError("device lost"), Declined("has a zero")], ids=["it goes on", "it fails", "it declines"]
)
def test_a_backend_that_writes_to_its_inputs_is_found_and_they_come_back(then: Exception | None) -> None:
    class Writing(Scripted):
        def run(self, compiled: Any, inputs: Any) -> Any:
            outputs = super().run(compiled, inputs)
            inputs[0][...] = 0
            if then is not None:
                raise then
            return outputs

    made, given = engine(Writing(), EngineSettings(check=1.0)), feed()
    said = "wrote to its inputs" if then is None else "device lost"
    with nullcontext() if isinstance(then, Declined) else pytest.warns(OnnxSubgraphWarning, match=said):
        assert right(made.run(given))
    assert np.array_equal(given[0], feed()[0])


def test_a_failed_signature_does_not_affect_others() -> None:
    def only_small(signature: Any) -> None:
        if signature[0][1][0] > 2:
            raise MemoryError("too large")

    made = engine(Scripted(compiling=only_small))
    assert right(made.run(feed(1)), 1)
    with pytest.warns(OnnxSubgraphWarning, match="too large"):
        assert right(made.run(feed(3)), 3)
    assert right(made.run(feed(2)), 2)
    assert made.fallbacks == 1


def test_a_backend_that_never_succeeds_is_given_up() -> None:
    backend = Scripted(compiling=fails(RuntimeError("no")))
    made = engine(backend)
    with pytest.warns(OnnxSubgraphWarning):
        for batch in range(1, 20):
            assert right(made.run(feed(batch)), batch)
    assert len(backend.compiled) == FAILURES


def test_a_slow_compilation_is_not_waited_for_and_used_when_ready() -> None:
    go = threading.Event()
    backend = Scripted(compiling=waits(go))
    made = engine(backend, EngineSettings(patience=0.01))
    with pytest.warns(OnnxSubgraphWarning, match=r"has not compiled it after 0.01 s"):
        assert right(made.run(feed()))
    assert made.fallbacks == 1
    go.set()
    made.settings = EngineSettings(patience=30)
    assert right(made.run(feed()))
    assert made.fallbacks == 1 and len(backend.compiled) == 1 and made.failure == ""


def test_a_run_that_hangs_is_given_up() -> None:
    made = engine(Scripted(answering=sleeps(5)), EngineSettings(deadline=0.05))
    with pytest.warns(OnnxSubgraphWarning, match=r"did not run it: TimeoutError: it takes more than 0.05 s"):
        assert right(made.run(feed()))


def test_a_backend_that_gives_up_by_itself_says_why() -> None:
    made = engine(Scripted(answering=fails(TimeoutError("no answer from the device"))), EngineSettings(deadline=30))
    with pytest.warns(OnnxSubgraphWarning, match="did not run it: TimeoutError: no answer from the device"):
        assert right(made.run(feed()))


def test_few_threads_wait_for_more_calls_and_none_keeps_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline._threads, "idle", deque())
    many = deadline.IDLE + 4
    together = threading.Barrier(many)
    with ThreadPoolExecutor(many) as pool:
        made = list(pool.map(lambda _: deadline.within(30, lambda: (together.wait(), threading.Event())[1]), range(many)))
    assert len(deadline._threads.idle) <= deadline.IDLE
    results = [weakref.ref(one) for one in made]
    made.clear()
    for _ in range(1000):  # a thread forgets its call after it has answered
        if not any(result() for result in results):
            return
        time.sleep(0.01)
    raise AssertionError("a thread keeps its last result")


class Clock:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_failed_backend_is_retried_after_a_while() -> None:
    """One run tries again. Each failed try doubles the waiting time."""
    down = [True]

    def device(outputs: Any) -> Any:
        if down[0]:
            raise OSError("device lost")
        return outputs

    clock = Clock()
    backend = Scripted(answering=device)
    made = Engine(region(), backend, OnnxRuntime(), EngineSettings(), Breaker(300, clock))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for batch in range(1, 10):
            assert right(made.run(feed(batch)), batch)
        assert len(backend.compiled) == FAILURES
        clock.now = 299
        assert right(made.run(feed(1)), 1) and len(backend.compiled) == FAILURES
        clock.now = 301
        assert right(made.run(feed(1)), 1) and right(made.run(feed(2)), 2)
        assert len(backend.compiled) == FAILURES + 1, "one run tries"
        down[0] = False
        clock.now = 301 + 301
        assert right(made.run(feed(1)), 1) and len(backend.compiled) == FAILURES + 1, "it waits twice as long"
        clock.now = 301 + 601
        before = made.fallbacks
        assert all(right(made.run(feed(batch)), batch) for batch in (1, 4, 5, 1)) and made.fallbacks == before
    said = [str(warning.message) for warning in told]
    assert len(said) == 3
    assert "device lost; onnxruntime runs it instead" in said[0]
    assert "it is not asked here again for 300 s" in said[1] and "for 600 s" in said[2]


def test_several_engines_that_fail_give_the_backend_up_for_all() -> None:
    backend, breaker = Scripted(compiling=fails(RuntimeError("no"))), Breaker(300, Clock())
    engines = [Engine(region(name=f"engine {n}"), backend, OnnxRuntime(), EngineSettings(), breaker) for n in range(12)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for batch in range(1, 6):
            assert all(right(engine.run(feed(batch)), batch) for engine in engines)
    assert len(backend.compiled) <= ENGINES * FAILURES + len(engines) * (FAILURES - 1)
    assert sum("no engine asks it again" in str(warning.message) for warning in told) == 1
    asked = len(backend.compiled)
    assert all(right(engine.run(feed(9)), 9) for engine in engines) and len(backend.compiled) == asked


def test_a_backend_that_works_again_is_asked_by_all() -> None:
    clock = Clock()
    breaker = Breaker(300, clock)
    assert breaker.asks("engine") and breaker.failed("engine", grave="backend") == "no engine asks it again for 300 s"
    clock.now = 300
    assert breaker.asks("second") and not breaker.asks("third"), "one of them tries"
    breaker.worked("second")
    assert breaker.asks("third")


def test_the_wait_for_a_backend_is_an_hour_at_most() -> None:
    clock = Clock()
    breaker = Breaker(300, clock)
    said = []
    for _ in range(6):
        assert breaker.asks("engine")
        said.append(breaker.failed("engine", grave="engine").split()[-2])
        clock.now += 3600
    assert said == ["300", "600", "1200", "2400", "3600", "3600"]


def test_a_run_that_ends_late_does_not_end_the_wait_of_a_given_up_engine() -> None:
    """It began before the failures of others."""
    clock = Clock()
    breaker = Breaker(300, clock)
    assert all(breaker.asks("engine") for _ in range(FAILURES + 1))
    for _ in range(FAILURES):
        breaker.failed("engine")
    breaker.worked("engine")
    assert not breaker.asks("engine")


def test_a_size_with_two_values_is_not_expected_of_an_output() -> None:
    """The declaration of the model is wrong, and not the backend."""
    text = """<ir_version: 10, opset_import: ["" : 17]>
    g (float[n] x, float[n] y, float[m] z) => (float[n] p, float[m] q) { p = Add (x, y) q = Neg (z) }"""
    signature = (("float32", (1,)), ("float32", (3,)), ("float32", (2,)))
    assert [one.shape for one in expected(region(text), signature)] == [(None,), (2,)]


def test_a_result_of_another_shape_differs_though_all_its_elements_are_equal() -> None:
    small, large = np.zeros((1, 4), np.float32), np.zeros((2, 4), np.float32)
    assert problem([small], [large], ["y"], 1.0) == "gave y of shape [1, 4], onnxruntime [2, 4]"
    assert problem([large], [large], ["y"], 1.0) == ""


def test_a_backend_that_hangs_costs_one_deadline_one_warning_and_no_thread() -> None:
    """All engines give it up at the first timeout. Its thread ends when the hanging call returns."""
    go = threading.Event()
    backend = Scripted(answering=waits(go))
    breaker = Breaker(300, Clock())
    settings = EngineSettings(deadline=0.05)
    engines = [Engine(region(name=f"engine {n}"), backend, OnnxRuntime(), settings, breaker) for n in range(9)]
    before = set(threading.enumerate())
    with pytest.warns(OnnxSubgraphWarning, match="more than 0.05 s; no engine asks it again for 300 s") as told:
        for _ in range(3):
            assert all(right(engine.run(feed())) for engine in engines)
    assert len(told) == 1
    (held,) = set(threading.enumerate()) - before
    go.set()
    held.join(5)
    assert not held.is_alive()


def test_threads_that_time_out_together_cause_one_warning() -> None:
    go = threading.Event()
    made = engine(Scripted(answering=waits(go)), EngineSettings(deadline=0.2))
    with pytest.warns(OnnxSubgraphWarning, match="no engine asks it again") as told, ThreadPoolExecutor(6) as pool:
        assert all(pool.map(lambda _: right(made.run(feed())), range(6)))
    assert len(told) == 1
    go.set()


def test_calls_within_the_deadline_reuse_the_same_threads() -> None:
    made = engine(Scripted(), EngineSettings(deadline=30))
    assert right(made.run(feed()))
    before = set(threading.enumerate())
    assert all(right(made.run(feed())) for _ in range(50))
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("factor", [1.01, float("nan"), 0.0])
def test_wrong_values_are_found_by_checking_a_fraction_of_the_runs(factor: float) -> None:
    runs = itertools.count(1)
    made = engine(
        Scripted(answering=lambda o: [o[0] * np.float32(factor if next(runs) > 10 else 1), o[1]]), EngineSettings(check=0.25)
    )
    with pytest.warns(OnnxSubgraphWarning, match=r"gave y that is .* from onnxruntime's; 1.0e-03 is allowed; .* again for 300 s"):
        answers = [made.run(feed()) for _ in range(40)]
    wrong = [number for number, answer in enumerate(answers, 1) if not right(answer)]
    assert wrong == [11], "the twelfth is checked, and the backend is not asked any more"


def test_checked_runs_are_spread_evenly() -> None:
    for share in (0.0, 0.01, 0.3, 1.0):
        due = [number for number in range(1, 1001) if is_due(number, share)]
        assert len(due) == round(1000 * share)
        assert not due or max(np.diff([0, *due])) <= np.ceil(1 / share)


def test_warm_waits_for_compilation_and_compares_the_results_with_onnxruntime() -> None:
    made = engine(Scripted(compiling=sleeps(0.05)), EngineSettings(patience=0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a session that never waits is not warned each time
        assert right(made.warm(feed())) and made.fallbacks == 0
        assert right(made.run(feed())) and made.fallbacks == 0
        assert right(made.run(feed(3)), 3) and made.fallbacks == 1
    wrong = engine(Scripted(answering=lambda o: [o[0] * np.float32(1.01), o[1]]))
    with pytest.raises(EngineError, match=r"1.0e-02 of its largest element"):
        wrong.warm(feed())


def test_one_compilation_serves_all_sizes_where_the_backend_can() -> None:
    backend = Scripted()
    made = engine(backend)
    assert right(made.warm(feed(), every=True))
    assert all(right(made.run(feed(batch)), batch) for batch in range(1, 20))
    assert backend.compiled == [(("float32", (None, None)),)]
    assert right(made.warm(feed(7)), 7) and right(made.run(feed(7)), 7)
    assert backend.compiled[1:] == [(("float32", (7, 4)),)], "one that is asked for by itself is compiled by itself"


def test_a_compilation_for_all_sizes_is_retried_after_a_while() -> None:
    """One try compiles and runs. It counts as one failure of the backend, not two."""
    down, clock = [True], Clock()

    def device(signature: Any) -> None:
        if down[0]:
            raise OSError("device lost")

    made = Engine(region(), Scripted(compiling=device), OnnxRuntime(), EngineSettings(), Breaker(300, clock))
    for _ in range(FAILURES):
        with pytest.raises(EngineError, match="device lost"):
            made.warm(feed(), every=True)
    with pytest.raises(EngineError, match="was given up"):
        made.warm(feed(), every=True)
    down[0], clock.now = False, 301
    assert right(made.warm(feed(), every=True)) and right(made.run(feed(5)), 5) and made.fallbacks == 0


def test_a_region_that_a_run_could_not_compile_is_not_compiled_again_at_once() -> None:
    backend = Scripted(compiling=fails(OSError("device lost")))
    made = engine(backend)
    with pytest.warns(OnnxSubgraphWarning, match="device lost"):
        made.run(feed())
    for _ in range(2):
        with pytest.raises(EngineError, match="device lost"):
            made.warm(feed())
    assert len(backend.compiled) == 1


def test_sizes_of_another_rank_are_compiled_by_themselves() -> None:
    text = """<ir_version: 10, opset_import: ["" : 17]> region (float x) => (float y) { y = Relu (x) }"""
    backend = Scripted()
    subgraph = region(text)
    subgraph.model.graph.inputs[0].shape = subgraph.model.graph.outputs[0].shape = None
    made = Engine(subgraph, backend, OnnxRuntime(), EngineSettings())
    for shape in ((2,), (2, 3), (4, 5)):
        given = np.full(shape, -1, np.float32)
        assert np.array_equal(made.warm([given], every=True)[0], np.zeros(shape, np.float32))
    assert [sizes for ((_, sizes),) in backend.compiled] == [(None,), (None, None)]


STALE = REGION.replace("float[batch] total", "float[batch, 1] total").replace("float[batch, 4] y", "float[7, 4] y")
"""The region, declared with wrong shapes."""


def test_a_wrong_declared_shape_is_not_blamed_on_the_backend() -> None:
    """Results are compared with onnxruntime's, whatever shape the file declares."""
    made = engine(Scripted(), text=STALE)
    assert right(made.run(feed())) and right(made.run(feed()))
    assert made.failure == "" and made.fallbacks == 0


def test_a_wrong_declared_shape_hides_no_wrong_values() -> None:
    """What is measured and compared is what the backend computes, not onnxruntime's result in its place."""
    made = engine(Scripted(answering=lambda outputs: [outputs[0] + 1, outputs[1]]), text=STALE)
    with pytest.raises(EngineError, match="y"):
        made.warm(feed())


def test_threads_and_a_changing_batch_lose_nothing() -> None:
    backend = Scripted()
    made = engine(backend)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda n: right(made.run(feed(1 + n % 5)), 1 + n % 5), range(200)))
    assert len(backend.compiled) == 5 and made.usage.hits == 195


def test_many_signatures_under_a_bound_of_eight_leak_nothing(thorough: bool) -> None:
    signatures = 200 if thorough else 24
    alive: list[weakref.ref[Any]] = []

    class Counted(Scripted):
        def compile(self, subgraph: Any, signature: Any) -> Any:
            compiled = super().compile(subgraph, signature)
            alive.append(weakref.ref(compiled))
            return compiled

    made = engine(Counted(), EngineSettings(signatures=8))
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(lambda batch: right(made.run(feed(batch)), batch), range(1, signatures + 1)))
    gc.collect()
    assert made.usage.size == 8 and made.usage.evictions == signatures - 8
    assert sum(ref() is not None for ref in alive) == 8


class Saving(Scripted):
    """A backend whose compiled form is the model file itself."""

    def save(self, compiled: Any) -> bytes | None:
        content: bytes = compiled.proto_.SerializeToString()
        return content

    def restore(self, content: bytes, subgraph: Any, signature: Any) -> Any:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(content)


@pytest.mark.parametrize(
    "spoil",
    [lambda file: None, lambda file: file.write_bytes(file.read_bytes()[:-7]), lambda file: file.write_bytes(b""), Path.unlink],
    ids=["as it is", "cut off", "empty", "gone"],
)
def test_a_cache_on_disk_serves_the_next_process_and_never_harms_it(spoil: Callable[[Path], object], tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    first, second = Saving(), Saving()
    assert right(engine(first, EngineSettings(folder=folder)).run(feed()))
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    spoil(file)
    intact = file.exists() and file.read_bytes() == whole
    assert right(engine(second, EngineSettings(folder=folder)).run(feed()))
    assert len(first.compiled) == 1 and len(second.compiled) == (0 if intact else 1)
    assert file.read_bytes() == whole


@pytest.mark.parametrize("in_the_way", [False, True], ids=["written again", "not writable"])
def test_what_a_backend_can_not_restore_is_compiled_again(in_the_way: bool, tmp_path: Path) -> None:
    class Changed(Saving):
        def restore(self, content: bytes, subgraph: Any, signature: Any) -> Any:
            raise KeyError("it has another form now")

    settings = EngineSettings(folder=tmp_path, strict=True)
    engine(Changed(), settings).run(feed())
    (file,) = tmp_path.iterdir()
    if in_the_way:
        file.unlink()
        (file / "folder").mkdir(parents=True)
    backend = Changed()
    assert right(engine(backend, settings).run(feed())) and len(backend.compiled) == 1


def test_a_backend_that_saves_nothing_leaves_the_folder_empty(tmp_path: Path) -> None:
    assert right(engine(Scripted(), EngineSettings(folder=tmp_path, strict=True)).run(feed()))
    assert not list(tmp_path.iterdir())


def test_the_key_on_disk_depends_on_backend_region_weights_version_and_shape(tmp_path: Path) -> None:
    newer, other = Saving(), Saving()
    newer.version, other.name = "2", "other"
    settings = EngineSettings(folder=tmp_path)
    Engine(replace(region(), key="another"), Saving(), OnnxRuntime(), settings).run(feed())
    for backend, text, batch in (
        (Saving(), REGION, 2),
        (Saving(), REGION.replace("4.0}", "5.0}"), 2),
        (newer, REGION, 2),
        (other, REGION, 2),
        (Saving(), REGION, 3),
    ):
        engine(backend, settings, text).run(feed(batch))
    assert len(list(tmp_path.iterdir())) == 6


def test_an_unwritable_cache_folder_does_not_change_the_result(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert right(engine(Saving(), EngineSettings(folder=tmp_path / "file")).run(feed()))


def test_a_backend_that_is_not_concurrent_runs_a_region_for_one_thread_at_a_time() -> None:
    inside = threading.Semaphore()
    met = []

    def alone(outputs: Any) -> Any:
        met.append(inside.acquire(blocking=False))
        time.sleep(0.01)
        inside.release()
        return outputs

    backend = Scripted(answering=alone)
    backend.concurrent = False
    made = engine(backend)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: right(made.run(feed())), range(20)))
    assert met == [True] * 20


@pytest.mark.parametrize(
    "wrong",
    [
        {"signatures": 0},
        {"signatures": 1.5},
        {"check": 2},
        {"check": float("nan")},
        {"deadline": 0},
        {"patience": -1},
        {"retry": -1},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_refused_with_a_hint(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))) as raised:
        EngineSettings(**wrong)
    assert raised.value.hint


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("batch", [2, 3], ids=["compiled before", "new"])
def test_a_forked_process_runs_a_region_whatever_its_parent_did_meanwhile(batch: int) -> None:
    """It has no threads for calls with a deadline, and may be forked while a run has the locks."""
    backend = Scripted()
    made = Engine(region(), backend, Reference(), EngineSettings(deadline=60))
    assert right(made.run(feed()))
    assert len(deadline._threads.idle) > 0
    with made._alone, made._lock, made.breaker._lock:
        child = child_of(lambda: right(made.run(feed(batch)), batch) and made.fallbacks == 0 and not _fails(made))
    assert succeeds(child, 20)


def _fails(made: Engine) -> bool:
    """Whether a run has no right outputs when the backend fails."""
    made.backend.answering = fails(ValueError("no"))  # type: ignore[attr-defined]
    with pytest.warns(OnnxSubgraphWarning, match="ValueError: no"):
        return not right(made.run(feed()))
