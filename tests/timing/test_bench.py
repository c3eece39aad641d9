"""bench(): all candidates get the same feeds and valid sizes, differences are found, and memory is that of the model."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnx_subgraph import BenchOptions, bench
from onnx_subgraph.errors import ModelError, UsageError
from onnx_subgraph.timing.memory import peak
from onnx_subgraph.timing.profile import UNRECORDED, _own_time
from onnx_subgraph.timing.runtimes import Setting
from tests.cli.conftest import save

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"
QUICK = BenchOptions(budget=0.0, memory=False)
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def adding(path: Path, what: float) -> Path:
    text = f"g (float[batch, seq] x) => (float[batch, seq] y) <float c = {{{what}}}> {{ y = Add(x, c) }}"
    return save(f"{HEAD} {text}", path)


def test_all_run_on_the_same_feeds_and_a_difference_is_reported(tmp_path: Path) -> None:
    one, same, other = (adding(tmp_path / f"{name}.onnx", what) for name, what in (("a", 1.0), ("b", 1.0), ("c", 2.0)))
    result = bench([one, same, other], QUICK)
    assert [timed.difference for timed in result.timed][:2] == [None, 0.0]
    assert result.timed[2].difference is not None and result.timed[2].difference > 0.1
    assert [timed.ratio is None for timed in result.timed] == [True, False, False]
    assert len({len(timed.seconds) for timed in result.timed}) == 1, "not all had as many turns"


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, {"batch": 1, "seq": 128}),
        ({"sizes": {"seq": 7}}, {"batch": 1, "seq": 7}),
        ({"shapes": {"x": (3, 5)}}, {"batch": 3, "seq": 5}),
    ],
)
def test_sizes_are_typical_or_given(options: dict[str, object], sizes: dict[str, int], tmp_path: Path) -> None:
    assert bench([adding(tmp_path / "a.onnx", 1.0)], BenchOptions(budget=0.0, memory=False, **options)).sizes == sizes  # type: ignore[arg-type]


def test_a_model_with_long_runs_gets_small_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 128 tokens, a text-to-speech model would run for minutes."""
    monkeypatch.setattr(sys.modules["onnx_subgraph.timing.bench"], "LONG", 0.0)
    model = adding(tmp_path / "a.onnx", 1.0)
    assert bench([model], QUICK).sizes == {"batch": 2, "seq": 7}
    assert bench([model], BenchOptions(budget=0.0, memory=False, sizes={"seq": 9})).sizes == {"batch": 2, "seq": 9}
    assert bench([model], BenchOptions(budget=0.0, memory=False, shapes={"x": (1, 128)})).sizes == {"batch": 1, "seq": 128}


def test_if_a_model_refuses_sizes_the_largest_valid_ones_are_used(tmp_path: Path) -> None:
    text = "g (float[seq] x) => (float[2, 16] y) <int64[2] shape = {2, 16}> { y = Reshape(x, shape) }"
    assert bench([save(f"{HEAD} {text}", tmp_path / "a.onnx")], QUICK).sizes == {"seq": 32}


