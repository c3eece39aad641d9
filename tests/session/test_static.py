"""Static schedules compute what the model computes, in any order of shapes. Their number is bounded and their history kept."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph import Limits, OnnxSubgraphWarning, SessionError, SessionSettings, StaticSession, UsageError
from onnx_subgraph.files.models import load, save
from onnx_subgraph.model.specialize import specialize
from onnx_subgraph.session import commands, general, paying, schedule, schedules, special
from onnx_subgraph.session.digest import Memory
from onnx_subgraph.session.options import is_optimised
from onnx_subgraph.session.prepare import Prepared
from tests.session.conftest import save as save_text

# Exporters' shape arithmetic: the number of rows is read, halved and used in a Reshape.
ARITHMETIC = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, seq, 8] x) => (float[rows, 8] y, float[batch, seq, 8] z)
<int64[1] eight = {8}>
{
  shape = Shape (x)
  zero = Constant <value_ints: ints = [0]> ()
  one = Constant <value_ints: ints = [1]> ()
  b = Gather (shape, zero)
  s = Gather (shape, one)
  rows = Mul (b, s)
  target = Concat <axis = 0> (rows, eight)
  flat = Reshape (x, target)
  y = MatMul (flat, w)
  z = Relu (x)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = save_text(ARITHMETIC, tmp_path / "arithmetic.onnx")
    proto = onnx.load(path)
    weights = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(proto, path)
    return path


def feeds(batch: int, seq: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((batch, seq, 8)).astype(np.float32)}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[dict[str, tuple[int, ...]]]]:
    """Prepare in this process without verification, which takes milliseconds. Returns the requested shapes."""
    asked: list[dict[str, tuple[int, ...]]] = []
    numbers = itertools.count()

    def preparing(source: Path, recipe: Any, settings: SessionSettings, **_: Any) -> Prepared:
        content = Memory(None).model(source)
        if recipe.commands[0][0] == "fuse":
            return Prepared(None, reason="nothing in it can be fused", content=content)
        given = recipe.commands[0]
        shapes = dict(given[i + 1].split("=") for i, part in enumerate(given) if part == "--shape")
        asked.append({name: tuple(map(int, sizes.split("x"))) for name, sizes in shapes.items()})
        model, path = load(source), tmp_path / f"special{next(numbers)}.onnx"
        specialize(model, asked[-1])
        save(model, path, None)
        return Prepared(path, nbytes=path.stat().st_size, content=content)

    monkeypatch.setattr(special, "prepare", preparing)
    monkeypatch.setattr(general, "prepare", preparing)
    monkeypatch.setattr(paying, "timed", lambda *_: 0.5)
    yield asked


def made(path: Path, **options: Any) -> StaticSession:
    return StaticSession(path, settings=SessionSettings(cache=None, strict=True), **options)


def test_a_new_signature_runs_at_once_and_later_by_its_schedule(model: Path, here: list[Any]) -> None:
    session, plain = made(model), onnxruntime.InferenceSession(model)
    for number in range(3):
        given = feeds(2, 3, number)
        for ours, theirs in zip(session.run(None, given), plain.run(None, given), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        assert session.wait(60)
    (story,) = session.schedules()
    assert (story.state, story.hits, story.misses, story.reason) == ("ready", 2, 1, "1 run by the general model")
    assert story.nbytes > 0 and schedule.spelled(story.signature) == "x=float32[2, 3, 8]"
    assert here == [{"x": (2, 3, 8)}]
    assert [n.op_type for n in onnx.load(session._our_schedule(feeds(2, 3)).model).graph.node if n.op_type == "Shape"] == []


def test_two_threads_and_many_signatures_lose_nothing_and_leak_nothing(
    model: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    """Many signatures under a bound of 8, repeated by two threads."""
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Counted(onnxruntime.InferenceSession):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            alive.add(self)

    monkeypatch.setattr(special, "plain_session_class", lambda: Counted)
    monkeypatch.setattr(schedules.Account, "pays", lambda *_: True)
    one_thread = onnxruntime.SessionOptions()
    one_thread.intra_op_num_threads = 1
    session = made(model, limits=Limits(schedules=8), sess_options=one_thread)
    plain = onnxruntime.InferenceSession(model, one_thread)
    signatures = [(1 + n % 20, 1 + n // 20) for n in range(200 if thorough else 50)]
    wrong: list[object] = []

    def work(seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(signatures))
        for number in order:
            for again in range(3):
                batch, length = signatures[number]
                given = feeds(batch, length, seed + again)
                try:
                    if not all(map(np.array_equal, session.run(None, given), plain.run(None, given))):
                        wrong.append(signatures[number])
                except Exception as error:
                    wrong.append(error)
                if again == 0 and number % 8 == 0:
                    session.wait(60)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.wait(60) and not wrong
    stories = session.schedules()
    assert sum(story.hits + story.misses for story in stories) == 2 * 3 * len(signatures)
    assert len(stories) == len(signatures) and sum(story.hits for story in stories) > 0
    assert sum(story.state == "ready" for story in stories) == 8
    gc.collect()
    assert len(alive) == 8, "a schedule that is gone frees its session"
    session.close()
    gc.collect()
    assert len(alive) == 0


def test_a_session_ends_its_thread(model: Path, here: list[Any]) -> None:
    session = made(model)
    session.run(None, feeds(1, 1))
    session.wait(60)
    thread = session._our_schedules._thread
    assert thread is not None and thread.is_alive()
    del session
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_outputs_are_new_arrays_unless_buffers_are_reused(model: Path, here: list[Any]) -> None:
    for reuse in (False, True):
        session = made(model, reuse_buffers=reuse)
        assert session.warm(feeds(2, 3))
        first = session.run(None, feeds(2, 3, 1))
        kept = [array.copy() for array in first]
        second = session.run(None, feeds(2, 3, 2))
        assert all(map(np.array_equal, first, kept)) is not reuse
        assert (first[0] is second[0]) is reuse


def rewritten(path: Path) -> None:
    """Save the model with other weights, over the file."""
    proto = onnx.load(path)
    proto.graph.initializer[-1].CopyFrom(onnx.numpy_helper.from_array(np.full((8, 8), 7, np.float32), "w"))
    onnx.save(proto, path)


@pytest.mark.parametrize("apart", [False, True], ids=["the model", "its data"])
def test_a_schedule_is_of_the_model_of_its_session(model: Path, here: list[Any], apart: bool) -> None:
    """Although a file was replaced since, or the program went to a folder with a file of this name."""
    if apart:
        onnx.save(onnx.load(model), model, save_as_external_data=True, location="w.bin", size_threshold=0)
    session, plain = made(model), onnxruntime.InferenceSession(model)
    if apart:
        (model.parent / "w.bin").write_bytes(bytes((model.parent / "w.bin").stat().st_size))
    else:
        rewritten(model)
    with pytest.warns(OnnxSubgraphWarning, match="the file of the model, or of its data, was changed"):
        assert not session.warm(feeds(2, 3))
    for ours, theirs in zip(session.run(None, feeds(2, 3)), plain.run(None, feeds(2, 3)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_schedule_is_of_the_model_in_the_folder_of_the_start(
    model: Path, here: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other := tmp_path / "other").mkdir()
    (other / model.name).write_bytes(model.read_bytes())
    rewritten(other / model.name)
    monkeypatch.chdir(model.parent)
    session, plain = made(Path(model.name)), onnxruntime.InferenceSession(model)
    monkeypatch.chdir(other)
    assert session.warm(feeds(2, 3))
    for ours, theirs in zip(session.run(None, feeds(2, 3)), plain.run(None, feeds(2, 3)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_model_that_draws_random_numbers_has_no_schedule(tmp_path: Path, here: list[Any]) -> None:
    """A schedule has a generator of its own, which draws the same numbers again."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] y) {
      noise = RandomNormalLike (x)  y = Add (x, noise) }"""
    session = made(save_text(text, tmp_path / "noisy.onnx"))
    with pytest.warns(OnnxSubgraphWarning, match="RandomNormalLike draws random numbers"):
        assert not session.warm({"x": np.zeros((2, 4), np.float32)})


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2], ids=["bfloat16", "float8"])
def test_numbers_that_numpy_lacks_have_no_signature(dtype: type, model: Path, here: list[Any]) -> None:
    """onnxruntime takes no arrays of them."""
    with pytest.raises(UsageError, match="only arrays of numbers"):
        made(model).warm({"x": np.ones((2, 3, 8), dtype)})
    assert here == []


def test_a_feed_that_replaces_a_weight_has_no_schedule(tmp_path: Path, here: list[Any]) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x, float[4] w) => (float[n, 4] y)
      <float[4] w = {1, 2, 3, 4}> { y = Mul (x, w) }"""
    session = made(save_text(text, tmp_path / "weighted.onnx"))
    given = {"x": np.ones((2, 4), np.float32)}
    replaced = {**given, "w": np.full(4, 5, np.float32)}
    assert session.warm(given)
    with pytest.warns(OnnxSubgraphWarning, match="'w' is a weight of the model, which its schedules hold"):
        assert not session.warm(replaced)
    np.testing.assert_array_equal(session.run(None, given)[0], [[1, 2, 3, 4]] * 2)
    np.testing.assert_array_equal(session.run(None, replaced)[0], [[5] * 4] * 2)
    assert here == [{"x": (2, 4)}]


