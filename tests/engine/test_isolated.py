"""An isolated backend may end its process or hang in it. The session continues and reports which region failed and why."""

from __future__ import annotations

import json
import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph import InferenceSession, SessionSettings
from onnx_subgraph.backends.backend import Declined
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.cli import main
from onnx_subgraph.engine import isolated
from onnx_subgraph.engine.engine import Engine
from onnx_subgraph.engine.isolated import Isolated
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.engine.settings import EngineSettings
from onnx_subgraph.errors import EngineError, OnnxSubgraphWarning, UsageError
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from onnx_subgraph.partitioning.worth import RegionLimits
from tests.children import child_of, succeeds
from tests.engine.backends import fails, feed, region
from tests.partitioning.models import SAMPLES

BACKEND = """
import gc, os, pathlib, signal, subprocess, sys, time, weakref
from onnx_subgraph.backends.backend import Declined
from onnx_subgraph.backends.reference import Reference

class Mortal(Reference):
    \"\"\"At batches from 13 on it ends its process, hangs, raises, starts a process, forks. It always prints.\"\"\"

    name = "mortal"
    version = "3"
    specializes = True
    compiled = []

    def compile(self, subgraph, signature):
        print("compiling", file=sys.stdout)
        if {signature: signature[0][1][0]}[signature] == 12:
            sys.exit(7)
        made = super().compile(subgraph, signature)
        self.compiled.append(weakref.ref(made))
        return made

    def run(self, compiled, inputs):
        match len(inputs[0]):
            case 13:
                os.kill(os.getpid(), signal.SIGSEGV)
            case 14:
                time.sleep(60)
            case 15:
                raise ValueError("fifteen is too many")
            case 16:
                child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                pathlib.Path(os.environ["CHILD"]).write_text(str(child.pid))
            case 17:
                os.fork()
                time.sleep(60)
                os._exit(0)
            case 18:
                raise Declined("has eighteen rows")
            case 19:
                return [None]
            case 20:
                gc.collect()
                raise Declined(f"has {sum(made() is not None for made in self.compiled)} compiled regions")
            case 21:
                raise Declined(" ".join(os.environ.get(f"ONNX_SUBGRAPH_{name}", "unset") for name in ("SESSION", "BACKEND")))
        return super().run(compiled, inputs)

class Abrupt(Reference):
    # It ends its process where there is an Exp, when it runs it, and where there is a Log, when it compiles it.

    name = "abrupt"
    specializes = True

    def supports(self, node):
        return node.op_type != "Softmax"

    def compile(self, subgraph, signature):
        operators = {node.op_type for node in subgraph.model.graph}
        if "Log" in operators:
            os.abort()
        return "Exp" in operators, super().compile(subgraph, signature)

    def run(self, compiled, inputs):
        dies, evaluator = compiled
        if dies:
            os.abort()
        return super().run(evaluator, inputs)

class Fluid(Reference):
    name = "fluid"
    version = "7"
    specializes = False
    dynamic = True

class Stillborn(Reference):
    def __init__(self):
        os._exit(3)
"""


