"""Libraries of custom operators that the user names: models with these operators are fused and verified like any other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph import EngineSession, InferenceSession, SessionSettings, UsageError, custom_ops, verify
from onnx_subgraph.verification.libraries import with_libraries
from tests.own_operators.conftest import CONV_BN, HOLDS_ONE, Run, save

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype(np.float32)


@pytest.fixture
def holding(tmp_path: Path) -> Path:
    """A model with an operator of the library."""
    return save(HOLDS_ONE, tmp_path / "holding.onnx")


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def outputs(path: Path, library: Path) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    return np.asarray(onnxruntime.InferenceSession(path, options).run(None, {"x": X})[0])


def test_a_model_with_such_an_operator_is_fused_around_it(run: Run, holding: Path, library: Path, tmp_path: Path) -> None:
    """The GELU reads the operator's output, whose type and shape are found by running."""
    output = tmp_path / "out.onnx"
    told = run("fuse", holding, "-o", output, "--sites", "--custom-op-library", library, "--json")
    assert (told.code, told.json["verification"]["verdict"]) == (0, "equivalent"), told.err
    assert operators(output) == ["ConvBN", "Gelu"]
    assert [site["holds"] for site in told.json["sites"]] == [True]
    assert told.json["libraries"] == [str(library)]
    np.testing.assert_allclose(outputs(output, library), outputs(holding, library), rtol=1e-5, atol=1e-6)


def test_shapes_found_by_running_are_not_written(run: Run, holding: Path, library: Path, tmp_path: Path) -> None:
    run("fuse", holding, "-o", tmp_path / "out.onnx", "--custom-op-library", library)
    (declared,) = onnx.load(tmp_path / "out.onnx").graph.output
    assert not declared.type.tensor_type.HasField("shape")


