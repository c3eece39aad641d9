"""Loading says what is wrong, saving writes a whole file or nothing, and unchanged parts of a model are kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from shutil import copy
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_subgraph.errors import ModelError, UsageError
from onnx_subgraph.files import atomic
from onnx_subgraph.files.models import hand_on, load, save, write_temporary
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4] x) => (float[batch, 4] z)
<float[4] w = {1, 2, 3, 4}>
{
  y = Mul (x, w)
  z = Relu (y)
}
"""


def written(text: str, path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def text(path: Path) -> str:
    """A model file from ONNX's text form, which writes an empty name like a missing one."""
    return onnx.printer.to_text(onnx.load(path))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return written(TEXT, tmp_path / "model.onnx")


def with_data(folder: Path, *, size: int = 1 << 10, location: str = "model.data", dtype: int = TensorProto.FLOAT) -> Path:
    """A model with one weight in an external data file."""
    weight = np.arange(size, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"], name="scale")],
        "g",
        [helper.make_tensor_value_info("x", dtype, ["n", size])],
        [helper.make_tensor_value_info("y", dtype, ["n", size])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir(exist_ok=True, parents=True)
    (folder / location).parent.mkdir(exist_ok=True, parents=True)
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location=location, size_threshold=0)
    return folder / "model.onnx"


def edited(path: Path, edit: Callable[[onnx.ModelProto], None]) -> Path:
    proto = onnx.load(path, load_external_data=False)
    edit(proto)
    path.write_bytes(proto.SerializeToString())
    return path


def set_place(key: str, value: str) -> Callable[[onnx.ModelProto], None]:
    def edit(proto: onnx.ModelProto) -> None:
        next(entry for entry in proto.graph.initializer[0].external_data if entry.key == key).value = value

    return edit


# Files that are not models


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"id: gelu\nsummary: no model\n", "is a text file"),
        (b"a text of caf\xe9, as Windows writes it", "is a text file"),
        (b" " + "é".encode() * 3000, "is a text file"),
        (b"\xff", "is not an ONNX model, or is cut off"),
        (b"\xff" * 16 + b"x", "is not an ONNX model, or is cut off"),
        (b"\n" * 20 + b"<?xml version='1.0'?>", "is XML"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer"),
        (bytes(range(255, 0, -1)) * 9, "not an ONNX model"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "no graph"),
    ],
)
def test_a_file_that_is_no_model_is_described(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=words) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert caught.value.hint


def test_every_truncated_model_is_an_error_or_a_model(source: Path) -> None:
    """A truncated file raises no other error than ModelError."""
    whole = source.read_bytes()
    for length in range(len(whole)):
        source.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            load(source)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        load(tmp_path / "nowhere.onnx")
    with pytest.raises(ModelError, match="folder"):
        load(tmp_path)


# What is not well-formed

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] z) '


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{ a = Add (x, c) b = Relu (a) c = Relu (b) z = Relu (c) }", r"cycle: node '[abc]' \(.*\) depends on its own result"),
        (
            """{ c = Constant <value = bool {1}> () z = If (c) <then_branch = t () => (float[2] p) { p = Relu (q) q = Exp (p) },
                else_branch = e () => (float[2] r) { r = Exp (x) }> }""",
            "cycle: inside a nested body",
        ),
        ("{ [lonely] z = Add (x, nowhere) }", "'lonely' .* reads 'nowhere'"),
        ("{ y = Relu (x) y = Exp (x) z = Relu (y) }", "'y' is made twice"),
        ("{ x = Relu (x) z = Relu (x) }", "'x' is made twice"),
        ("{ y = Relu (x) }", "nothing makes the output 'z'"),
    ],
)
def test_an_invalid_graph_is_refused_with_its_place(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        load(written(HEAD + body, tmp_path / "model.onnx"))


def test_an_input_that_is_there_twice_is_refused(source: Path) -> None:
    with pytest.raises(ModelError, match="'x' is an input twice"):
        load(edited(source, lambda proto: proto.graph.input.append(proto.graph.input[0])))


def test_a_model_without_opsets_is_refused(source: Path) -> None:
    edited(source, lambda proto: proto.ClearField("opset_import"))
    with pytest.raises(ModelError, match="imports no operator set"):
        load(source)


def test_a_dangling_input_of_a_nested_body_is_found_and_an_outer_value_is_not_dangling(tmp_path: Path) -> None:
    body = """{ y = If (c) <then_branch = t () => (float[2] p) { p = Relu (%s) },
                            else_branch = e () => (float[2] q) { q = Exp (x) }> z = Relu (y) }"""
    head = HEAD.replace("float[2] x", "float[2] x, bool c")
    load(written(head + body % "x", tmp_path / "good.onnx"))
    with pytest.raises(ModelError, match="reads 'gone'"):
        load(written(head + body % "gone", tmp_path / "bad.onnx"))


def nested(depth: int) -> bytes:
    """An If in an If in an If …, written as bytes, because protobuf refuses to build what it refuses to read."""

    def field(number: int, content: bytes) -> bytes:
        length, size = b"", len(content)
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [])
    flat = helper.make_graph([helper.make_node("Constant", [], ["y"], value_float=1.0)], "g", [], [y])
    node = helper.make_node("If", ["c"], ["y"], else_branch=flat).SerializeToString()
    graph = flat.SerializeToString()
    for _ in range(depth):
        body = onnx.AttributeProto(name="then_branch", type=onnx.AttributeProto.GRAPH).SerializeToString() + field(6, graph)
        graph = field(1, node + field(5, body)) + field(12, y.SerializeToString())
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, []).SerializeToString()
    rest = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)]).SerializeToString()
    return rest + field(7, graph + field(11, c))


