"""Models that are links: what onnxruntime loads through a link is worked on, and what is written loads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from tests.cli.conftest import GELU, Run, save

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 8] x) => (float[n, 8] y) <float r = {1.41421356}, float one = {1.0}, float half = {0.5}> {
    h = MatMul(x, w)
    a = Div(h, r)
    e = Erf(a)
    f = Add(e, one)
    m = Mul(h, f)
    y = Mul(m, half)
}
"""


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """A model with external data in a download cache: links with their names lead to files named by their checksums."""
    model = parser.parse_model(MODEL)
    model.graph.initializer.append(numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1f0c"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    onnx.save(model, blobs / "m.onnx", save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    for name, checksum in (("m.onnx", "e3b0c4"), ("m.onnx.data", "a54d88")):
        (blobs / name).rename(blobs / checksum)
        (snapshot / name).symlink_to(Path("../../blobs") / checksum)
    return snapshot / "m.onnx"


def test_a_model_of_a_download_cache_is_fused(run: Run, cached: Path, tmp_path: Path) -> None:
    for output in (cached.with_name("beside.onnx"), tmp_path / "elsewhere.onnx", tmp_path / "blobs" / "there.onnx"):
        done = run("fuse", cached, "-o", output, "--compare-ort")
        assert (done.code, done.err) == (0, "")
        assert "equivalent on CPUExecutionProvider" in done.out
        onnxruntime.InferenceSession(output)


@pytest.mark.parametrize("command", [["explain"], ["specialize", "-o", "OUT", "--shape", "x=2x8"], ["bench", "--budget", "0.1"]])
def test_other_commands_read_it_too(run: Run, cached: Path, tmp_path: Path, command: list[str]) -> None:
    name, *options = [str(tmp_path / "out.onnx") if word == "OUT" else word for word in command]
    done = run(name, cached, *options)
    assert done.code == 0, done.err
    assert "gelu" in done.out or name == "bench"


def test_it_is_compared_with_another_model_both_ways(run: Run, cached: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    assert run("fuse", cached, "-o", output).code == 0
    assert run("verify", cached, output).code == 0
    assert run("verify", output, cached).code == 0


def test_a_copy_of_it_has_its_data(run: Run, cached: Path, tmp_path: Path) -> None:
    """Where nothing fuses. A copy beside the links would not load, so the message asks for another folder."""
    for output in (tmp_path / "elsewhere.onnx", tmp_path / "blobs" / "there.onnx"):
        assert run("fuse", cached, "-o", output, "--only", "glu").code == 0
        onnxruntime.InferenceSession(output)
    before = sorted(cached.parent.iterdir())
    done = run("fuse", cached, "--only", "glu")
    assert done.code == 2
    assert "choose another folder for the output" in done.err
    assert sorted(cached.parent.iterdir()) == before


def test_a_link_without_its_data_says_what_to_name(run: Run, cached: Path) -> None:
    link = cached.parent.parent / "link.onnx"
    link.symlink_to(cached)
    cached.unlink()
    (cached.parent.parent.parent / "blobs" / "e3b0c4").rename(cached)
    cached.with_name("m.onnx.data").unlink()
    (cached.parent.parent.parent / "blobs" / "a54d88").rename(cached.with_name("m.onnx.data"))
    done = run("fuse", link)
    assert done.code == 2
    assert f"name the file itself, {cached.resolve()}" in done.err
    assert run("fuse", cached).code == 0


def test_a_link_into_the_output_folder_is_a_model(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a search leaves out what is in that folder."""
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    save(GELU, Path("out/m.onnx"))
    Path("link.onnx").symlink_to("out/m.onnx")
    assert run("fuse", "link.onnx", "--output-dir", "out", "--no-verify").code == 0
    assert {path.name for path in Path("out").iterdir()} == {"m.onnx", "link.onnx"}


def test_a_model_is_not_left_out_where_its_output_is_a_link_to_it(run: Run, tmp_path: Path) -> None:
    model = save(GELU, tmp_path / "m.onnx")
    (tmp_path / "m.fused.onnx").symlink_to(model)
    done = run("fuse", model)
    assert done.code == 2
    assert done.err.startswith(f"Error: {tmp_path / 'm.fused.onnx'} is read, so it can't be written\n")


@pytest.mark.parametrize("only", ["gelu", "glu"])
def test_a_link_at_the_output_is_replaced(run: Run, cached: Path, tmp_path: Path, only: str) -> None:
    """The data of the output are beside it, not beside the file that the link led to."""
    source = tmp_path / "blobs" / "m.onnx"
    (tmp_path / "blobs" / "e3b0c4").rename(source)
    (tmp_path / "blobs" / "a54d88").rename(source.with_name("m.onnx.data"))
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "out.onnx"
    output.symlink_to(tmp_path / "blobs" / "old.onnx")
    assert run("fuse", source, "-o", output, "--only", only).code == 0
    onnxruntime.InferenceSession(output)
