"""`InferenceSession` behaves like onnxruntime's in everything but the loaded model."""

from __future__ import annotations

import errno
import inspect
import itertools
import os
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph import (
    InferenceSession,
    OnnxSubgraphWarning,
    Options,
    SessionError,
    SessionSettings,
    StaticSession,
    fuse,
    load_patterns,
    temporary,
)
from onnx_subgraph.kernels.compilers import compilers
from onnx_subgraph.session import commands
from tests.session.conftest import PLAIN, save


def operators(session: InferenceSession) -> list[str]:
    assert session.prepared.path is not None
    return [node.op_type for node in onnx.load(session.prepared.path).graph.node]


def test_it_accepts_the_arguments_of_onnxruntimes() -> None:
    ours = inspect.signature(InferenceSession.__init__).parameters
    theirs = inspect.signature(onnxruntime.InferenceSession.__init__).parameters
    assert [(name, p.kind) for name, p in ours.items() if name != "settings"] == [(name, p.kind) for name, p in theirs.items()]


def test_it_is_an_onnxruntime_session_with_a_fused_model(gelu: Path, settings: SessionSettings, x: np.ndarray) -> None:
    plain, ours = onnxruntime.InferenceSession(gelu), InferenceSession(gelu, settings=settings)
    assert isinstance(ours, onnxruntime.InferenceSession)
    assert operators(ours) == ["Gelu"] and ours.prepared.fusions == 1
    np.testing.assert_allclose(ours.run(None, {"x": x})[0], plain.run(["y"], {"x": x})[0], rtol=1e-5, atol=1e-6)
    for name in ("get_inputs", "get_outputs"):
        mine, others = getattr(ours, name)(), getattr(plain, name)()
        assert [(a.name, a.type, a.shape) for a in mine] == [(a.name, a.type, a.shape) for a in others]
    assert ours.get_modelmeta().graph_name == plain.get_modelmeta().graph_name
    binding = ours.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    ours.run_with_iobinding(binding)
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], plain.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_the_second_session_uses_the_cached_model(gelu: Path, settings: SessionSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    InferenceSession(gelu, settings=settings)
    monkeypatch.setattr(commands, "run", lambda *_: pytest.fail("it was prepared again"))
    second = InferenceSession(str(gelu), settings=settings)
    from_bytes = InferenceSession(gelu.read_bytes(), settings=settings)
    assert second.prepared.from_cache and from_bytes.prepared.from_cache
    assert second.prepared.path == from_bytes.prepared.path


def test_an_edited_pattern_file_is_read_again(gelu: Path, settings: SessionSettings, tmp_path: Path) -> None:
    """A program that runs for days, or a notebook in which a pattern is written."""
    grow = "{select: node.operator == 'Erf', output: consumer.operator == 'Add'}"
    text = f"id: mine\nsummary: x\ngrow: {grow}\nreplace: {{function: My}}\n"
    mine = replace(settings, target="function", patterns=tmp_path / "mine.yaml", skip=("gelu", "elementwise-region"))
    fusions = []
    for edited in (text, text.replace("Erf", "Tan"), text):
        (tmp_path / "mine.yaml").write_text(edited)
        fusions.append(InferenceSession(gelu, settings=mine).prepared.fusions)
    assert fusions == [1, 0, 1]


def test_set_providers_recreates_it_with_the_fused_model(gelu: Path, settings: SessionSettings, x: np.ndarray) -> None:
    session = InferenceSession(gelu, settings=settings)
    before = session.run(None, {"x": x})[0]
    session.set_providers(["CPUExecutionProvider"])
    assert operators(session) == ["Gelu"]
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], before)


@pytest.mark.parametrize("kind", [InferenceSession, StaticSession])
def test_set_providers_raises_and_keeps_the_fallback_as_onnxruntimes_does(
    kind: type[InferenceSession], gelu: Path, settings: SessionSettings
) -> None:
    told = []
    for session in (onnxruntime.InferenceSession(gelu), kind(gelu, settings=replace(settings, strict=False))):
        session.disable_fallback()
        session.set_providers(["CPUExecutionProvider"])
        assert session._enable_fallback is False
        with pytest.warns(UserWarning), pytest.raises(RuntimeError) as raised:
            session.set_providers(["NoExecutionProvider"])
        told.append(str(raised.value))
    assert told[0] == told[1]


