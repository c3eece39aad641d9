"""The same operators on each part of a value are those operators on the whole value, where they work on each part alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse
from onnx_subgraph.simplification.simplify_first import join_parts
from tests.simplification.test_simplify import operators, run

PARTS = 3
WEIGHTS = ", ".join(str(n) for n in range(8))
HEADER = """
  <ir_version: 8, opset_import: ["" : OPSET]>
  g (float[SHAPE] x, float[2] b) => (float[RESULT] y)
  <float[4, 2] w = {WEIGHTS}, float[2, 4] v = {WEIGHTS}, float k = {0.5}, float[2] k2 = {2, 3}, int64[1] at = {AXIS},
   int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2}, int64[1] end = {9223372036854775807},
   int64 p0 = {0}, int64 p1 = {1}, int64 p2 = {2}>
"""
SLICED = {0: "Slice(x, i0, i1, at)", 1: "Slice(x, i1, i2, at)", 2: "Slice(x, i2, end, at)"}


def unrolled(
    body: str,
    *,
    shape: str = "N, 3, 4",
    axis: int = 1,
    result: str = "A, B, C",
    opset: int = 17,
    parts: int = PARTS,
    extra: str = "",
) -> onnx.ModelProto:
    """A loop over the parts: in `body`, # is the number of the part, $ its slice, and the result is r#."""
    copies = " ".join(body.replace("$", SLICED[part]).replace("#", str(part)) for part in range(parts))
    joined = f"y = Concat <axis = AXIS> ({', '.join(f'r{part}' for part in range(parts))})"
    text = f"{HEADER} {{ {extra} {copies} {joined} }}"
    for word, number in (("OPSET", opset), ("SHAPE", shape), ("RESULT", result), ("WEIGHTS", WEIGHTS), ("AXIS", axis)):
        text = text.replace(word, str(number))
    return onnx.parser.parse_model(text)


def joined(model: onnx.ModelProto) -> onnx.ModelProto:
    made = ir.from_proto(model)
    infer_shapes(made)
    join_parts(made)
    return ir.to_proto(made)


