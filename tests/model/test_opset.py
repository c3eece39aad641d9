"""Raising the opset changes operators, and nothing else that a user can observe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from onnx_subgraph.errors import ModelError
from onnx_subgraph.files.models import load, save
from onnx_subgraph.model.opset import raise_opset
from onnx_subgraph.model.shapes import SHAPE_DATA, infer_shapes, is_settled, values
from onnx_subgraph.verification.sessions import Failure, Session, open_session, run

TEXT = """<ir_version: 7, opset_import: ["" : 12, "com.microsoft" : 1], metadata_props: ["made" : "by hand"]>
g (float[batch, 4] x, bool c) => (float[batch] y, float[batch, 4] z) <float[4] w = {1, 2, 3, 4}>
{
  [scale] a = Mul (x, w)
  [probabilities] p = Softmax <axis = 1> (a)
  [mean] m = ReduceMean <axes = [1], keepdims = 1> (p)
  [squeeze] y = Squeeze <axes = [1]> (m)
  [choose] z = If (c) <then_branch = t () => (float[batch, 4] u) { k = Unsqueeze <axes = [0]> (x) u = Squeeze <axes = [0]> (k) },
                       else_branch = e () => (float[batch, 4] v) { v = Exp (a) }>
}"""


def model_of(text: str) -> ir.Model:
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    return model


@pytest.mark.parametrize("opset", [12, 13, 17, 18, 20, 21, 23])
def test_a_raised_model_computes_the_same(opset: int) -> None:
    model = model_of(TEXT)
    before = ir.to_onnx_text(model)
    raised = raise_opset(model, opset)
    assert ir.to_onnx_text(model) == before, "the old model is untouched"
    assert raised.opset_imports == {"": opset, "com.microsoft": 1}
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "c": np.array(False)}
    for condition in (False, True):
        feeds["c"] = np.array(condition)
        expected = ReferenceEvaluator(ir.to_proto(model)).run(None, feeds)
        for result, wanted in zip(ReferenceEvaluator(ir.to_proto(raised)).run(None, feeds), expected, strict=True):
            np.testing.assert_array_equal(result, wanted)


SAMPLES = sorted((Path(__file__).parents[2] / "sample_models").glob("*_torchscript.onnx"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_inference_tells_nothing_new_of_a_raised_model(path: Path) -> None:
    """So shapes need not be inferred again, unless something was unknown before."""
    model = load(path)
    infer_shapes(model)
    raised = raise_opset(model, 23)
    before = [_known(value) for value in values(raised)]
    assert is_settled(raised)
    infer_shapes(raised)
    assert [_known(value) for value in values(raised)] == before


BATCHES = """<ir_version: 10, opset_import: ["" : 21]>
g (float[A, 4, 4] a, float[{other}, 4, 4] b, float[{other}, 4, 4] c) => (float[{result}, 4, 4] y) {{
  s = MatMul (a, b) p = Add (s, c) y = MatMul (p, c)
}}"""


@pytest.mark.parametrize(("other", "result", "settled"), [("A", "A", True), ("B", "B", False), ("B", "E", False)])
def test_shapes_with_names_that_no_input_has_are_not_settled(other: str, result: str, settled: bool) -> None:
    """The name of an output stands for a size that inference can't tell: the maximum of unknown batches."""
    text = BATCHES.format(other=other, result=result).replace("float[B, 4, 4] c", "float[C, 4, 4] c")
    assert is_settled(raise_opset(model_of(text), 23)) == settled


def _known(value: ir.Value) -> tuple[object, ...]:
    return value.name, value.dtype, str(value.shape), str(value.meta.get(SHAPE_DATA))


def test_names_and_metadata_are_kept() -> None:
    model = model_of(TEXT)
    for node in model.graph:
        node.metadata_props["from"] = node.op_type
        node.doc_string = "seen"
    raised = raise_opset(model, 18)
    kept = {node.name: node for node in raised.graph}
    for node in model.graph:
        assert kept[node.name].metadata_props == node.metadata_props
        assert kept[node.name].doc_string == "seen"
    assert raised.metadata_props == {"made": "by hand"}
    assert [value.name for value in raised.graph.inputs] == ["x", "c"]
    assert [value.name for value in raised.graph.outputs] == ["y", "z"]
    assert all(node.name for node in raised.graph)


def test_a_softmax_over_the_last_axis_is_not_flattened() -> None:
    """Over the last axis, the meanings before and after opset 13 agree. Reshapes around it would hide the operator."""
    raised = raise_opset(model_of(TEXT.replace("axis = 1", "axis = -1")), 17)
    assert "Reshape" not in {node.op_type for node in raised.graph}
    assert next(node for node in raised.graph if node.op_type == "Softmax").attributes["axis"].as_int() == -1