def test_bodies_nested_too_deep_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "deep.onnx"
    path.write_bytes(nested(25))
    model = load(path)
    infer_shapes(model)
    save(model, tmp_path / "out.onnx", path)
    path.write_bytes(nested(500))
    with pytest.raises(ModelError):
        load(path)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("needs .* bytes and has fewer", {"dims": [2**40, 2**20], "raw_data": b"\0" * 16}),
        ("needs 0 bytes and has more", {"dims": [0], "raw_data": b"\0" * 16}),
        ("has the size -1", {"dims": [-1], "raw_data": b"\0" * 16}),
        ("needs 2 bytes and has fewer", {"dims": [3], "data_type": TensorProto.INT4, "raw_data": b"\0"}),
        ("of type STRING has its data in raw_data", {"dims": [1], "data_type": TensorProto.STRING, "raw_data": b"abc"}),
        ("of type STRING .* another file", {"dims": [1], "data_type": TensorProto.STRING, "data_location": TensorProto.EXTERNAL}),
    ],
)
def test_a_weight_whose_data_does_not_fit_is_refused(source: Path, words: str, fields: dict[str, Any]) -> None:
    def edit(proto: onnx.ModelProto) -> None:
        proto.graph.initializer[0].CopyFrom(TensorProto(name="w", **{"data_type": TensorProto.FLOAT} | fields))

    with pytest.raises(ModelError, match=f"'w' .*{words}"):
        load(edited(source, edit))


@pytest.mark.parametrize("fields", [{"raw_data": b"\x21\x03"}, {"int32_data": [0x21, 3]}])
def test_two_elements_of_four_bits_are_one_byte(source: Path, fields: dict[str, Any]) -> None:
    def edit(proto: onnx.ModelProto) -> None:
        proto.graph.initializer[0].CopyFrom(TensorProto(name="w", dims=[3], data_type=TensorProto.INT4, **fields))

    weight = load(edited(source, edit)).graph.initializers["w"].const_value
    assert weight is not None
    assert weight.numpy().tolist() == [1, 2, 3]


# What onnxruntime accepts


def test_the_long_name_of_the_default_domain_is_normalised(source: Path) -> None:
    def edit(proto: onnx.ModelProto) -> None:
        proto.opset_import[0].domain = "ai.onnx"
        proto.graph.node[0].domain = "ai.onnx"

    model = load(edited(source, edit))
    assert model.opset_imports == {"": 17}
    assert {node.domain for node in model.graph} == {""}


def test_a_model_may_have_no_nodes_and_values_without_a_name(tmp_path: Path) -> None:
    load(written('<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] x) {}', tmp_path / "model.onnx"))
    load(written(HEAD + '{ y, "" = Dropout (x) z, "" = Dropout (y) }', tmp_path / "model.onnx"))