def test_with_sites_only_the_model_is_not_run_to_find_shapes(
    run: Run, holding: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnx_subgraph.pipeline.find_shapes", lambda *_: pytest.fail("the model was run"))
    result = run("fuse", holding, "--custom-op-library", library, "--sites-only", "--dry-run", "--json")
    assert result.code == 0 and result.json["fusions"] == []


def test_without_its_library_the_model_can_not_be_verified(run: Run, holding: Path) -> None:
    told = run("verify", holding, holding, "--json")
    assert (told.code, told.json["verdict"]) == (2, "not-run")
    assert "com.mylib:ConvBN" in told.json["reason"]


def test_several_models_at_a_time_have_the_library_too(run: Run, holding: Path, library: Path, tmp_path: Path) -> None:
    other = save(HOLDS_ONE, tmp_path / "other.onnx")
    told = run("fuse", holding, other, "--output-dir", tmp_path / "out", "-j", 2, "--custom-op-library", library, "--json")
    assert [one["verification"]["verdict"] for one in told.json["models"]] == ["equivalent"] * 2


def test_every_command_that_runs_models_takes_it(run: Run, holding: Path, library: Path, tmp_path: Path) -> None:
    named = ("--custom-op-library", library)
    assert run("verify", holding, holding, *named).code == 0
    assert run("bench", holding, holding, *named, "--budget", "0.1").code == 0
    assert run("bench", holding, *named, "--budget", "0.1").code == 0
    special = tmp_path / "special.onnx"
    assert run("specialize", holding, "--shape", "x=3x1x8x8", "-o", special, *named).code == 0
    assert operators(special) == ["ConvBN", "Gelu"]
    explained = run("explain", holding, "gelu", *named)
    assert explained.code == 0 and "Matched" in explained.out


@pytest.fixture
def declaring(tmp_path: Path) -> Path:
    """The same, with a declared output type."""
    return save(HOLDS_ONE.replace("=> (y)", "=> (float[batch,4,4,4] y)"), tmp_path / "declaring.onnx")


@pytest.mark.parametrize("isolated", ["--isolated", "--no-isolated"])
def test_engines_run_it(run: Run, declaring: Path, library: Path, tmp_path: Path, isolated: str) -> None:
    """A session of the engine compiles the region with the operator, in this process or in another."""
    output = tmp_path / "parts.onnx"
    options = ("--backend", "onnxruntime", "--min-nodes", 1, "--gain", "inf", isolated)
    told = run("partition", declaring, "-o", output, *options, "--custom-op-library", library)
    assert told.code == 0, told.err
    assert "1 engine" in told.out and "com.mylib.ConvBN" in told.out
    session = EngineSession(output, libraries=[library])
    np.testing.assert_allclose(session.run(None, {"x": X})[0], outputs(declaring, library), rtol=1e-5, atol=1e-6)


def test_onnxruntime_runs_an_operator_that_the_backend_does_not_know(
    run: Run, declaring: Path, library: Path, tmp_path: Path
) -> None:
    """It runs between the engines. The types of values that cross are found by running, and written."""
    output = tmp_path / "parts.onnx"
    options = ("--backend", "reference", "--gain", "inf", "--custom-op-library", library)
    told = run("partition", declaring, "-o", output, *options, "--json")
    assert (told.code, told.json["verification"]["verdict"]) == (0, "equivalent"), told.err
    assert [engine["operators"] for engine in told.json["engines"]] == [{"Mul": 2, "Div": 1, "Erf": 1, "Add": 1}]
    session = EngineSession(output, libraries=[library])
    np.testing.assert_allclose(session.run(None, {"x": X})[0], outputs(declaring, library), rtol=1e-5, atol=1e-6)


def test_a_file_that_is_not_a_library_is_named(run: Run, holding: Path, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no library", encoding="utf-8")
    told = run("fuse", holding, "-o", tmp_path / "out.onnx", "--custom-op-library", text)
    assert told.code == 2 and not (tmp_path / "out.onnx").exists()
    assert f"the library of custom operators {text} can't be loaded" in told.err and "RegisterCustomOps" in told.err
    with pytest.raises(UsageError, match=r"no\.so can't be loaded: there is no such file"):
        verify(holding, holding, custom_op_libraries=["no.so"])


def test_libraries_are_registered_only_within_their_block(library: Path) -> None:
    """Law: in a block, the libraries of all enclosing blocks, each once; outside, none."""
    assert custom_ops.libraries() == ()
    with with_libraries([library]), with_libraries([library]):
        assert custom_ops.libraries() == (library,)
    assert custom_ops.libraries() == ()


@pytest.mark.usefixtures("forked_commands")
def test_a_session_uses_the_libraries_of_its_settings(holding: Path, library: Path, tmp_path: Path) -> None:
    settings = SessionSettings(libraries=library, cache=tmp_path / "cache", strict=True)
    for again in (False, True):
        session = InferenceSession(holding, settings=settings)
        assert (session.prepared.fusions, session.prepared.from_cache) == (1, again)
        np.testing.assert_allclose(session.run(None, {"x": X})[0], outputs(holding, library), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("forked_commands")
def test_a_changed_library_of_the_same_name_is_prepared_again(holding: Path, library: Path, wrong: Path, tmp_path: Path) -> None:
    named = tmp_path / "mine.so"
    settings = SessionSettings(libraries=named, cache=tmp_path / "cache", strict=True)
    for content in (library, wrong):
        (tmp_path / "new.so").write_bytes(content.read_bytes())
        (tmp_path / "new.so").replace(named)
        assert not InferenceSession(holding, settings=settings).prepared.from_cache


APP = """
import sys
import numpy as np
import onnxruntime

options = onnxruntime.SessionOptions()
options.register_custom_ops_library(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
print(session.prepared.fusions, session.run(None, {"x": np.ones((1, 1, 8, 8), np.float32)})[0].sum())
"""


def test_under_the_hook_the_libraries_of_the_program_are_used(holding: Path, library: Path, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP, encoding="utf-8")
    environment = {"ONNX_SUBGRAPH_CACHE": str(tmp_path / "cache"), "ONNX_SUBGRAPH_STRICT": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "onnx_subgraph", "run", app, holding, library]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "1"


def test_the_plain_model_needs_no_library(run: Run, library: Path, tmp_path: Path) -> None:
    """A library whose operators the model does not use changes nothing."""
    plain = save(CONV_BN, tmp_path / "plain.onnx")
    for name, options in (("with", ("--custom-op-library", library)), ("without", ())):
        assert run("fuse", plain, "-o", tmp_path / f"{name}.onnx", *options).code == 0
    assert (tmp_path / "with.onnx").read_bytes() == (tmp_path / "without.onnx").read_bytes()
