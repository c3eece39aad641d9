"""A dimension may have any name: it affects nothing else, and the written model keeps it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from onnx_subgraph import EngineSession, Options, PartitionOptions, explain, fuse, load_patterns, partition
from onnx_subgraph.errors import UsageError
from onnx_subgraph.files.models import load
from onnx_subgraph.inputs.feeds import draw_feeds
from onnx_subgraph.inputs.sizes import assignments, resolve, symbols
from onnx_subgraph.model.dimension_names import inner, is_expression, is_placeholder, outer
from onnx_subgraph.model.shapes import infer_shapes, values
from onnx_subgraph.model.specialize import specialize
from onnx_subgraph.partitioning.worth import RegionLimits

LIBRARY = load_patterns()
ODD = (
    *(
        "batch size",
        "batch-size",
        "N:1",
        "9**9**9**9",
        "2x",
        "<dynamic>",
        "[batch]",
        "Dim #0",
        "input:0_0",
        "ceil(x)",
        "n=2",
        "$n",
        "a**b",
        "3",
    ),
    *(
        "if",
        "lambda",
        "E",
        "I",
        "N",
        "S",
        "pi",
        "oo",
        "Max",
        "floor",
        "zoo",
        "nan",
        "_d0",
        "_d1",
        "anonymous_1",
        "a.b",
        "(n)",
        "n/0",
    ),
    *(
        "größe",
        "大小",
        "👍",
        " n",
        "n ",
        "a\nb",
        "a\tb",
        "x" * 3000,
        "f(" * 300,
        "a+b",
        "a" + "+a" * 2000,
        "dim_0123456789abcdef",
    ),
)
PLACEHOLDERS = ("?", "*", "", "-1", "None", "<unknown>", "_", "???")
TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, seq, 8] x, float[batch, past, 8] cache, float[other, seq, 8] mask)
  => (float[batch, total, 8] y, float[batch, seq, 8] z)
<float two = {2.0}, float half = {0.5}, float one = {1.0}, float root = {1.4142135}, float epsilon = {0.00001},
 int64[3] whole = {0, -1, 8}>
{
  joined = Concat<axis = 1>(cache, x)
  mean = ReduceMean<axes = [-1]>(joined)
  centred = Sub(joined, mean)
  square = Pow(centred, two)
  variance = ReduceMean<axes = [-1]>(square)
  shifted = Add(variance, epsilon)
  deviation = Sqrt(shifted)
  y = Div(centred, deviation)
  masked = Add(x, mask)
  same = Reshape(masked, whole)
  scaled = Div(same, root)
  erf = Erf(scaled)
  more = Add(erf, one)
  times = Mul(same, more)
  z = Mul(times, half)
}
"""
NAMES = ("batch", "seq", "past", "other", "total")


def renamed(names: dict[str, str]) -> onnx.ModelProto:
    """The model with other dimension names."""
    model = onnx.parser.parse_model(TEXT)
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = names.get(dim.dim_param, dim.dim_param)
    return model