def feeds(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {"x": draw.standard_normal(shape).astype(np.float32), "b": draw.standard_normal(2).astype(np.float32)}


WHOLE = {
    "TimeDistributed(Dense) of Keras": (
        "s# = $ q# = Squeeze(s#, at) m# = MatMul(q#, w) a# = Add(m#, b) r# = Unsqueeze(a#, at)",
        {},
        {"MatMul": 1, "Add": 1},
    ),
    "along the first axis": (
        "s# = $ q# = Squeeze(s#, at) m# = MatMul(q#, w) a# = Add(b, m#) r# = Unsqueeze(a#, at)",
        {"shape": "3, N, 4", "axis": 0},
        {"MatMul": 1, "Add": 1},
    ),
    "torch.stack of nn.Linear": (
        "s# = Gather <axis = 1> (x, p#) m# = Gemm <transB = 1> (s#, v, b) a# = Relu(m#) r# = Unsqueeze(a#, at)",
        {},
        {"Transpose": 1, "MatMul": 1, "Add": 1, "Relu": 1},
    ),
    "a Gemm without a bias": (
        "s# = Gather <axis = -2> (x, p#) m# = Gemm(s#, w) r# = Unsqueeze(m#, at)",
        {},
        {"MatMul": 1},
    ),
    "parts that keep their axis": ("s# = $ m# = MatMul(s#, w) r# = Mul(m#, k)", {}, {"MatMul": 1, "Mul": 1}),
    "parts of a Split": (
        "q# = Squeeze(s#, at) m# = MatMul(q#, w) t# = Tanh(m#) r# = Unsqueeze(t#, at)",
        {"extra": "s0, s1, s2 = Split <axis = 1> (x)", "opset": 13},
        {"MatMul": 1, "Tanh": 1},
    ),
    "before opset 13": (
        "s# = $ q# = Squeeze <axes = [1]> (s#) m# = MatMul(q#, w) r# = Unsqueeze <axes = [1]> (m#)",
        {"opset": 11},
        {"MatMul": 1},
    ),
    "a constant of each copy": (
        "s# = $ c# = Constant <value = float {2}> () r# = Div(c#, s#)",
        {},
        {"Div": 1},
    ),
    "rows": (
        "s# = $ m# = MatMul(s#, w) r# = Softplus(m#)",
        {"shape": "3, 4", "axis": 0, "result": "A, B"},
        {"MatMul": 1, "Softplus": 1},
    ),
}


@pytest.mark.parametrize(("body", "how", "left"), WHOLE.values(), ids=WHOLE)
def test_the_same_on_each_part_is_that_on_the_whole(body: str, how: dict[str, object], left: dict[str, int]) -> None:
    model = unrolled(body, **how)  # type: ignore[arg-type]
    written = joined(model)
    assert operators(written) == left
    onnx.checker.check_model(written)
    dims = [size.dim_value or 2 for size in model.graph.input[0].type.tensor_type.shape.dim]
    given = feeds(tuple(dims))
    np.testing.assert_allclose(run(written, given)[0], run(model, given)[0], rtol=1e-5, atol=1e-6)


def stays(model: onnx.ModelProto) -> None:
    """Nothing changes, and no value has a reader that is in no graph."""
    made = ir.from_proto(model)
    infer_shapes(made)
    join_parts(made)
    assert operators(ir.to_proto(made)) == operators(model)
    values = [*made.graph.inputs, *made.graph.initializers.values(), *(o for node in made.graph for o in node.outputs)]
    assert all(use.node.graph is made.graph for value in values for use in value.uses())


def test_parts_in_another_order_stay() -> None:
    stays(unrolled("s# = Gather <axis = 1> (x, o#) a# = Relu(s#) r# = Unsqueeze(a#, at)", extra="""
        o0 = Constant <value_int = 0> () o1 = Constant <value_int = 2> () o2 = Constant <value_int = 1> ()"""))  # fmt: skip


def test_some_of_the_parts_stay() -> None:
    stays(unrolled("s# = $ r# = Relu(s#)", parts=2))
    stays(unrolled("s# = Gather <axis = 1> (x, p#) a# = Relu(s#) r# = Unsqueeze(a#, at)", shape="N, M, 4"))


def test_a_copy_with_another_number_stays() -> None:
    body = "s# = $ r# = LeakyRelu <alpha = 0.#> (s#)"
    stays(unrolled(body))
    stays(unrolled("s# = $ r# = Add(s#, c#)", extra="c0 = Constant <value_float = 1.0> () c1 = Neg(k) c2 = Neg(k)"))


def test_a_product_along_the_axis_stays() -> None:
    stays(
        unrolled(
            "s# = $ m# = MatMul(s#, o) r# = Relu(m#)", shape="N, 4, 3", axis=2, extra="o = Constant <value = float[1, 1] {2}> ()"
        )
    )


def test_an_operand_with_the_axes_in_front_stays() -> None:
    stays(unrolled("s# = $ q# = Squeeze(s#, at) m# = Add(q#, o) r# = Unsqueeze(m#, at)", shape="2, 3, 4", extra="""
        o = Constant <value = float[2, 1] {1, 2}> ()"""))  # fmt: skip


def test_a_part_that_something_else_reads_stays() -> None:
    stays(unrolled("s# = $ e# = Exp(s#) f# = Neg(e#) r# = Mul(e#, f#)"))


def test_another_axis_of_the_result_stays() -> None:
    stays(unrolled("s# = Gather <axis = 1> (x, p#) a# = Relu(s#) r# = Unsqueeze(a#, i0)"))


def test_an_operator_that_does_not_work_on_each_part_alone_stays() -> None:
    body = "s# = $ q# = Squeeze(s#, at) e# = Exp(q#) c# = CumSum(e#, i0) r# = Unsqueeze(c#, at)"
    stays(unrolled(body))
    stays(unrolled("s# = $ q# = Squeeze(s#, at) e# = Exp(q#) c# = Add(e#, o) r# = Unsqueeze(c#, at)", shape="2, 3, 4", extra="""
        o = Constant <value = float[2, 1] {1, 2}> ()"""))  # fmt: skip


def test_a_scaled_gemm_stays() -> None:
    stays(unrolled("s# = Gather <axis = 1> (x, p#) a# = Gemm <alpha = 0.5> (s#, w, b) r# = Unsqueeze(a#, at)"))


@given(st.data())
def test_any_loop_computes_the_same(data: st.DataObject) -> None:
    steps = data.draw(
        st.lists(st.sampled_from(["Relu({})", "Add({}, k)", "Mul(k, {})", "MatMul({}, w)", "Sub(b, {})", "Tanh({})"]), max_size=4)
    )
    axis = data.draw(st.sampled_from([0, 1, 2]))
    shape = data.draw(st.sampled_from(["3, 3, 4", "3, 2, 4", "2, 3, 4", "2, 4, 3", "3, 3, 3"]))
    squeezed = data.draw(st.booleans())
    lines, last = ["s# = $"], "s#"
    if squeezed:
        lines.append("q# = Squeeze(s#, at)")
        last = "q#"
    for number, step in enumerate(steps):
        lines.append(f"t{number}_# = {step.format(last)}")
        last = f"t{number}_#"
    lines.append(f"r# = Unsqueeze({last}, at)" if squeezed else f"r# = Identity({last})")
    model = unrolled(" ".join(lines), shape=shape, axis=axis)
    given = feeds(tuple(int(size) for size in shape.split(",")))
    try:
        before = run(model, given)[0]
    except Exception:  # the operators don't fit, or there are more parts than the axis has
        return
    np.testing.assert_allclose(run(joined(model), given)[0], before, rtol=1e-5, atol=1e-5)


def test_the_command_writes_one_product(tmp_path: Path) -> None:
    body, how, _ = WHOLE["torch.stack of nn.Linear"]
    onnx.save(unrolled(body, **how), tmp_path / "loop.onnx")  # type: ignore[arg-type]
    result = fuse(tmp_path / "loop.onnx", tmp_path / "fused.onnx", load_patterns(), Options())
    assert result.verdict is not None and result.verdict.verdict == "equivalent"
    assert result.simplified.simpler == 1 and "Gemm" not in result.operators_after
    assert result.operators_after.total() <= 4