def test_nodes_out_of_order_are_sorted_and_the_rest_is_kept(tmp_path: Path) -> None:
    model = load(written(HEAD + "{ [c] z = Relu (b) [a] a = Exp (x) [b] b = Exp (a) }", tmp_path / "model.onnx"))
    assert [node.name for node in model.graph] == ["a", "b", "c"]


def test_nodes_out_of_order_are_sorted_in_bodies_and_functions(tmp_path: Path) -> None:
    body = "{ [b] p = Relu (o) [a] o = com.microsoft.Gelu (x) }"
    text = f"""<ir_version: 9, opset_import: ["" : 17, "my" : 1]> g (float[2] x, bool c) => (float[2] z) {{
        y = If (c) <then_branch = t () => (float[2] p) {body}, else_branch = e () => (float[2] q) {{ q = Exp (x) }}>
        z = my.F (y)
    }}
    <domain: "my", opset_import: ["" : 17]> F (x) => (p) {body}"""
    model = load(written(text, tmp_path / "model.onnx"))
    (function,), branch = model.functions.values(), next(iter(model.graph)).attributes["then_branch"].as_graph()
    assert [[node.name for node in nodes] for nodes in (branch, function)] == [["a", "b"], ["a", "b"]]
    assert function.opset_imports["com.microsoft"] == 1


def test_a_missing_import_of_com_microsoft_is_added(tmp_path: Path) -> None:
    model = load(written(HEAD + "{ z = com.microsoft.Gelu (x) }", tmp_path / "model.onnx"))
    assert model.opset_imports["com.microsoft"] == 1


def test_of_constants_with_one_name_the_last_counts(tmp_path: Path) -> None:
    constants = [f"c = Constant <value_float = {number}.0> ()" for number in (1, 2, 3)]
    body = f"{{ {' e = Exp (x) '.join(constants[:2])} {constants[2]} z = Mul (e, c) }}"
    model = load(written(HEAD + body, tmp_path / "model.onnx"))
    assert [node.op_type for node in model.graph] == ["Exp", "Constant", "Mul"]
    assert [node.attributes["value_float"].as_float() for node in model.graph if node.op_type == "Constant"] == [3.0]


def test_repeated_and_empty_node_names_are_kept(tmp_path: Path) -> None:
    path = written(HEAD + "{ [n] a = Exp (x) [n] b = Exp (a) z = Exp (b) }", tmp_path / "model.onnx")
    save(load(path), tmp_path / "out.onnx", path)
    assert [node.name for node in onnx.load(tmp_path / "out.onnx").graph.node] == ["n", "n", ""]


def test_unknown_operators_are_kept(tmp_path: Path) -> None:
    """Unknown operators, domains and future opsets are written unchanged."""
    unknown = """<ir_version: 9, opset_import: ["" : 99, "my.domain" : 7]> g (float[2] x) => (float[2] z)
    { a = my.domain.Whatever <depth = 3> (x) b = OperatorToCome (a) z = Relu (b) }"""
    path = written(unknown, tmp_path / "model.onnx")
    save(load(path), tmp_path / "out.onnx", path)
    assert text(tmp_path / "out.onnx") == text(path)


# Saving


def test_saving_an_inferred_model_writes_what_was_declared(source: Path, tmp_path: Path) -> None:
    """Law: load, infer, save gives the same file as load, save, and both equal the original."""
    model = load(source)
    infer_shapes(model)
    save(model, tmp_path / "out.onnx", source)
    assert text(tmp_path / "out.onnx") == text(source)
    assert model.graph.node(0).outputs[0].shape is not None, "saving may not take the inferred shapes away"


def test_saving_twice_gives_the_same_bytes(source: Path, tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        save(load(source), tmp_path / name, source)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


@pytest.mark.parametrize("dtype", ["BFLOAT16", "FLOAT16", "DOUBLE", "FLOAT8E4M3FN", "INT4", "BOOL"])
def test_every_element_type_survives_a_round_trip(tmp_path: Path, dtype: str) -> None:
    tensor = helper.make_tensor("w", getattr(TensorProto, dtype), [4], [0, 1, 1, 0])
    info = helper.make_tensor_value_info("y", tensor.data_type, [4])
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [info], [tensor])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph), path)
    save(load(path), tmp_path / "out.onnx", path)
    back = numpy_helper.to_array(onnx.load(tmp_path / "out.onnx").graph.initializer[0])
    assert back.tolist() == numpy_helper.to_array(tensor).tolist()