def test_nodes_that_the_converter_does_not_know_are_kept_from_it() -> None:
    text = """<ir_version: 8, opset_import: ["" : 13, "com.microsoft" : 1, "my" : 1]>
    g (float[2, 4] x, float[4] s) => (float[2, 4] y)
    {
      a = com.microsoft.Gelu (x)
      b = SimplifiedLayerNormalization <axis = -1> (a, s)
      y = my.F (b)
    }
    <domain: "my", opset_import: ["" : 13]> F (u) => (v) { v = Relu (u) }"""
    raised = raise_opset(model_of(text), 21)
    assert [(node.domain, node.op_type) for node in raised.graph] == [
        ("com.microsoft", "Gelu"),
        ("", "SimplifiedLayerNormalization"),
        ("my", "F"),
    ]
    assert [function.name for function in raised.functions.values()] == ["F"]
    assert raised.opset_imports == {"": 21, "com.microsoft": 1, "my": 1}


FUNCTION = """<ir_version: 8, opset_import: ["" : 13, "my" : 1]>
g (float[2, 4] x) => (float[2, 4] y) { y = my.F <to = 1> (x) }
<domain: "my", opset_import: ["" : 13]>
F <to> (u) => (v) { two = Constant <value = float {2}> () m = ReduceMean <axes = [-1]> (u) s = Mul (m, two) v = Add (u, s) }"""


def test_functions_are_raised_with_the_model() -> None:
    """onnx's checker refuses a model whose functions import an older operator version than its graph."""
    raised = ir.to_proto(raise_opset(model_of(FUNCTION), 21))
    (function,) = raised.functions
    assert [(o.domain, o.version) for o in function.opset_import] == [("", 21)]
    assert (function.domain, function.name, list(function.attribute)) == ("my", "F", ["to"])
    assert not next(n for n in function.node if n.op_type == "ReduceMean").attribute
    onnx.checker.check_model(raised, full_check=True)


@pytest.mark.parametrize(("opset", "kept"), [(17, True), (18, False)])
def test_an_attribute_from_the_caller_is_kept_or_refused_with_a_reason(opset: int, kept: bool) -> None:
    """The converter can't read it. ReduceMean is unchanged up to 17, and takes its axes as an input from 18."""
    model = model_of(FUNCTION.replace("F <to>", "F <along>").replace("<to = 1>", "<along = [1]>"))
    node = next(n for n in next(iter(model.functions.values())) if n.op_type == "ReduceMean")
    node.attributes["axes"] = ir.RefAttr("axes", "along", ir.AttributeType.INTS)
    if kept:
        (function,) = ir.to_proto(raise_opset(model, opset)).functions
        assert [a.ref_attr_name for n in function.node for a in n.attribute if n.op_type == "ReduceMean"] == ["along"]
    else:
        with pytest.raises(ModelError, match="ReduceMean in function F takes an attribute of its caller"):
            raise_opset(model, opset)


def test_a_function_and_the_graph_may_use_the_same_names() -> None:
    """A name in a function and the same name in the graph are different values, with types of their own."""
    model = model_of(
        """<ir_version: 8, opset_import: ["" : 11, "local" : 1]>
        g (float[2, 4] x) => (float[2, 4] y, float[4, 2] z) <int64[2] shape = {4, 2}> { y = local.f (x) z = Reshape (x, shape) }
        <domain: "local", opset_import: ["" : 11]>
        f (x) => (y) { z = Exp (x) y = Neg (z) }"""
    )
    raised = raise_opset(model, 18)
    assert [(v.name, v.dtype, v.shape) for v in raised.graph.outputs] == [(v.name, v.dtype, v.shape) for v in model.graph.outputs]


def test_weights_are_shared_and_not_copied() -> None:
    model = model_of(TEXT)
    weight = ir.tensor(np.ones((512, 512), np.float32), name="large")
    value = ir.Value(name="large", const_value=weight, type=ir.TensorType(weight.dtype), shape=ir.Shape([512, 512]))
    model.graph.register_initializer(value)
    model.graph.append(ir.node("Relu", [value], name="reads it"))
    raised = raise_opset(model, 18)
    assert raised.graph.initializers["large"].const_value is weight
    assert value.const_value is weight


def test_a_raised_model_keeps_the_declarations_of_the_file(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), source)
    model = load(source)
    infer_shapes(model)
    save(raise_opset(model, 18), tmp_path / "out.onnx", source)
    written = onnx.load(tmp_path / "out.onnx").graph
    assert not written.value_info
    before = onnx.load(source).graph
    assert [value.type for value in written.output] == [value.type for value in before.output]
    assert [value.type for value in written.input] == [value.type for value in before.input]