def written(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """The output of `fuse`, without verification."""
    path, output = folder / "model.onnx", folder / "fused.onnx"
    onnx.save(model, path)
    fuse(path, output, LIBRARY, Options(verify=False))
    return onnx.load(output)


def signature(model: onnx.ModelProto) -> list[list[str]]:
    """The dimensions of the inputs and outputs."""
    return [
        [dim.dim_param or str(dim.dim_value) for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    ]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dimensions")


@pytest.fixture(scope="session")
def plain(folder: Path) -> onnx.ModelProto:
    model = written(renamed({}), folder)
    assert [node.op_type for node in model.graph.node] == ["Concat", "LayerNormalization", "Add", "Gelu"]
    return model


def differs_only_in_names(fused: onnx.ModelProto, plain: onnx.ModelProto) -> bool:
    def without(model: onnx.ModelProto) -> bytes:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        for value in (*copy.graph.input, *copy.graph.output, *copy.graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                dim.ClearField("dim_param")
        return copy.SerializeToString(deterministic=True)

    return without(fused) == without(plain)


@example(list(ODD[:5]))
@example(["if", "E", "I", "lambda", "zoo"])
@example(["_d0", "_d1", "_d2", "anonymous_1", "_d3"])
@example(["x" * 3000, "f(" * 300, "a\nb", "👍", "n/0"])
@example(["batch-size", "2x", "3", "Max", "floor"])
@example(["seq", "batch", "other", "total", "past"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(min_size=1) | st.sampled_from(ODD), min_size=5, max_size=5, unique=True))
def test_renaming_dimensions_changes_nothing_but_the_names(folder: Path, plain: onnx.ModelProto, names: list[str]) -> None:
    """Law: the fused model equals that of a model with plain names, except for the names, which are those of the file."""
    assume(not any(is_placeholder(name) or is_expression(name, names) for name in names))
    assume(all(name.encode(errors="ignore").decode() == name for name in names))  # protobuf stores no lone surrogate
    model = renamed(dict(zip(NAMES, names, strict=True)))
    fused = written(model, folder)
    assert signature(fused) == signature(model)
    assert differs_only_in_names(fused, plain)


@pytest.mark.parametrize("name", PLACEHOLDERS)
def test_a_placeholder_is_not_a_name_and_is_kept(folder: Path, plain: onnx.ModelProto, name: str) -> None:
    """PaddlePaddle writes `?` for every free dimension. Two of them are not equal, and both are kept."""
    model = renamed(dict.fromkeys(NAMES, name))
    fused = written(model, folder)
    assert signature(fused) == signature(model)
    assert differs_only_in_names(fused, plain)
    loaded = load(folder / "model.onnx")
    assert len(symbols(loaded.graph.inputs)) == 6, "two dimensions of one placeholder may have two sizes"


@pytest.mark.parametrize("name", ODD)
def test_models_with_odd_names_are_verified(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(renamed({"seq": name}), path)
    result = fuse(path, tmp_path / "fused.onnx", LIBRARY, Options())
    assert result.verdict.verdict == "equivalent", result.verdict
    assert {rewrite.op for rewrite in result.rewrites} == {"LayerNormalization", "com.microsoft.Gelu"}
    assert all(name in run.sizes for run in result.verdict.runs), "the report has the name of the file"


def test_an_expression_of_declared_dimensions_keeps_its_meaning() -> None:
    model = ir.from_proto(renamed({"other": "past + seq"}))
    infer_shapes(model)
    shapes = {value.name: value.shape for value in values(model)}
    assert shapes["mask"] is not None and shapes["joined"] is not None
    assert shapes["mask"][0] == "past + seq"
    assert symbols(model.graph.inputs).keys() == {"batch", "seq", "past"}
    (sizes, *_) = assignments(model.graph.inputs, {})
    assert draw_feeds(model, sizes)["mask"].shape == (sizes["past"] + sizes["seq"], sizes["seq"], 8)


def test_a_name_that_looks_like_an_expression_is_a_name() -> None:
    """`batch-size` is a name unless there is a dimension `batch`."""
    assert inner("batch-size", {"batch-size", "seq"}) == inner("batch-size")
    assert inner("batch-size", {"batch", "size"}) == "batch-size"
    assert inner("3") != "3"
    assert resolve({"seq": 2}, "3") is None


@given(st.text())
def test_an_inner_name_is_an_identifier_and_maps_back(name: str) -> None:
    found = inner(name)
    assert found is None if is_placeholder(name) else found is not None and found.isidentifier() and outer(found) == name
    assert found is None or inner(found) == found


@given(st.lists(st.text(), min_size=2, max_size=2, unique=True))
def test_two_names_stay_different(names: list[str]) -> None:
    assume(not any(map(is_placeholder, names)))
    assert inner(names[0]) != inner(names[1])


def test_shapes_set_odd_names() -> None:
    model = ir.from_proto(renamed({"seq": "2x", "batch": "batch size"}))
    specialize(model, {"x": (1, 4, 8)})
    shapes = {value.name: value.shape for value in model.graph.inputs}
    assert [list(shape or ()) for shape in shapes.values()] == [[1, 4, 8], [1, "past", 8], ["other", 4, 8]]


def test_two_sizes_for_one_odd_name_are_an_error_with_that_name() -> None:
    model = ir.from_proto(renamed({"seq": "Dim #0"}))
    infer_shapes(model)
    with pytest.raises(UsageError, match=r"makes the dimension Dim #0 4, and 'mask' makes it 5"):
        specialize(model, {"x": (1, 4, 8), "mask": (1, 5, 8)})
    with pytest.raises(UsageError, match=r"but Dim #0 is 4 elsewhere"):
        list(assignments(model.graph.inputs, {"x": (1, 4, 8), "mask": (1, 5, 8)}))


def test_a_placeholder_may_have_two_sizes() -> None:
    model = ir.from_proto(renamed({"seq": "?"}))
    specialize(model, {"x": (1, 4, 8), "mask": (1, 5, 8)})
    assert [list(value.shape or ()) for value in model.graph.inputs] == [[1, 4, 8], [1, "past", 8], [1, 5, 8]]


def test_reasons_have_the_names_of_the_file(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n, m] x, float[m] w, float[m] b) => (float[n, m] y)
        <float two = {2.0}, float epsilon = {0.00001}>
        { mean = ReduceMean<axes = [0]>(x) c = Sub(x, mean) q = Pow(c, two) v = ReduceMean<axes = [0]>(q) e = Add(v, epsilon)
          d = Sqrt(e) t = Div(c, d) u = Mul(t, w) y = Add(u, b) }"""
    )
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_param = {"n": "the rows", "m": "the columns"}[dim.dim_param]
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    found = explain(path, LIBRARY, Options(only=("layer-normalization",), thorough=True))
    said = " ".join(f"{miss.expected} {miss.found} {miss.change}" for miss in found.near_misses)
    assert "dim_" not in said


def test_the_users_feeds_are_checked_against_odd_names(tmp_path: Path) -> None:
    path, feeds = tmp_path / "model.onnx", tmp_path / "feeds.npz"
    onnx.save(renamed({"seq": "N:1"}), path)
    shapes = {"x": (2, 3, 8), "cache": (2, 5, 8), "mask": (1, 4, 8)}
    np.savez(feeds, **{name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    with pytest.raises(UsageError, match="mask has size 4 in dimension 1, but N:1 is 3 elsewhere"):
        fuse(path, None, LIBRARY, Options(inputs=feeds))


def test_partitioned_models_and_their_sessions_have_the_names_of_the_file(tmp_path: Path) -> None:
    path, output = tmp_path / "model.onnx", tmp_path / "partitioned.onnx"
    onnx.save(renamed({"seq": "Dim #0", "batch": "batch size", "other": "?"}), path)
    result = partition(path, output, PartitionOptions("onnxruntime", RegionLimits(min_nodes=1, max_crossing=9)))
    assert result.verdict.verdict == "equivalent" and not result.unchanged
    assert signature(onnx.load(output)) == signature(onnx.load(path))
    assert b"dim_" not in output.read_bytes()
    session = EngineSession(output)
    assert [argument.shape for argument in session.get_inputs()] == [
        ["batch size", "Dim #0", 8],
        ["batch size", "past", 8],
        ["?", "Dim #0", 8],
    ]
    feeds = {name: np.zeros(shape, np.float32) for name, shape in {"x": (1, 2, 8), "cache": (1, 3, 8), "mask": (4, 2, 8)}.items()}
    assert [result.shape for result in session.run(None, feeds)] == [(1, 5, 8), (4, 2, 8)]