def test_the_input_is_never_written_to(source: Path, tmp_path: Path) -> None:
    model = load(source)
    (tmp_path / "link.onnx").symlink_to(source)
    for target in (source, tmp_path / "link.onnx"):
        with pytest.raises(UsageError, match="input"):
            save(model, target, source)
    external = with_data(tmp_path / "external")
    with pytest.raises(UsageError, match="input"):
        save(load(external), external.with_name("model.data"), external)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_nothing_behind(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    target = tmp_path / "out" / "out.onnx"
    target.parent.mkdir()
    target.write_bytes(b"before")

    def fail(descriptor: int) -> None:
        raise error

    monkeypatch.setattr(atomic.os, "fsync", fail)
    with pytest.raises((ModelError, KeyboardInterrupt)):
        save(load(source), target, source)
    assert [file.name for file in target.parent.iterdir()] == ["out.onnx"]
    assert target.read_bytes() == b"before"


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
@pytest.mark.parametrize("failing", range(1, 5))
@pytest.mark.parametrize("existing", [True, False])
def test_a_model_and_its_data_change_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, failing: int, existing: bool
) -> None:
    """A model beside another model's data would run and compute something else."""
    pair = tmp_path / "model.onnx.data", tmp_path / "model.onnx"
    for path in pair if existing else ():
        path.write_bytes(b"before")
    replace, calls = Path.replace, 0

    def fail(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        assert len({p.read_bytes() for p in pair if p.exists()}) <= 1, "old and new lie side by side"
        if calls == failing:
            raise error
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    outcome = None
    try:
        with atomic.written_whole(*pair) as files:
            for file in files:
                file.write(b"after")
    except (ModelError, KeyboardInterrupt) as caught:
        outcome = caught
    assert (outcome is None) == (failing > (4 if existing else 2))
    assert not isinstance(outcome, ModelError) or str(outcome).startswith(f"{pair[1]}: cannot be written: Input/output error")
    said = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    content = b"after" if outcome is None else b"before"
    assert said == ({p.name: content for p in pair} if existing or outcome is None else {})


def test_a_file_is_never_absent_while_it_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (target := tmp_path / "model.onnx").write_bytes(b"before")
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, other: [target.exists() or pytest.fail("absent"), replace(self, other)][1])
    with atomic.written_whole(target) as (file,):
        file.write(b"after")
    assert target.read_bytes() == b"after"


def test_an_impossible_target_is_an_error(source: Path, tmp_path: Path) -> None:
    model = load(source)
    with pytest.raises(UsageError, match="no folder"):
        save(model, tmp_path / "missing" / "out.onnx", source)
    with pytest.raises(UsageError, match="regular file"):
        save(model, tmp_path, source)


