"""No command writes over a file that it reads, or writes a file twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.cli.conftest import GELU, Run, save

WRONG = [
    ("fuse gelu.onnx --tune --tuned gelu.onnx", "--tuned: gelu.onnx is also the file of a model"),
    ("fuse gelu.onnx -o out.onnx --tune --tuned out.onnx", "--tuned: out.onnx is also the file of --output"),
    ("fuse gelu.onnx --tuned own.yaml -o own.yaml", "--output: own.yaml is also the file of --tuned"),
    ("fuse gelu.onnx --tune --tuned none/tuned.json", "--tuned: there is no folder none"),
    ("fuse gelu.onnx --expect expect.yaml --junit expect.yaml", "--junit: expect.yaml is also the file of --expect"),
    ("fuse gelu.onnx --inputs feeds.npz -o feeds.npz", "--output: feeds.npz is also the file of --inputs"),
    ("fuse gelu.onnx --inputs feeds.npz --summary feeds.npz", "--summary: feeds.npz is also the file of --inputs"),
    ("fuse gelu.onnx --patterns own.yaml -o own.yaml", "--output: own.yaml is also the file of --patterns"),
    ("fuse gelu.onnx --write-expect all --junit ./all", "--junit: all is also the file of --write-expect"),
    ("fuse gelu.onnx --report page --junit page", "--junit: page is also the file of --report"),
    ("fuse data.onnx --junit data.bin", "--junit: data.bin is also the file of a model"),
    ("fuse . --output-dir out --write-expect data.bin", "--write-expect: data.bin is also the file of a model"),
    ("fuse HERE/data.onnx --junit data.bin", "--junit: data.bin is also the file of a model"),
    ("explain data.onnx --report data.bin", "--report: data.bin is also the file of a model"),
    ("mine data.onnx --report data.bin", "--report: data.bin is also the file of a model"),
    ("specialize gelu.onnx --shape x=2x8 --inputs feeds.npz -o feeds.npz", "--output: feeds.npz is also the file of --inputs"),
    ("partition data.onnx --backend onnxruntime --write-expect data.bin", "--write-expect: data.bin is also the file of a model"),
    ("kernels --compile ops.c -o ops.c", "--output: ops.c is also the file of --compile"),
    ("fuse gelu.onnx -o ''", "the path is empty; is a variable not set?"),
    ("fuse gelu.onnx --report ''", "the path is empty; is a variable not set?"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with models, one of them with external data, and files of options."""
    monkeypatch.chdir(tmp_path)
    model = onnx.load(save(GELU, tmp_path / "gelu.onnx"))
    for weight in model.graph.initializer:
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight), weight.name))
    onnx.save(model, tmp_path / "data.onnx", save_as_external_data=True, location="data.bin", size_threshold=0)
    np.savez(tmp_path / "feeds.npz", x=np.ones((2, 8), np.float32))
    (tmp_path / "expect.yaml").write_text("models: {}\n")
    (tmp_path / "own.yaml").write_text("id: own\nsummary: An own one\nmatch: y = Erf(Erf(x))\nexample: {x: 'float32[2]'}\n")
    (tmp_path / "ops.c").write_text("int one(void) { return 1; }\n")
    return tmp_path


@pytest.mark.parametrize(("line", "says"), WRONG, ids=[line for line, _ in WRONG])
def test_a_file_that_is_read_or_written_already_is_refused(run: Run, folder: Path, line: str, says: str) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = run(*(word.strip("'").replace("HERE", str(folder)) for word in line.split()))
    assert done.code == 2
    assert says in done.err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_may_hold_models_and_pages(run: Run, folder: Path) -> None:
    assert run("fuse", "gelu.onnx", "data.onnx", "--output-dir", "out", "--report", "out").code == 0
    assert {path.name for path in (folder / "out").glob("gelu*")} == {"gelu.onnx", "gelu.html"}