def test_providers_may_be_set_during_a_run(model: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread sets them: the session has no schedules until the model is prepared again."""
    session = made(model)
    general_run = onnxruntime.InferenceSession.run

    def meanwhile(*arguments: Any) -> Any:
        outputs = general_run(*arguments)
        session._our_schedules = None
        return outputs

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", meanwhile)
    expected = np.maximum(feeds(2, 3)["x"], 0)
    np.testing.assert_array_equal(session.run(["z"], feeds(2, 3))[0], expected)


def test_schedules_have_the_arguments_of_the_session(model: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: list[dict[str, Any]] = []

    class Spying(onnxruntime.InferenceSession):  # type: ignore[misc]
        def __init__(self, *given: Any, **more: Any) -> None:
            arguments.append(more)
            super().__init__(*given, **more)

    monkeypatch.setattr(special, "plain_session_class", lambda: Spying)
    session = made(model, disabled_optimizers=["MatMulAddFusion"])
    assert session.warm(feeds(2, 3), 60)
    assert [more["disabled_optimizers"] for more in arguments] == [["MatMulAddFusion"]]


def test_disabled_optimizers_leave_packed_weights_unused() -> None:
    """The packed copy is a model that onnxruntime has rewritten with all its optimizers."""
    options = onnxruntime.SessionOptions()
    assert is_optimised(options, {"enable_fallback": 1, "disabled_optimizers": []})
    assert not is_optimised(options, {"disabled_optimizers": ["MatMulAddFusion"]})


def test_schedules_have_the_options_that_the_session_was_made_with(
    model: Path, here: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller goes on with its options, for another session."""
    monkeypatch.chdir(tmp_path)
    opened: list[Any] = []

    class Spying(onnxruntime.InferenceSession):  # type: ignore[misc]
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            opened.append(self.get_session_options())

    monkeypatch.setattr(special, "plain_session_class", lambda: Spying)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")
    session = made(model, sess_options=options)
    options.intra_op_num_threads, options.enable_profiling = 2, True
    options.add_session_config_entry("session.disable_prepacking", "0")
    assert session.warm(feeds(2, 3), 60)
    (made_with,) = opened
    assert made_with.intra_op_num_threads == 1 and not made_with.enable_profiling
    assert made_with.get_session_config_entry("session.disable_prepacking") == "1"


@pytest.mark.parametrize("kind", ["profile", "optimised model"])
def test_a_session_that_writes_files_writes_them_once(kind: str, model: Path, here: list[Any], tmp_path: Path) -> None:
    folder = tmp_path / "written"
    folder.mkdir()
    options = onnxruntime.SessionOptions()
    if kind == "profile":
        options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
    else:
        options.optimized_model_filepath = str(folder / "optimised.onnx")
    session = made(model, sess_options=options)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.warns(OnnxSubgraphWarning, match="a schedule would write it again"):
        assert not session.warm(feeds(2, 3))
    assert before and {path: path.read_bytes() for path in folder.iterdir()} == before


def test_bound_buffers_take_no_options_of_a_run(model: Path, here: list[Any]) -> None:
    """The general model does: an adapter would be lost."""
    for reuse, hits in ((True, 0), (False, 1)):
        session = made(model, reuse_buffers=reuse)
        session.warm(feeds(2, 3))
        session.run(None, feeds(2, 3), onnxruntime.RunOptions())
        assert session.schedules()[0].hits == hits


def test_inputs_can_be_written_in_place(model: Path, here: list[Any]) -> None:
    session = made(model, reuse_buffers=True)
    session.warm(feeds(2, 3))
    buffers = session.buffers(feeds(2, 3))
    buffers["x"][...] = feeds(2, 3, 5)["x"]
    (z,) = session.run(["z"], buffers)
    np.testing.assert_array_equal(z, np.maximum(feeds(2, 3, 5)["x"], 0))
    with pytest.raises(UsageError, match="reuse_buffers"):
        plain = made(model)
        plain.warm(feeds(1, 1))
        plain.buffers(feeds(1, 1))


@pytest.mark.parametrize(
    "view", [lambda array: array, lambda array: array[:], lambda array: array.reshape(-1)[::-1].reshape(2, 3)]
)
def test_the_buffer_of_one_input_may_be_fed_as_another(tmp_path: Path, here: list[Any], view: Any) -> None:
    """Copying the feeds in, one after the other, does not overwrite one that is still to be read."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
      g (float[n, m] a, float[n, m] b, float[n, m] c) => (float[n, m] y, float[n, m] z) {
      d = Sub (a, b)  y = Mul (d, c)  z = Sub (c, b) }"""
    session = made(path := save_text(text, tmp_path / "three.onnx"), reuse_buffers=True)
    plain, draws = onnxruntime.InferenceSession(path), np.random.default_rng(0)
    first = {name: draws.standard_normal((2, 3)).astype(np.float32) for name in "abc"}
    assert session.warm(first)
    buffers = session.buffers(first)
    for order in itertools.product("abc", repeat=3):
        for name, array in first.items():
            buffers[name][...] = array
        expected = plain.run(None, {name: view(first[other]) for name, other in zip("abc", order, strict=True)})
        found = session.run(None, {name: view(buffers[other]) for name, other in zip("abc", order, strict=True)})
        assert all(map(np.array_equal, found, expected)), order


def test_an_output_that_is_an_input_has_no_buffer(tmp_path: Path, here: list[Any]) -> None:
    """onnxruntime does not write it into a bound buffer."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] x, float[n, 4] s) {
      e = Shape (x) t = Reshape (x, e) s = Add (x, t) }"""
    session = made(save_text(text, tmp_path / "passed.onnx"), reuse_buffers=True)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert session.warm({"x": x})
    passed, doubled = session.run(None, {"x": x})
    np.testing.assert_array_equal(passed, x)
    np.testing.assert_array_equal(doubled, 2 * x)


def test_reused_buffers_are_for_one_thread_and_results_of_others_stay(model: Path, here: list[Any]) -> None:
    """Several threads run one signature. Only the first gets the buffers and overwrites its own results."""
    session = made(model, reuse_buffers=True)
    session.warm(feeds(2, 3))
    mine = session.run(None, feeds(2, 3, 1))
    kept: list[tuple[int, list[np.ndarray]]] = []

    def work(first: int) -> None:
        kept.extend((seed, session.run(None, feeds(2, 3, seed))) for seed in range(first, first + 20))

    threads = [threading.Thread(target=work, args=(first,)) for first in (100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    plain = onnxruntime.InferenceSession(model)
    for seed, outputs in [(1, mine), *kept]:
        assert all(map(np.array_equal, outputs, plain.run(None, feeds(2, 3, seed)))), seed
    assert session.run(None, feeds(2, 3, 2))[0] is mine[0] and len(kept) == 40


def test_reaching_a_bound_is_reported(model: Path, here: list[Any]) -> None:
    session = made(model, limits=Limits(schedules=2))
    for batch in (1, 2, 3):
        session.warm(feeds(batch, 2))
    states = {schedule.spelled(s.signature): (s.state, s.reason) for s in session.schedules()}
    assert states["x=float32[1, 2, 8]"] == ("evicted", "it was the least recently used, over 2 schedules")
    with pytest.warns(OnnxSubgraphWarning, match="only where they pay") as told:
        while states["x=float32[1, 2, 8]"][0] == "evicted":
            session.run(None, feeds(1, 2))
            states = {schedule.spelled(s.signature): (s.state, s.reason) for s in session.schedules()}
        session.wait(60)
    story = next(s for s in session.schedules() if s.signature[0][2] == (1, 2, 8))
    assert story.state == "ready" and "runs by the general model, evicted before" in story.reason
    assert story.misses > 2 and len(told) == 1, "one more than the bound has to pay"
    small = made(model, limits=Limits(nbytes=10))
    assert not small.warm(feeds(1, 2))
    assert small.schedules()[0].state == "refused" and "10" in small.schedules()[0].reason


def test_a_signature_can_be_required_to_occur_several_times(model: Path, here: list[Any]) -> None:
    session = made(model, limits=Limits(after=3))
    for runs in range(1, 4):
        session.run(None, feeds(2, 2))
        session.wait(60)
        assert session.schedules()[0].state == ("ready" if runs == 3 else "seen")
    nothing = made(model, limits=Limits(schedules=0))
    nothing.run(None, feeds(2, 2))
    assert nothing.schedules()[0].state == "seen"


def test_a_schedule_is_saved_as_a_model_that_runs_anywhere(model: Path, here: list[Any], tmp_path: Path) -> None:
    session = made(model)
    with pytest.raises(UsageError, match="`warm` prepares it"):
        session.save(feeds(2, 3), tmp_path / "saved.onnx")
    session.warm(feeds(2, 3))
    session.save(feeds(2, 3), tmp_path / "saved.onnx")
    saved = onnxruntime.InferenceSession(tmp_path / "saved.onnx")
    assert saved.get_inputs()[0].shape == [2, 3, 8]
    np.testing.assert_array_equal(saved.run(None, feeds(2, 3))[0], session.run(None, feeds(2, 3))[0])


def test_a_schedule_that_can_not_be_made_gives_a_warning_and_a_record(
    model: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = made(model)

    def fail(*_: Any, **__: Any) -> Prepared:
        raise SessionError("no luck")

    monkeypatch.setattr(special, "prepare", fail)
    with pytest.warns(OnnxSubgraphWarning, match=r"no schedule for x=float32\[2, 3, 8\]: no luck"):
        assert not session.warm(feeds(2, 3))
    assert session.schedules()[0].state == "refused" and session.schedules()[0].reason == "no luck"
    assert len(session.run(None, feeds(2, 3))) == 2


def test_a_failing_schedule_is_replaced_by_the_dynamic_model(
    model: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = made(model)
    session.warm(feeds(2, 3))

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(schedule.Schedule, "run", fail)
    with pytest.warns(OnnxSubgraphWarning, match="broken"):
        assert len(session.run(None, feeds(2, 3))) == 2
    assert session.schedules()[0].state == "refused"
    with pytest.raises(Exception, match="nonsense"):
        session.run(["nonsense"], feeds(2, 3))


@pytest.mark.parametrize("given", [{"x": np.zeros((0, 3, 8), np.float32)}, {"x": [[[1.0] * 8]]}], ids=["empty", "a list"])
def test_signatures_without_a_static_form_run_the_dynamic_model(model: Path, here: list[Any], given: dict[str, Any]) -> None:
    session, plain = made(model), onnxruntime.InferenceSession(model)

    def answer(some: Any) -> object:
        try:
            return [np.shape(array) for array in some.run(None, given)]
        except Exception as error:
            return type(error)

    with pytest.warns(OnnxSubgraphWarning, match="an input is empty") if isinstance(given["x"], np.ndarray) else nullcontext():
        assert answer(session) == answer(plain)
        session.wait(60)
    assert here == []


def test_a_feed_whose_name_is_no_string_gives_onnxruntimes_error(model: Path, here: list[Any]) -> None:
    given: dict[Any, Any] = dict.fromkeys(("other", 1), np.zeros(3, np.float32))
    told = []
    for session in (onnxruntime.InferenceSession(model), made(model)):
        with pytest.raises(ValueError, match="Required inputs") as raised:
            session.run(None, given)
        told.append(str(raised.value))
    assert told[0] == told[1]


def test_schedules_are_made_by_the_command_and_cached(model: Path, settings: SessionSettings) -> None:
    """Nothing is replaced: `onnx-subgraph specialize` runs in its own process, with verification."""
    for _ in range(2):
        session = StaticSession(model, settings=settings)
        assert session.warm(feeds(2, 3), 120)
        np.testing.assert_allclose(
            session.run(None, feeds(2, 3, 4))[0],
            onnxruntime.InferenceSession(model).run(None, feeds(2, 3, 4))[0],
            rtol=1e-5,
        )
    assert session.schedules()[0].hits == 1


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no such policy")
def test_background_preparation_has_low_priority(model: Path, settings: SessionSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = []
    real = commands._communicate

    def communicate(child: Any, command: str, patience: Any) -> Any:
        policies.append((command, os.sched_getscheduler(child.pid)))
        with contextlib.suppress(PermissionError):  # otherwise it would wait for all other tests
            os.sched_setscheduler(child.pid, os.SCHED_OTHER, os.sched_param(0))
        return real(child, command, patience)

    monkeypatch.setattr(commands, "_communicate", communicate)
    session = StaticSession(model, settings=dataclasses.replace(settings, cache=None))
    session.run(None, feeds(2, 3))
    assert session.wait(120) and session.warm(feeds(1, 3), 120), "whoever asks for one gets it, however fast it is"
    mine = os.sched_getscheduler(0)
    assert policies == [("fuse", mine), ("specialize", os.SCHED_IDLE), ("specialize", mine)], "who waits is not made to wait"


def test_sessions_that_fuse_nothing_have_no_schedules(model: Path) -> None:
    session = StaticSession(model, settings=SessionSettings(enabled=False, cache=None, strict=True))
    assert not session.warm(feeds(2, 3), 10) and len(session.run(None, feeds(2, 3))) == 2