def test_a_name_too_long_for_a_temporary_file_is_an_error_with_a_hint(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be written") as raised:
        save(load(source), tmp_path / f"{'a' * 245}.onnx", source)
    assert raised.value.hint and not list(tmp_path.glob("*aaa*"))


# External data


def test_external_data_is_shared_when_saved_beside_it(tmp_path: Path) -> None:
    source = with_data(tmp_path)
    save(load(source), tmp_path / "out.onnx", source)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.data", "model.onnx", "out.onnx"]
    assert onnx.load(tmp_path / "out.onnx") == onnx.load(source)


def test_unknown_keys_of_external_data_are_ignored_without_a_warning(tmp_path: Path) -> None:
    """onnx warns of them with a path into its own package, for each tensor. A warning fails this test."""

    def mark(proto: onnx.ModelProto) -> None:
        proto.graph.initializer[0].external_data.add(key="made_by", value="an exporter")

    path = edited(with_data(tmp_path), mark)
    (value,) = load(path).graph.initializers.values()
    assert value.const_value is not None and value.const_value.numpy().size


def test_external_data_is_copied_into_another_folder(tmp_path: Path) -> None:
    source = with_data(tmp_path / "in")
    (tmp_path / "out").mkdir()
    save(load(source), tmp_path / "out" / "model.onnx", source)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["model.onnx", "model.onnx.data"]
    weight = numpy_helper.to_array(onnx.load(tmp_path / "out" / "model.onnx").graph.initializer[0])
    np.testing.assert_array_equal(weight, np.arange(1 << 10, dtype=np.float32))


def test_saving_does_not_overwrite_the_data_of_another_model(tmp_path: Path) -> None:
    """Somebody kept a copy of the output, which reads its data file. The next output writes another one, again and again."""
    source, out = with_data(tmp_path / "in"), tmp_path / "out"
    out.mkdir()
    save(load(source), out / "model.onnx", source)
    kept = copy(out / "model.onnx", out / "best.onnx")
    (out / "broken.onnx").write_text("no model")
    edited(copy(kept, out / "strange.onnx"), lambda proto: proto.graph.initializer[0].external_data.add(key="offset", value="x"))
    source = with_data(tmp_path / "larger", size=1 << 11)
    for _ in range(2):
        save(load(source), out / "model.onnx", source)
        weights = [numpy_helper.to_array(onnx.load(path).graph.initializer[0]) for path in (kept, out / "model.onnx")]
        for weight, size in zip(weights, (1 << 10, 1 << 11), strict=True):
            np.testing.assert_array_equal(weight, np.arange(size, dtype=np.float32))
        names = ["best.onnx", "broken.onnx", "model.onnx", "model.onnx.1.data", "model.onnx.data", "strange.onnx"]
        assert sorted(file.name for file in out.iterdir()) == names


def test_new_weights_are_inside_if_small_and_external_if_large(tmp_path: Path) -> None:
    source = with_data(tmp_path)
    model = load(source)
    for name, size in (("small", 8), ("large", 1 << 19)):
        value = ir.Value(name=name, const_value=ir.tensor(np.full(size, 7, np.float32), name=name))
        model.graph.register_initializer(value)
    save(model, tmp_path / "out.onnx", source)
    proto = onnx.load(tmp_path / "out.onnx", load_external_data=False)
    places = {t.name: {e.key: e.value for e in t.external_data}.get("location") for t in proto.graph.initializer}
    assert places == {"w": "model.data", "small": None, "large": "out.onnx.data"}
    large = {t.name: t for t in onnx.load(tmp_path / "out.onnx").graph.initializer}["large"]
    assert (numpy_helper.to_array(large) == 7).all()
    assert isinstance(model.graph.initializers["large"].const_value, ir.Tensor), "saving may not change the model"


def test_a_missing_data_file_is_named(tmp_path: Path) -> None:
    source = with_data(tmp_path)
    (tmp_path / "model.data").unlink()
    with pytest.raises(ModelError, match=r"'model\.data' of tensor 'w' is missing"):
        load(source)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("location", "/etc/passwd", "no relative path"),
        ("location", "model\0.data", "no relative path"),
        ("location", "../secret.data", "leaves the folder"),
        ("location", "link.data", "leaves the folder"),
        ("length", "99999999", "claims"),
        ("length", "", "no number"),
        ("offset", "2048", "needs 4096 bytes at 2048"),
        ("offset", "-4", "negative"),
        ("offset", "four", "no number"),
        ("offset", "", "no number"),
    ],
)
def test_external_data_must_be_in_the_folder_and_long_enough(tmp_path: Path, key: str, value: str, words: str) -> None:
    source = with_data(tmp_path / "in")
    (tmp_path / "secret.data").write_bytes(b"\0" * 4096)
    (tmp_path / "in" / "link.data").symlink_to(tmp_path / "secret.data")
    with pytest.raises(ModelError, match=words):
        load(edited(source, set_place(key, value)))


def test_the_stated_length_counts_only_where_the_data_is_not_cut_off(tmp_path: Path) -> None:
    source = edited(edited(with_data(tmp_path), set_place("offset", "2048")), set_place("length", "2048"))
    with pytest.raises(ModelError, match=r"needs 4096 bytes at 2048 of 'model\.data', which has 4096 \(it claims 2048\)"):
        load(source)


def test_linked_data_is_read_where_onnxruntime_reads_it(tmp_path: Path) -> None:
    """A download cache links the model and its data to files in one folder. Hard links are common too."""
    source = with_data(tmp_path / "blobs")
    cache = tmp_path / "snapshot"
    cache.mkdir()
    for name in ("model.onnx", "model.data"):
        (cache / name).symlink_to(tmp_path / "blobs" / name)
    os.link(source.with_name("model.data"), tmp_path / "another name")
    weight = load(cache / "model.onnx").graph.initializers["w"].const_value
    assert weight is not None
    assert weight.numpy()[5] == 5