def test_options_reach_the_session(gelu: Path, settings: SessionSettings, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    session = InferenceSession(gelu, options, ["CPUExecutionProvider"], settings=settings)
    assert [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node] == ["Gelu"]
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_a_model_in_which_nothing_fuses_is_loaded_unchanged(tmp_path: Path, settings: SessionSettings) -> None:
    path = save(PLAIN, tmp_path / "plain.onnx")
    for from_cache in (False, True):
        session = InferenceSession(path, settings=settings)
        assert session.prepared.path is None and session.prepared.reason == "nothing in it can be fused"
        assert session.prepared.from_cache is from_cache
        assert session.run(None, {"x": np.full((1, 8), -1, np.float32)})[0].sum() == 8


def test_without_a_cache_no_files_are_kept(gelu: Path, settings: SessionSettings, tmp_path: Path, x: np.ndarray) -> None:
    session = InferenceSession(gelu, settings=SessionSettings(cache=None, strict=True, verify=False))
    assert session.prepared.temporary is not None and not session.prepared.temporary.exists()
    assert session.run(None, {"x": x})[0].shape == (3, 8)


def test_weights_that_are_inputs_can_be_made_constants(tmp_path: Path) -> None:
    text = """<ir_version: 4, opset_import: ["" : 17]> g (float[n, 8] x, float[8] w) => (float[n, 8] y)
    <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}> { y = Mul (x, w) }"""
    model = save(text, tmp_path / "m.onnx")
    settings = SessionSettings(cache=None, strict=True, constant_initializers=True)
    session = InferenceSession(model, settings=settings)
    assert session.get_overridable_initializers() == []
    assert session.run(None, {"x": np.ones((1, 8), np.float32)})[0].tolist() == [[1, 2, 3, 4, 5, 6, 7, 8]]


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_model_for_our_kernels_runs_with_them(in_memory: bool, tmp_path: Path) -> None:
    """Its products may be rounded: the definition does not round, but the kernel does."""
    if next(compilers(), None) is None:
        pytest.skip("there is no C compiler here")
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[n, 64] x) => (float[n, 64] y)
    { m = MatMul (x, w) y = Add (m, b) }"""
    model, random = onnx.parser.parse_model(text), np.random.default_rng(0)
    for name, shape in (("w", (64, 64)), ("b", (64,))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name))
    onnx.save(model, tmp_path / "m.onnx")
    fused = tmp_path / "fused.onnx"
    fuse(tmp_path / "m.onnx", fused, load_patterns(), Options(target="native", numerics="bf16"))
    feeds = {"x": random.standard_normal((8, 64)).astype(np.float32)}
    (plain,) = onnxruntime.InferenceSession(fused).run(None, feeds)
    given = fused.read_bytes() if in_memory else fused
    (left_alone,) = InferenceSession(given, settings=SessionSettings(enabled=False)).run(None, feeds)
    (found,) = InferenceSession(given, settings=SessionSettings(cache=None, strict=True)).run(None, feeds)
    assert 1e-4 < np.abs(found - plain).max() < 0.5 and (left_alone == plain).all()


@pytest.mark.parametrize("keeps", [False, True])
def test_subnormal_weights_are_kept_on_request(keeps: bool, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 2] x) => (float[n, 1] y)
    <float[2, 1] w = {1e-40, 1}> { y = MatMul (x, w) }"""
    settings = SessionSettings(cache=None, strict=True, keep_subnormals=keeps)
    session = InferenceSession(save(text, tmp_path / "m.onnx"), settings=settings)
    (y,) = session.run(None, {"x": np.array([[1e30, 0]], np.float32)})
    assert (y[0, 0] > 0) == keeps


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A model with its weights in another file, `m.data`."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 8] x) => (float[n, 8] y)
        <float half = {0.5}, float one = {1.0}, float root = {1.4142135}> {
          s = Add (x, w) a = Div (s, root) b = Erf (a) c = Add (b, one) d = Mul (s, c) y = Mul (d, half) }"""
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.linspace(-1, 1, 8, dtype=np.float32), "w"))
    (folder := tmp_path / "weights").mkdir()
    onnx.save(proto, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=8)
    assert (folder / "m.data").stat().st_size == 32
    return folder / "m.onnx"


@pytest.mark.parametrize("location", ["model.onnx", "model.onnx/w.bin", "sub/w.bin"])
def test_the_data_of_a_model_in_memory_may_have_any_name(
    outside: Path, location: str, x: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that of the file to which the model is written, and one file may be spelled in two ways."""
    (folder := tmp_path / "named").mkdir()
    (folder / location).parent.mkdir(exist_ok=True)
    (folder / location).write_bytes((outside.parent / "m.data").read_bytes() * 2)
    proto = onnx.load(outside, load_external_data=False)
    (weight,) = (one for one in proto.graph.initializer if one.external_data)
    other = proto.graph.initializer.add()
    other.CopyFrom(weight)
    other.name = "unread"
    for one, spelling in ((weight, location), (other, f"./{location}")):
        next(entry for entry in one.external_data if entry.key == "location").value = spelling
    monkeypatch.chdir(folder)
    ours = InferenceSession(proto.SerializeToString(), settings=SessionSettings(cache=tmp_path / "cache", strict=True))
    assert "Gelu" in operators(ours)
    expected = onnxruntime.InferenceSession(outside).run(None, {"x": x})[0]
    np.testing.assert_allclose(ours.run(None, {"x": x})[0], expected, rtol=1e-5)


