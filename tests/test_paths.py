"""Public functions accept a `str` wherever they accept a `pathlib.Path`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_subgraph
from onnx_subgraph import EngineSession, Options, PartitionOptions, SessionSettings, UsageError
from onnx_subgraph.paths import beside, several
from tests.cli.conftest import GELU, ROOT


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model in the current folder, by its name."""
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(GELU), "a.onnx")
    np.savez("feeds.npz", x=np.ones((2, 8), np.float32))
    return "a.onnx"


def test_fuse_explain_and_verify_take_strings(model: str) -> None:
    library = onnx_subgraph.load_patterns()
    result = onnx_subgraph.fuse(model, "b.onnx", library, Options(inputs="feeds.npz"))
    assert (result.model, result.output) == (Path("a.onnx"), Path("b.onnx"))
    assert len(result.rewrites) == 1
    assert onnx_subgraph.explain(model, library, Options()).model == Path("a.onnx")
    assert onnx_subgraph.verify(model, "b.onnx", inputs="feeds.npz").verdict == "equivalent"


def test_partition_inline_and_sessions_take_strings(model: str) -> None:
    result = onnx_subgraph.partition(model, "p.onnx", PartitionOptions("onnxruntime", inputs="feeds.npz"))
    assert result.output == Path("p.onnx")
    assert onnx_subgraph.inline("p.onnx", "i.onnx").output == Path("i.onnx")
    (output,) = EngineSession("i.onnx").run(None, {"x": np.ones((2, 8), np.float32)})
    assert output.shape == (2, 8)


def test_settings_take_strings(model: str) -> None:
    pattern = str(ROOT / "patterns" / "activation" / "gelu.yaml")
    settings = SessionSettings(cache="cache", patterns=pattern, strict=True)
    session = onnx_subgraph.InferenceSession(model, providers=["CPUExecutionProvider"], settings=settings)
    assert session.prepared.fusions == 1
    assert Path("cache").is_dir()


def test_a_string_of_patterns_is_one_path() -> None:
    pattern = str(ROOT / "patterns" / "activation" / "gelu.yaml")
    assert [p.id for p in onnx_subgraph.load_patterns(pattern, built_in=False).patterns] == ["gelu"]
    assert several("ab") == (Path("ab"),)
    assert several(["a", Path("b")]) == (Path("a"), Path("b"))


@pytest.mark.parametrize("path", [".", "/"])
def test_a_folder_is_refused_as_a_model(path: str) -> None:
    with pytest.raises(UsageError, match="is a folder, not a model file"):
        beside(Path(path), "fused")