@pytest.fixture(autouse=True)
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that registers two backends, for this process and those that it starts."""
    (tmp_path / "mortal_backend.py").write_text(BACKEND)
    information = tmp_path / "mortal-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mortal\nVersion: 1\n")
    points = "".join(f"{name.lower()} = mortal_backend:{name}\n" for name in ("Mortal", "Abrupt", "Fluid", "Stillborn"))
    (information / "entry_points.txt").write_text(f"[onnx_subgraph.backends]\n{points}")
    monkeypatch.syspath_prepend(str(tmp_path))


def engine(settings: EngineSettings | None = None, deadline: float | None = None) -> Engine:
    return Engine(region(), Isolated("mortal", deadline), OnnxRuntime(), settings or EngineSettings())


def right(outputs: Any, batch: int) -> bool:
    y = np.maximum(feed(batch)[0] * np.array([1, 2, 3, 4], np.float32), 0)
    return np.array_equal(outputs[0], y) and np.allclose(outputs[1], y.sum(-1))


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (12, "did not compile it: RuntimeError: its process ended with exit code 7"),
        (13, "did not run it: RuntimeError: its process ended by SIGSEGV"),
        (15, "did not run it: RuntimeError: ValueError: fifteen is too many"),
        (19, "did not run it: RuntimeError: TypeError: only arrays of numbers go .* of type NoneType"),
    ],
    ids=["exits in compile", "dies in run", "raises", "gives no array"],
)
def test_a_backend_that_dies_costs_one_signature_and_not_the_process(batch: int, why: str) -> None:
    made = engine()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert right(made.run(feed(2)), 2)
    with pytest.warns(OnnxSubgraphWarning, match=rf"region /layer.3/Engine, with x float32\[{batch}, 4\]: backend mortal {why}"):
        assert right(made.run(feed(batch)), batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert right(made.run(feed(batch)), batch)
        assert right(made.run(feed(2)), 2) and right(made.run(feed(3)), 3)  # a signature compiled before, and a new one
    assert made.fallbacks == 2
    with pytest.raises(EngineError, match="RuntimeError"):
        engine(EngineSettings(strict=True)).run(feed(batch))


def test_a_declined_run_is_none_of_the_failures() -> None:
    made = engine()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert right(made.run(feed(18)), 18)
    assert (made.fallbacks, made.failure) == (1, "")


@pytest.mark.parametrize(("name", "traits"), [("mortal", ("3", True, False)), ("fluid", ("7", False, True))])
def test_an_isolated_backend_has_the_traits_of_the_backend(name: str, traits: tuple[str, bool, bool]) -> None:
    made = Isolated(name)
    assert (made.version, made.specializes, made.dynamic) == traits


def test_a_region_that_is_dropped_is_dropped_in_the_other_process() -> None:
    backend = Isolated("mortal")
    for _ in range(4):
        compiled = backend.compile(region(), (("float32", (20, 4)),))
    with pytest.raises(Declined, match="has 1 compiled regions"):
        backend.run(compiled, feed(20))


def test_regions_of_a_process_that_ended_are_compiled_again() -> None:
    """Each of them, when it runs: one that does so starts a process, which knows no other."""
    backend = Isolated("mortal")
    compiled = [backend.compile(region(), (("float32", (batch, 4)),)) for batch in (2, 3)]
    isolated._close(backend._process)
    assert all(right(backend.run(one, feed(batch)), batch) for one, batch in zip(compiled, (2, 3), strict=True))


def test_sessions_in_the_other_process_are_onnxruntimes_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that replace the sessions of this program are not for it: its sessions would start processes, too."""
    monkeypatch.setenv("ONNX_SUBGRAPH_SESSION", "1")
    monkeypatch.setenv("ONNX_SUBGRAPH_BACKEND", "mortal")
    backend = Isolated("mortal")
    with pytest.raises(Declined, match="0 unset"):
        backend.run(backend.compile(region(), (("float32", (21, 4)),)), feed(21))


def test_a_run_that_hangs_is_ended_with_its_process() -> None:
    backend = Isolated("mortal", deadline=0.5)
    compiled = backend.compile(region(), (("float32", (14, 4)),))
    with pytest.raises(TimeoutError, match=r"it took more than 0.5 s and was ended"):
        backend.run(compiled, feed(14))
    assert right(backend.run(compiled, feed(2)), 2)  # in a new process


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_what_a_backend_starts_ends_with_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would hold our standard error open, and `program | cat` would wait for it."""
    monkeypatch.setenv("CHILD", str(tmp_path / "child"))
    backend = Isolated("mortal")
    backend.run(backend.compile(region(), (("float32", (16, 4)),)), feed(16))
    child = int((tmp_path / "child").read_text())
    os.kill(child, 0)  # it runs
    isolated._close(backend._process)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{child}/stat").read_text().split()[2] == "Z":
                return  # ended; nobody has asked for its exit code yet
            os.kill(child, 0)
        except OSError:
            return
    raise AssertionError("it still runs")


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_a_run_that_hangs_is_ended_with_what_it_forked() -> None:
    """A forked process holds the pipe of the answers open. If it went on, nobody would see that the first one has ended."""
    backend = Isolated("mortal", deadline=0.5)
    compiled = backend.compile(region(), (("float32", (17, 4)),))
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match=r"it took more than 0.5 s and was ended"):
        backend.run(compiled, feed(17))
    assert time.monotonic() - begun < 30


def test_an_interrupted_run_leaves_no_answer_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Isolated("mortal")
    compiled = backend.compile(region(), (("float32", (2, 4)),))
    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.setattr(isolated, "receive", fails(KeyboardInterrupt()))
        backend.run(compiled, feed(3))
    assert right(backend.run(compiled, feed(2)), 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_has_a_process_of_its_own() -> None:
    """It is forked while a thread asks the parent's, which it must not end when it ends itself."""
    backend = Isolated("mortal")
    compiled = backend.compile(region(), (("float32", (2, 4)),))

    def work() -> bool:
        done = right(backend.run(compiled, feed(2)), 2) and right(backend.run(compiled, feed(3)), 3)
        return done and not ending.alive  # it would be called at the end of the forked process

    theirs, ending = backend._process, backend._closing
    with ThreadPoolExecutor(1) as pool, backend._lock:
        pool.submit(backend.run, compiled, feed(2))  # it waits
        child = child_of(work)
    assert succeeds(child, 60)
    assert right(backend.run(compiled, feed(4)), 4)
    assert backend._process is theirs and theirs is not None and theirs.poll() is None