def test_a_file_with_external_data_is_fused_from_any_folder(
    outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "Gelu" in operators(InferenceSession(outside, settings=SessionSettings(cache=tmp_path / "cache", strict=True)))


@pytest.mark.parametrize("linked", [True, False])
def test_a_model_in_memory_may_have_external_data(
    outside: Path, tmp_path: Path, x: np.ndarray, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In files of the current folder, as in onnxruntime. Another device has no hard links to them.

    The folder is that of the start of the session.
    """

    def refused(*_: Any) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    if not linked:
        monkeypatch.setattr(Path, "hardlink_to", refused)
    monkeypatch.chdir(outside.parent)
    content = outside.read_bytes()
    expected = onnxruntime.InferenceSession(outside).run(None, {"x": x})[0]
    ours = StaticSession(content, settings=SessionSettings(cache=tmp_path / "cache", strict=True))
    assert "Gelu" in operators(ours)
    np.testing.assert_allclose(ours.run(None, {"x": x})[0], expected, rtol=1e-5)
    monkeypatch.chdir(tmp_path)
    assert ours.warm({"x": x})
    np.testing.assert_allclose(ours.run(None, {"x": x})[0], expected, rtol=1e-5)


def test_a_link_out_of_the_current_folder_is_not_followed(
    outside: Path, settings: SessionSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outside.parent / "m.data").rename(tmp_path / "m.data")
    (outside.parent / "m.data").symlink_to(tmp_path / "m.data")
    monkeypatch.chdir(outside.parent)
    with pytest.raises(SessionError, match="is a link that leaves"):
        InferenceSession(outside.read_bytes(), settings=replace(settings, strict=True))


@pytest.mark.parametrize("in_memory", [True, False])
def test_data_in_a_folder_of_the_session_options_is_a_reason_not_to_fuse(
    outside: Path, settings: SessionSettings, x: np.ndarray, in_memory: bool
) -> None:
    """onnxruntime would look there for the data of the fused model, too. The original runs."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(outside.parent))
    given = outside.read_bytes() if in_memory else outside
    with pytest.warns(OnnxSubgraphWarning, match="the session options name the folder of its data"):
        ours = InferenceSession(given, options, settings=replace(settings, strict=False))
    expected = onnxruntime.InferenceSession(given, options).run(None, {"x": x})[0]
    np.testing.assert_array_equal(ours.run(None, {"x": x})[0], expected)


@pytest.mark.parametrize(
    "providers",
    [
        ["AzureExecutionProvider", "CPUExecutionProvider"],  # all that the wheel for the CPU lists
        ["AzureExecutionProvider"],
        ["DmlExecutionProvider", ("CPUExecutionProvider", {})],
    ],
)
@pytest.mark.filterwarnings("ignore:Specified provider 'DmlExecutionProvider'")
def test_a_model_is_fused_for_the_providers_that_run_its_nodes(
    providers: list[Any], gelu: Path, settings: SessionSettings, x: np.ndarray
) -> None:
    assert operators(InferenceSession(gelu, providers=providers, settings=settings)) == ["Gelu"]
    static = StaticSession(gelu, providers=providers, settings=settings)
    assert static.warm({"x": x}, 60)


@pytest.mark.parametrize("how", ["session option", "settings"])
def test_a_session_can_be_left_unfused(gelu: Path, how: str, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    if how == "session option":
        options.add_session_config_entry("onnx_subgraph.enable", "0")
    settings = SessionSettings(enabled=how == "session option", cache=tmp_path / "cache", strict=True)
    session = InferenceSession(gelu, options, settings=settings)
    assert session.prepared.path is None and "say" in session.prepared.reason
    assert not (tmp_path / "cache").exists()


FAILURES: dict[str, dict[str, Any]] = {
    "a pattern file that is not there": {"patterns": (Path("/nowhere.yaml"),)},
    "a pattern that is not there": {"skip": ("no-such-pattern",)},
    "no time": {"timeout": 0.001},
    "a cache that can't be written": {"cache": Path(os.devnull) / "cache"},
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_falls_back_with_a_warning_or_raises(failure: str, gelu: Path, x: np.ndarray) -> None:
    changed = {"cache": None, **FAILURES[failure]}
    with pytest.warns(OnnxSubgraphWarning, match="gelu.onnx is used as it is") as caught:
        session = InferenceSession(gelu, settings=SessionSettings(**changed))
    assert caught[0].filename == __file__, "the warning is about the line that made the session"
    assert session.prepared.path is None and session.prepared.reason
    assert session.run(None, {"x": x})[0].shape == (3, 8)
    with pytest.raises(SessionError):
        InferenceSession(gelu, settings=SessionSettings(**changed, strict=True))


def answering(code: int, stdout: str) -> str:
    return f"#!/bin/sh\necho '{stdout}'\necho 'it went wrong' >&2\nexit {code}\n"


@pytest.mark.skipif(os.name != "posix", reason="the Python in the place of ours is a shell script")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (answering(0, '{"unchanged": false}'), "wrote no model"),
        (answering(1, '{"verification": {"verdict": "different"}}'), "not equivalent"),
        (answering(3, ""), "exit code 3: it went wrong"),
        (answering(2, '{"error": "the model is odd"}'), "the model is odd"),
        ("#!/bin/sh\nkill -9 $$\n", "signal 9"),
    ],
)
def test_the_model_runs_whatever_the_commands_do(
    script: str, said: str, gelu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, x: np.ndarray
) -> None:
    python = tmp_path / "python"
    python.write_text(script)
    python.chmod(0o755)
    monkeypatch.setattr(commands, "_python", lambda: str(python))
    with pytest.warns(OnnxSubgraphWarning, match=said):
        session = InferenceSession(gelu, settings=SessionSettings(cache=tmp_path / "cache"))
    assert session.run(None, {"x": x})[0].shape == (3, 8)


def test_a_failed_verification_is_remembered(gelu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(commands, "run", lambda *_: asked.append(1) or {"verification": {"verdict": "different"}})
    for _ in range(2):
        with pytest.warns(OnnxSubgraphWarning, match="not equivalent"):
            InferenceSession(gelu, settings=SessionSettings(cache=tmp_path / "cache"))
    assert asked == [1]


@pytest.mark.skipif(os.name != "posix", reason="the Python in the place of ours is a shell script")
def test_a_failure_is_remembered_for_a_while_and_the_message_says_how_long(
    gelu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, tries = tmp_path / "python", tmp_path / "tries"
    python.write_text(f"#!/bin/sh\necho tried >> {tries}\necho 'the disk is full' >&2\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr(commands, "_python", lambda: str(python))

    def start(retry: float, said: str) -> int:
        with pytest.warns(OnnxSubgraphWarning, match=said):
            InferenceSession(gelu, settings=SessionSettings(cache=tmp_path / "cache", retry=retry))
        return len(tries.read_text().splitlines())

    said = r"the disk is full \(it is tried again in 60 min, or now with ONNX_SUBGRAPH_RETRY=0\)"
    assert [start(3600, said), start(3600, said), start(0, r"the disk is full$")] == [1, 1, 2]
    assert [start(3600, said), start(3600, said)] == [3, 3]
    later = time.time() + 3601
    monkeypatch.setattr(time, "time", lambda: later)
    assert start(3600, said) == 4


@pytest.mark.skipif(os.name != "posix", reason="needs the locks of the system")
def test_a_cache_whose_lock_is_never_free_is_not_waited_for_any_longer(
    gelu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, x: np.ndarray
) -> None:
    """A process that hangs while it prepares a model keeps its lock. It is waited for as long as preparing may take."""
    (locks := tmp_path / "cache" / "locks").mkdir(parents=True)
    seconds = itertools.count()
    monkeypatch.setattr(temporary, "time", SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None, time=time.time))
    with ExitStack() as held:
        for name in (f"{number:02x}" for number in range(256)):
            (locks / name).touch()
            held.enter_context(temporary.alone(locks / name))
        with pytest.warns(OnnxSubgraphWarning, match=r"locks/.. for 300 s; the model is prepared without the cache$") as told:
            session = InferenceSession(gelu, settings=SessionSettings(cache=tmp_path / "cache", timeout=300))
    assert len(told) == 1 and next(seconds) >= 300
    assert session.prepared.fusions == 1 and not (tmp_path / "cache" / "entries").exists()
    assert session.run(None, {"x": x})[0].shape == x.shape


def test_a_prepared_model_that_does_not_load_is_replaced_by_the_original(
    gelu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, x: np.ndarray
) -> None:
    def write_nonsense(command: Any, model: Any, output: Path, timeout: float) -> dict[str, Any]:
        output.write_bytes(b"nonsense")
        return {"unchanged": False}

    monkeypatch.setattr(commands, "run", write_nonsense)
    with pytest.warns(OnnxSubgraphWarning, match="is used as it is"):
        session = InferenceSession(gelu, settings=SessionSettings(cache=tmp_path / "cache"))
    assert session.prepared.path is None and session.run(None, {"x": x})[0].shape == (3, 8)


def test_a_model_that_onnxruntime_refuses_gives_the_same_error(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no model")
    for path, warns in ((tmp_path / "missing.onnx", False), (tmp_path / "text.onnx", True)):
        with pytest.raises(Exception) as theirs:
            onnxruntime.InferenceSession(path)
        settings = SessionSettings(cache=None)
        with pytest.raises(type(theirs.value)) as ours:
            if warns:
                with pytest.warns(OnnxSubgraphWarning):
                    InferenceSession(path, settings=settings)
            else:
                InferenceSession(path, settings=settings)
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("source", [None, 3, bytearray(b"model")], ids=str)
def test_what_is_no_model_gives_onnxruntimes_error(source: Any, settings: SessionSettings) -> None:
    with pytest.raises(TypeError, match="Unable to load from type"):
        InferenceSession(source, settings=settings)


def test_a_path_may_be_in_bytes(gelu: Path, settings: SessionSettings) -> None:
    class Place(os.PathLike[bytes]):
        def __fspath__(self) -> bytes:
            return os.fsencode(gelu)

    onnxruntime.InferenceSession(Place())
    assert operators(InferenceSession(Place(), settings=settings)) == ["Gelu"]


def test_models_in_onnxruntimes_own_format_are_not_fused(gelu: Path, tmp_path: Path, x: np.ndarray) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "gelu.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(gelu, options)
    for source in (tmp_path / "gelu.ort", (tmp_path / "gelu.ort").read_bytes()):
        with pytest.warns(OnnxSubgraphWarning, match="own format"):
            session = InferenceSession(source, settings=SessionSettings(cache=None))
        assert session.run(None, {"x": x})[0].shape == (3, 8)


def test_a_model_that_changes_while_it_is_prepared_is_refused(
    settings: SessionSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made of the old model would be kept under the key of the new one, or the other way round."""
    path = save(PLAIN, tmp_path / "m.onnx")

    def change(command: Any, model: Path, output: Path, patience: Any) -> dict[str, Any]:
        output.write_bytes(model.read_bytes())
        save(PLAIN.replace("Abs", "Neg"), path)
        return {}

    monkeypatch.setattr(commands, "run", change)
    with pytest.raises(SessionError, match="the model was changed while it was prepared"):
        InferenceSession(path, settings=replace(settings, cache=tmp_path / "cache"))