def test_given_inputs_are_used(tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", x=np.ones((2, 3), np.float32))
    options = BenchOptions(budget=0.0, memory=False, inputs=tmp_path / "feeds.npz")
    assert bench([adding(tmp_path / "a.onnx", 1.0)], options).sizes == {"batch": 2, "seq": 3}


def test_a_failing_candidate_is_reported_and_the_others_are_timed(tmp_path: Path) -> None:
    one, broken = adding(tmp_path / "a.onnx", 1.0), tmp_path / "broken.onnx"
    unknown = "g (float[batch, seq] x) => (float[batch, seq] y) { y = com.nowhere.Op(x) }"
    save(unknown.join(['<ir_version: 8, opset_import: ["" : 17, "com.nowhere" : 1]> ', ""]), broken)
    other = save(f"{HEAD} g (float[batch, seq] z) => (float[batch, seq] y) {{ y = Abs(z) }}", tmp_path / "other.onnx")
    result = bench([one, broken, other, one], QUICK)
    assert [bool(timed.problem) for timed in result.timed] == [False, True, True, False]
    assert "does not load it" in result.timed[1].problem and "com.nowhere" in result.timed[1].problem
    assert "does not run it on these feeds" in result.timed[2].problem
    with pytest.raises(ModelError, match="does not load it"):
        bench([broken, one], QUICK)


def test_types_that_numpy_lacks_and_paths_that_are_not_utf_8_are_timed(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"m\xff.onnx")
    model = onnx.parser.parse_model(f"{HEAD} g (bfloat16[batch, 3] x) => (float[batch, 3] y) {{ y = Cast <to = 1> (x) }}")
    path.write_bytes(model.SerializeToString())
    first, second = bench([path, path], BenchOptions(budget=0.0)).timed
    assert first.seconds and second.difference == 0.0 and not second.problem


def test_an_unknown_dimension_is_an_error_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sequence") as raised:
        bench([adding(tmp_path / "a.onnx", 1.0)], BenchOptions(sizes={"sequence": 3}))
    assert raised.value.hint == "it has batch, seq"


def test_memory_is_that_of_the_model_and_not_of_this_process(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((1, 8 << 20), np.float32), "w")
    model = onnx.parser.parse_model(f"{HEAD} g (float[1] x) => (float[1, {8 << 20}] y) {{ y = Add(x, w) }}")
    model.graph.initializer.append(weight)
    onnx.save(model, tmp_path / "large.onnx")
    held = np.ones(64 << 20, np.float32)
    taken = peak(tmp_path / "large.onnx", "onnxruntime", Setting(threads=1), {"x": np.ones(1, np.float32)})
    small = peak(adding(tmp_path / "a.onnx", 1.0), "onnxruntime", Setting(threads=1), {"x": np.ones((1, 1), np.float32)})
    assert held.nbytes and taken is not None and small is not None
    assert 2 * weight.ByteSize() < taken < 10 * weight.ByteSize(), "the weight, its result, and what reading the file takes"
    assert small < weight.ByteSize()
    assert peak(tmp_path / "no.onnx", "onnxruntime", Setting(), {"x": np.ones(1, np.float32)}) is None


def test_a_file_in_the_working_folder_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('not the one that was meant')")
    monkeypatch.chdir(tmp_path)
    taken = peak(adding(tmp_path / "a.onnx", 1.0), "onnxruntime", Setting(threads=1), {"x": np.ones((1, 1), np.float32)})
    assert taken is not None


def test_a_profile_shows_where_the_time_goes() -> None:
    (timed,) = bench([SAMPLES / "bert_torchscript.onnx"], BenchOptions(budget=0.0, memory=False, profile=True)).timed
    assert timed.profile is not None
    for parts in (timed.profile.operators, timed.profile.modules):
        assert sum(part.share for part in parts) == pytest.approx(1)
        assert sum(part.milliseconds for part in parts) == pytest.approx(timed.profile.milliseconds)
    assert "MatMul" in {part.name for part in timed.profile.operators}
    modules = {part.name for part in timed.profile.modules}
    assert any("layer.*.attention" in name for name in modules) and not any(".0." in name for name in modules)
    assert timed.profile.patterns == () and all(part.name != "MatMul" for part in timed.profile.uncovered)


def test_the_time_of_a_body_does_not_count_for_the_node_with_the_body() -> None:
    """Also for nested bodies, and beside a longer node in another thread."""
    events = [
        {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "tid": tid, "args": {"op_name": operator}}
        for name, operator, ts, dur, tid in (
            ("outer", "Loop", 0, 100, 1),
            ("inner", "If", 10, 50, 1),
            ("add", "Add", 20, 30, 1),
            ("mul", "Mul", 70, 20, 1),
            ("after", "Add", 100, 7, 1),
            ("beside", "Conv", 5, 400, 2),
        )
    ]
    assert {name: taken for name, _, taken in _own_time(events)} == {
        "outer": 30,
        "inner": 20,
        "add": 30,
        "mul": 20,
        "after": 7,
        "beside": 400,
    }


def test_a_fused_node_counts_for_its_pattern_and_its_module(tmp_path: Path) -> None:
    from onnx_subgraph import Options, fuse, load_patterns

    original, fused = SAMPLES / "bert_torchscript.onnx", tmp_path / "fused.onnx"
    fuse(original, fused, load_patterns(), Options(verify=False))
    profile = bench([original, fused], BenchOptions(budget=0.0, memory=False, profile=True)).timed[1].profile
    assert profile is not None
    assert "multi-head-attention" in {part.name for part in profile.patterns}
    named = {part.name: part.share for part in profile.modules}
    assert any(name.endswith("attention.self") for name in named)
    assert named.get(UNRECORDED, 0.0) < 0.5