def test_copying_is_byte_for_byte(tmp_path: Path) -> None:
    source = with_data(tmp_path / "in", location="weights/model.data")
    (tmp_path / "out").mkdir()
    hand_on(source, tmp_path / "out" / "same.onnx")
    hand_on(source, source.with_name("beside.onnx"))
    assert (tmp_path / "out" / "same.onnx").read_bytes() == source.read_bytes() == source.with_name("beside.onnx").read_bytes()
    assert onnx.load(tmp_path / "out" / "same.onnx") == onnx.load(source)
    with pytest.raises(UsageError, match="input"):
        hand_on(source, source)


@pytest.mark.parametrize("refuses", [True, False])
def test_bytes_that_the_system_does_not_copy_are_copied_through_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    def some(source: int, target: int, count: int, start: int, goal: int) -> int:
        if start > 10:
            if refuses:
                raise OSError(18, "Invalid cross-device link")
            return 0
        return os.pwrite(target, os.pread(source, 7, start), goal)

    monkeypatch.setattr(os, "copy_file_range", some, raising=False)
    content = bytes(range(250))
    (tmp_path / "in").write_bytes(content)
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        source.seek(10)
        target.write(b"head")
        atomic.copy_bytes(source, target, 200)
        target.write(b"tail")
        assert source.read() == content[210:]
        source.seek(10)
        with pytest.raises(OSError, match="ended 10 bytes early"):
            atomic.copy_bytes(source, target, 250)
    assert (tmp_path / "out").read_bytes()[:208] == b"head" + content[10:210] + b"tail"


def test_copying_does_not_overwrite_the_data_of_another_model(tmp_path: Path) -> None:
    source = with_data(tmp_path / "in")
    other = with_data(tmp_path / "out", size=1 << 9).rename(tmp_path / "out" / "other.onnx")
    with pytest.raises(UsageError, match=r"data of other\.onnx"):
        hand_on(source, tmp_path / "out" / "model.onnx")
    load(other)


def test_copying_does_not_overwrite_data_of_models_in_the_folder_of_the_data(tmp_path: Path) -> None:
    source = with_data(tmp_path / "in", location="weights/model.data")
    other = with_data(tmp_path / "out" / "weights", size=1 << 9)
    with pytest.raises(UsageError, match=r"data of model\.onnx"):
        hand_on(source, tmp_path / "out" / "model.onnx")
    load(other)


def test_a_temporary_file_uses_the_data_of_its_source(tmp_path: Path) -> None:
    import onnxruntime

    source = with_data(tmp_path / "in")
    (tmp_path / "temporary").mkdir()
    path = write_temporary(load(source), source, tmp_path / "temporary")
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(source.parent))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.ones((1, 1 << 10), np.float32)})
    np.testing.assert_array_equal(y[0], np.arange(1 << 10, dtype=np.float32))
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_weight_without_data_is_written_unchanged_whatever_size_it_claims(tmp_path: Path) -> None:
    """Shared graphs have their weights removed. Of the 4 TB that this weight claims, nothing is moved or written."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N, M] x) => (float[N, M] y) { y = Mul (x, x) }'
    )
    model.graph.initializer.append(onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[10**6, 10**6]))
    model.graph.node[0].input[1] = "w"
    source = tmp_path / "stripped.onnx"
    source.write_bytes(model.SerializeToString())
    save(load(source), tmp_path / "again.onnx", source)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.onnx", "stripped.onnx"]
    assert onnx.load(tmp_path / "again.onnx").graph.initializer[0] == model.graph.initializer[0]


@pytest.mark.parametrize(("size", "is_known"), [(0, True), (4, False)])
def test_only_a_weight_without_elements_needs_no_data(source: Path, size: int, is_known: bool) -> None:
    def edit(proto: onnx.ModelProto) -> None:
        proto.graph.initializer[0].CopyFrom(TensorProto(name="w", dims=[size], data_type=TensorProto.FLOAT))

    model = load(edited(source, edit))
    assert (Constants(model).array(model.graph.initializers["w"]) is not None) is is_known