def test_initializers_of_old_files_stay_constant() -> None:
    """Up to IR version 3 an initializer is listed as an input. Raising must not let a caller override it."""
    text = """<ir_version: 3, opset_import: ["" : 8]> g (float[4] x, float[4] w) => (float[4] y) <float[4] w = {1, 2, 3, 4}>
    { y = Mul (x, w) }"""
    raised = raise_opset(model_of(text), 17)
    assert [value.name for value in raised.graph.inputs] == ["x"]
    assert "w" in raised.graph.initializers


def test_lowering_the_opset_is_an_error() -> None:
    with pytest.raises(ModelError, match="cannot be brought"):
        raise_opset(model_of(TEXT), 11)
    with pytest.raises(ModelError, match="cannot be raised from opset 12 to 999"):
        raise_opset(model_of(TEXT), 999)


BODIES = """<ir_version: 8, opset_import: ["" : OPSET]> g (float[l, m, n] x, bool c) => (float[?, ?, ?] y)
  <float[3] sizes = {1, 2, 1}> {
    y = If (c) <then_branch = t () => (float[?, ?, ?] tb) { THEN }, else_branch = e () => (float[?, ?, ?] LAST) { ELSE }> }"""


IN_A_FUNCTION = """<ir_version: 8, opset_import: ["" : 12, "f" : 1]>
g (float[1, 1, 2, 4] x, float[4] s) => (float[?, ?, ?, ?] y) {
  y = f.F (x, s) } <domain: "f", opset_import: ["" : 10]> F (x, s) => (y) { y = Resize <mode = "linear"> (x, s) }"""


def in_bodies(opset: int, then: str, other: str = "z = Neg (x)", last: str = "z") -> str:
    text = BODIES.replace("OPSET", str(opset)).replace("THEN", then).replace("ELSE", other)
    return text.replace("LAST", last)


def resized(opset: int, operator: str, mode: str) -> str:
    return f"""<ir_version: 8, opset_import: ["" : {opset}]> g (float[1, l, m, n] x, bool c) => (float[?, ?, ?, ?] y)
      <float[4] sizes = {{1, 1, 2, 1}}> {{ y = {operator} <mode = "{mode}"> (x, sizes) }}"""


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        (in_bodies(12, "tb = Softmax <axis = 1> (x)", "tb = Softmax <axis = 2> (x)", "tb"), 13),
        (in_bodies(12, "tb = Softmax <axis = 2> (x)", "tb = Softmax <axis = 1> (x)", "tb"), 17),
        (in_bodies(12, "tb = Hardmax <axis = 2> (x)"), 13),
        (resized(10, "Resize", "linear"), 13),
        (resized(9, "Upsample", "linear"), 13),
        (resized(10, "Resize", "nearest"), 13),
    ],
    ids=["softmaxes of one name", "in the other order", "hardmax of the last axis", "resize", "upsample", "nearest"],
)
def test_each_branch_means_what_it_did(text: str, opset: int) -> None:
    model = model_of(text)
    shape = (1, 2, 2, 4) if "float[1" in text else (2, 2, 4)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for condition in (False, True):
        found = []
        for one in (model, raise_opset(model, opset)):
            session = open_session(ir.to_proto(one).SerializeToString(), "CPUExecutionProvider", optimised=False)
            assert isinstance(session, Session), session
            outputs = run(session, {"x": x, "c": np.array(condition)})
            assert not isinstance(outputs, Failure), outputs
            found.append(outputs["y"])
        np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "opset", "operator"),
    [
        (in_bodies(12, "tb = Hardmax <axis = 1> (x)"), 13, "Hardmax"),
        (in_bodies(10, 'tb = Resize <mode = "linear"> (x, sizes)'), 11, "Resize"),
        (IN_A_FUNCTION, 13, "Resize"),
        (in_bodies(10, "tb, mask = Dropout (x)"), 12, "Dropout"),
    ],
)
def test_an_operator_whose_meaning_changed_is_not_raised(text: str, opset: int, operator: str) -> None:
    """The converter leaves them as they are."""
    with pytest.raises(ModelError, match=f"{operator} has another meaning there"):
        raise_opset(model_of(text), opset)


def test_an_attribute_from_the_caller_is_not_given_to_a_namesake() -> None:
    text = """<ir_version: 9, opset_import: ["" : 12, "f" : 1]>
      g (float[4] x, bool c) => (float[4] y) { y = f.F <alpha = 2.0> (x, c) }
      <domain: "f", opset_import: ["" : 12]> F <alpha> (x, c) => (y) { y = If (c)
        <then_branch = t () => (float[4] tb) { tb = Elu <alpha = 0.3> (x) },
         else_branch = e () => (float[4] tb) { tb = Elu <alpha: float = @alpha> (x) }> }"""
    with pytest.raises(ModelError, match="two nodes of the function F give 'tb', and one takes an attribute of its caller"):
        raise_opset(model_of(text), 13)