def test_threads_share_the_process() -> None:
    made = engine()
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda n: right(made.run(feed(1 + n % 4)), 1 + n % 4), range(80)))
    assert made.fallbacks == 0 and made.usage.size == 4


def test_a_session_of_a_real_model(tmp_path: Path) -> None:
    source = SAMPLES / "gpt2_dynamo.onnx"
    options = PartitionOptions("mortal", RegionLimits(deny=("Softmax",)), verify=False)
    assert len(partition(source, tmp_path / "out.onnx", options).engines) > 1
    session = EngineSession(tmp_path / "out.onnx", settings=EngineSettings(isolated=True, strict=True))
    plain = EngineSession(tmp_path / "out.onnx")
    feeds = {a.name: np.ones((2, 7), np.int64) for a in session.get_inputs()}
    for mine, theirs in zip(session.run(None, feeds), plain.run(None, feeds), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nobody", "there is no backend nobody"),
        ("stillborn", "does not start in a process of its own: its process ended with exit code 3"),
    ],
)
def test_an_isolated_backend_that_does_not_start_is_a_usage_error(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Isolated(name)


THREE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 8] x) => (float[n, 8] y)
{
  a = Abs (x)  b = Sqrt (a)  c = Neg (b)  s = Softmax (c)
  d = Abs (s)  e = Exp (d)   f = Neg (e)  t = Softmax (f)
  h = Abs (t)  i = Log (h)   y = Neg (i)
}
"""


@pytest.mark.parametrize("measured", [False, True], ids=["verified", "measured"])
def test_partition_leaves_regions_in_which_the_backend_ends_its_process(
    measured: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command continues and reports the region and the reason. The other regions become engines."""
    source = tmp_path / "three.onnx"
    source.write_bytes(onnx.parser.parse_model(THREE).SerializeToString())
    measure = ["--measure"] if measured else ["--gain", "inf"]
    assert main(["partition", str(source), "--backend", "abrupt", *measure, "--shape", "x=3x8", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    died = [region for region in told["refused"] if "its process ended by SIGABRT" in region["reason"]]
    assert len(died) == 2 and told["verification"]["verdict"] == "equivalent"
    assert any("did not run it" in region["reason"] for region in died)
    assert any("did not compile it" in region["reason"] for region in died)
    kept = [sum(engine["operators"].values()) for engine in told["engines"]]
    assert kept == [3] or (measured and not kept)  # the evaluator may be slower than onnxruntime
    assert (tmp_path / "three.partitioned.onnx").exists()


def test_partition_says_that_the_backend_does_not_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "three.onnx"
    source.write_bytes(onnx.parser.parse_model(THREE).SerializeToString())
    assert main(["partition", str(source), "--backend", "stillborn", "--isolated", "--json"]) == 2
    assert "its process ended with exit code 3" in "".join(capfd.readouterr())


def test_a_session_by_the_environment_survives_its_backend(tmp_path: Path) -> None:
    source = tmp_path / "chain.onnx"
    source.write_bytes(onnx.parser.parse_model(THREE.replace("Softmax", "Tanh").replace("Log", "Tanh")).SerializeToString())
    variables = {"BACKEND": "mortal", "ISOLATED": "1", "STRICT": "1", "CACHE": str(tmp_path / "cache")}
    settings = SessionSettings.of_environment({f"ONNX_SUBGRAPH_{name}": value for name, value in variables.items()})
    session, plain = InferenceSession(source, settings=settings), onnxruntime.InferenceSession(source)
    assert session.prepared.engines == 1
    for batch in (2, 13, 3):
        given = {"x": np.full((batch, 8), 0.5, np.float32)}
        with pytest.warns(OnnxSubgraphWarning, match="SIGSEGV") if batch == 13 else nullcontext():
            for _ in range(2):  # by the general model, then by its engine
                np.testing.assert_allclose(session.run(None, given)[0], plain.run(None, given)[0], rtol=1e-5)
                assert session.wait(60)
    assert [story.state for story in session.schedules()].count("refused") >= 1
