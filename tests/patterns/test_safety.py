"""What a fusion must not break, end to end: each row is a model on which some fuser is known to fail.

Each model is fused as on the command line, with verification. The written file is then compared with the original on the test's
own feeds, with onnxruntime's optimisation off. A row that must not fuse also lists the operators it keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse
from onnx_subgraph.result import FuseResult

LIBRARY = load_patterns()


@dataclass(frozen=True)
class Fused:
    """A fused model: the result of `fuse`, and both models as files and protobufs."""

    result: FuseResult
    source: Path
    output: Path
    before: onnx.ModelProto
    after: onnx.ModelProto

    @property
    def operators(self) -> Counter[str]:
        """The operators of the main graph of the written model, with their domains."""
        return Counter(_name(n) for n in self.after.graph.node)

    @property
    def patterns(self) -> Counter[str]:
        """The patterns that fused."""
        return Counter(r.pattern for r in self.result.rewrites)

    def agrees(self, **feeds: Any) -> None:
        """Assert that both models give the same results for these feeds. The other feeds are random."""
        given = {**_drawn(self.before), **feeds}
        expected, found = _run(self.source, given), _run(self.output, given)
        for a, b in zip(expected, found, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def _name(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _drawn(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    random, feeds, known = np.random.default_rng(0), {}, {t.name for t in model.graph.initializer}
    for value in model.graph.input:
        if value.name in known:
            continue
        shape = [d.dim_value or 2 for d in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        drawn = random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 5, shape)
        feeds[value.name] = np.asarray(drawn).astype(dtype)
    return feeds


def _run(path: Path, feeds: Mapping[str, Any]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, dict(feeds)))


@pytest.fixture
def fused(tmp_path: Path) -> Any:
    """Fuse a model in text form; its header is added if missing."""

    def run(text: str, *, version: int = 17, **options: Any) -> Fused:
        header = f'<ir_version: 8, opset_import: ["": {version}, "com.microsoft": 1, "local": 1]>\n'
        before = onnx.parser.parse_model(header + text if not text.lstrip().startswith("<ir_version") else text)
        source, output = tmp_path / "model.onnx", tmp_path / "model.fused.onnx"
        onnx.save(before, source)
        result = fuse(source, output, LIBRARY, Options(**options))
        assert result.verdict.verdict != "different", result.verdict
        assert result.output == output
        after = onnx.load(output)
        assert [i.name for i in after.graph.input] == [i.name for i in before.graph.input]
        assert [o.name for o in after.graph.output] == [o.name for o in before.graph.output]
        return Fused(result, source, output, before, after)

    return run


GELU = "a = Div(x, root) e = Erf(a) s = Add(e, one) m = Mul(x, s) y = Mul(m, half)"
CONSTANTS = "float root = {1.4142135}, float one = {1}, float half = {0.5}"

STATISTICS = "float[2] scale = {1, 2}, float[2] shift = {3, 4}, float[2] mean = {5, 6}, float[2] var = {1, 2}"
TINY_VARIANCES = STATISTICS.replace("var = {1, 2}", "var = {0, 0.00001}")


def gelu(constants: str = CONSTANTS, inputs: str = "float[2, 8] x", outputs: str = "float[2, 8] y", more: str = "") -> str:
    """The usual spelling of GELU, with one part replaced."""
    return f"agraph ({inputs}) => ({outputs}) <{constants}> {{ {GELU} {more} }}"


def test_the_model_of_these_tests_fuses(fused: Any) -> None:
    model = fused(gelu())
    assert model.operators == {"com.microsoft.Gelu": 1}
    model.agrees()


# Overridable initializers


def test_an_overridable_initializer_is_not_a_constant(fused: Any) -> None:
    """The factor is a graph input with a default. A caller may change it, so the product is not GELU."""
    model = fused(gelu("float root = {1.4142135}, float one = {1}", inputs="float[2, 8] x, float half = {0.5}"))
    assert model.operators["Erf"] == 1
    model.agrees(half=np.array(2, np.float32))


def test_an_overridable_initializer_stays_overridable(fused: Any) -> None:
    """The scale of a normalization may have any value, so it remains an input."""
    model = fused(
        """
        agraph (float[2, 3, 8] x, float[8] scale = {1, 1, 1, 1, 1, 1, 1, 1}) => (float[2, 3, 8] y)
        <float eps = {0.00001}, float two = {2}, float[8] bias = {1, 2, 3, 4, 5, 6, 7, 8}>
        {
          mean = ReduceMean <axes = [-1]> (x)
          d = Sub(x, mean) p = Pow(d, two)
          var = ReduceMean <axes = [-1]> (p)
          v = Add(var, eps) s = Sqrt(v) n = Div(d, s) z = Mul(n, scale) y = Add(z, bias)
        }
        """
    )
    assert model.operators == {"LayerNormalization": 1}
    assert [t.name for t in model.after.graph.initializer if t.name == "scale"] == ["scale"]
    model.agrees(scale=np.arange(8, dtype=np.float32))


def test_an_overridable_weight_is_not_folded(fused: Any) -> None:
    model = fused(
        f"""
        agraph (float[1, 1, 3, 3] x, float[2, 1, 1, 1] w = {{1, 2}}) => (float[1, 2, 3, 3] y)
        <{STATISTICS}>
        {{ c = Conv(x, w) y = BatchNormalization(c, scale, shift, mean, var) }}
        """
    )
    assert model.operators["BatchNormalization"] == 1
    model.agrees(w=np.full((2, 1, 1, 1), 7, np.float32))


# Readers outside the match


def test_an_inner_value_that_is_an_output_is_kept(fused: Any) -> None:
    model = fused(gelu(outputs="float[2, 8] y, float[2, 8] e"))
    assert model.operators["Erf"] == 1
    model.agrees()


def test_a_mean_that_is_an_output_is_kept(fused: Any) -> None:
    """A fuser that removes the mean writes an invalid model."""
    model = fused(
        """
        agraph (float[2, 3, 8] x) => (float[2, 3, 8] y, float[2, 3, 1] mean)
        <float eps = {0.00001}, float two = {2}, float[8] scale = {1, 2, 3, 4, 5, 6, 7, 8}>
        {
          mean = ReduceMean <axes = [-1]> (x)
          d = Sub(x, mean) p = Pow(d, two)
          var = ReduceMean <axes = [-1]> (p)
          v = Add(var, eps) s = Sqrt(v) n = Div(d, s) y = Mul(n, scale)
        }
        """
    )
    model.agrees()


def test_an_inner_value_with_a_second_reader_is_kept(fused: Any) -> None:
    model = fused(gelu(outputs="float[2, 8] y, float[2, 8] z", more="z = Neg(s)"))
    assert model.operators["Erf"] == 1
    model.agrees()


def test_an_inner_value_that_an_if_body_reads_is_kept(fused: Any) -> None:
    model = fused(
        gelu(
            inputs="float[2, 8] x, bool c",
            outputs="float[2, 8] y, float[2, 8] z",
            more="""z = If (c) <
              then_branch = yes () => (float[2, 8] t) { t = Neg(e) },
              else_branch = no () => (float[2, 8] f) { f = Abs(x) }>""",
        )
    )
    assert model.operators["Erf"] == 1
    model.agrees(c=np.array(True))
    model.agrees(c=np.array(False))


def test_a_shared_initializer_keeps_its_value(fused: Any) -> None:
    """Two convolutions share a weight, and one of them absorbs a normalization."""
    model = fused(
        f"""
        agraph (float[1, 1, 3, 3] x) => (float[1, 2, 3, 3] y, float[1, 2, 3, 3] z)
        <float[2, 1, 1, 1] w = {{1, 2}}, {STATISTICS}>
        {{ c = Conv(x, w) y = BatchNormalization(c, scale, shift, mean, var) z = Conv(x, w) }}
        """
    )
    assert model.operators == {"Conv": 2}
    model.agrees()


def test_a_shared_weight_that_is_normalized_twice(fused: Any) -> None:
    model = fused(
        f"""
        agraph (float[1, 1, 3, 3] x) => (float[1, 2, 3, 3] y, float[1, 2, 3, 3] z)
        <float[2, 1, 1, 1] w = {{1, 2}}, {STATISTICS}>
        {{
          c = Conv(x, w) y = BatchNormalization(c, scale, shift, mean, var)
          d = Conv(x, w) z = BatchNormalization(d, shift, scale, var, mean)
        }}
        """
    )
    assert model.operators == {"Conv": 2}
    model.agrees()


# Bodies and functions


def test_a_pattern_in_an_if_body_is_found_there(fused: Any) -> None:
    model = fused(
        f"""
        agraph (float[2, 8] x, bool c) => (float[2, 8] z) <{CONSTANTS}>
        {{
          z = If (c) <
            then_branch = yes () => (float[2, 8] y) {{ {GELU} }},
            else_branch = no () => (float[2, 8] f) {{ f = Abs(x) }}>
        }}
        """
    )
    body = next(a.g for a in model.after.graph.node[0].attribute if a.name == "then_branch")
    assert [_name(n) for n in body.node] == ["com.microsoft.Gelu"]
    model.agrees(c=np.array(True))
    model.agrees(c=np.array(False))


def test_a_pattern_in_a_local_function_is_found_there(fused: Any) -> None:
    model = fused(
        f"""
        agraph (float[2, 8] x) => (float[2, 8] z) {{ z = local.act(x) }}
        <domain: "local", opset_import: ["": 17]>
        act (x) => (y)
        {{
          root = Constant <value = float {{1.4142135}}> ()
          one = Constant <value = float {{1}}> ()
          half = Constant <value = float {{0.5}}> ()
          {GELU}
        }}
        """
    )
    assert [_name(n) for f in model.after.functions for n in f.node] == ["com.microsoft.Gelu"]
    model.agrees()


# Constants


@pytest.mark.parametrize(
    ("root", "one", "half"),
    [
        (7, 3, 9),
        (1.4142135, 1, 0.51),
        (1.4142135, 1, 0.505),
        (1.42, 1, 0.5),
        (1.4142135 * 1.01, 1, 0.5),
        (1.4142135, 1.01, 0.5),
        (1.4142135, 1, -0.5),
        (1 / 1.4142135, 1, 0.5),
    ],
)
def test_other_constants_do_not_match(fused: Any, root: float, one: float, half: float) -> None:
    model = fused(gelu(f"float root = {{{root}}}, float one = {{{one}}}, float half = {{{half}}}"))
    assert not {"gelu", "quick-gelu"} & set(model.patterns)
    model.agrees()


@pytest.mark.parametrize("root", [1.4142135, 1.414214, 1.4142])
def test_a_rounded_constant_matches(fused: Any, root: float) -> None:
    assert fused(gelu(f"float root = {{{root}}}, float one = {{1}}, float half = {{0.5}}")).patterns == {"gelu": 1}


def test_a_constant_that_raises_the_rank_does_not_match(fused: Any) -> None:
    """The result has four dimensions and the input two, so it is not GELU of the input."""
    text = gelu("float root = {1.4142135}, float one = {1}, float[1, 1, 1, 1] half = {0.5}", outputs="float[1, 1, 2, 8] y")
    model = fused(text)
    assert "com.microsoft.Gelu" not in model.operators
    model.agrees()


def test_a_scale_that_raises_the_rank_does_not_match(fused: Any) -> None:
    model = fused(
        """
        agraph (float[2, 3] a, float[3, 4] b) => (float[1, 1, 2, 4] y) <float[1, 1, 1, 1] s = {0.5}>
        { t = Mul(a, s) y = MatMul(t, b) }
        """
    )
    assert model.operators == {"Mul": 1, "MatMul": 1}
    model.agrees()


def test_a_factor_that_raises_the_rank_is_not_folded(fused: Any) -> None:
    model = fused(
        """
        agraph (float[1, 1, 3, 3] x) => (float[1, 1, 2, 3, 3] y) <float[2, 1, 1, 1] w = {1, 2}, float[1, 1, 1, 1, 1] k = {3}>
        { c = Conv(x, w) y = Mul(c, k) }
        """
    )
    assert model.operators == {"Conv": 1, "Mul": 1}
    model.agrees()


def test_a_constant_divided_by_a_value_is_no_scale(fused: Any) -> None:
    model = fused("agraph (float[2, 3] a, float[3, 4] b) => (float[2, 4] y) <float s = {0.5}> { t = Div(s, a) y = MatMul(t, b) }")
    assert model.operators == {"Div": 1, "MatMul": 1}


# Attributes with defaults


def test_batch_normalization_in_training_is_left_alone(fused: Any) -> None:
    """It normalizes by the statistics of the batch, not by the stored ones."""
    model = fused(
        f"""
        agraph (float[2, 1, 3, 3] x) => (float[2, 2, 3, 3] y)
        <float[2, 1, 1, 1] w = {{1, 2}}, {STATISTICS}>
        {{ c = Conv(x, w) y, m, v = BatchNormalization <training_mode = 1> (c, scale, shift, mean, var) }}
        """,
        verify=False,
    )
    assert model.operators == {"Conv": 1, "BatchNormalization": 1}


def test_dropout_in_training_is_not_looked_through(fused: Any) -> None:
    text = gelu(CONSTANTS + ", float ratio = {0.5}, bool training = {1}").replace(
        "s = Add(e, one)", "d = Dropout(e, ratio, training) s = Add(d, one)"
    )
    assert fused(text, verify=False).operators["Dropout"] == 1


def test_dropout_in_inference_is_looked_through(fused: Any) -> None:
    text = gelu(CONSTANTS + ", float ratio = {0.5}").replace("s = Add(e, one)", "d = Dropout(e, ratio) s = Add(d, one)")
    model = fused(text)
    assert model.operators == {"com.microsoft.Gelu": 1}
    model.agrees()


def test_the_default_epsilon_of_the_source_is_kept(fused: Any) -> None:
    """LayerNormalization's default is 1e-5, SkipLayerNormalization's 1e-12. With small activations the results differ a lot."""
    model = fused(
        """
        agraph (float[2, 3, 8] x, float[2, 3, 8] skip) => (float[2, 3, 8] y)
        <float[8] scale = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] bias = {1, 2, 3, 4, 5, 6, 7, 8}>
        { s = Add(x, skip) y = LayerNormalization(s, scale, bias) }
        """,
        prefer="fusion",
    )
    assert model.operators == {"com.microsoft.SkipLayerNormalization": 1}
    small = np.random.default_rng(1).standard_normal((2, 3, 8)).astype(np.float32) * 1e-3
    model.agrees(x=small, skip=small[::-1])


def test_the_default_epsilon_of_batch_normalization_is_kept(fused: Any) -> None:
    model = fused(
        f"""
        agraph (float[1, 1, 3, 3] x) => (float[1, 2, 3, 3] y)
        <float[2, 1, 1, 1] w = {{1, 2}}, {TINY_VARIANCES}>
        {{ c = Conv(x, w) y = BatchNormalization(c, scale, shift, mean, var) }}
        """
    )
    assert model.operators == {"Conv": 1}
    model.agrees()


# Element types


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_integers_get_no_operator_that_does_not_load(fused: Any, dtype: str) -> None:
    model = fused(
        f"""
        agraph ({dtype}[3, 2] a, {dtype}[3, 4] b, {dtype}[4] c) => ({dtype}[2, 4] y) <{dtype} s = {{2}}>
        {{ t = Transpose <perm = [1, 0]> (a) u = Mul(t, s) m = MatMul(u, b) y = Add(m, c) }}
        """
    )
    assert not any(n.domain == "com.microsoft" for n in model.after.graph.node)
    model.agrees()


def test_doubles_get_no_operator_that_does_not_load(fused: Any) -> None:
    """SkipLayerNormalization and FusedConv have no kernel for double. The written model still runs."""
    model = fused(
        """
        agraph (double[2, 3, 8] x, double[2, 3, 8] skip) => (double[2, 3, 8] y)
        <double[8] scale = {1, 2, 3, 4, 5, 6, 7, 8}, double[8] bias = {1, 2, 3, 4, 5, 6, 7, 8}>
        { s = Add(x, skip) n = LayerNormalization(s, scale, bias) t = Tanh(n) y = Mul(n, t) }
        """
    )
    assert model.operators["LayerNormalization"] == 1
    model.agrees()


def test_doubles_are_not_folded_in_single_precision(fused: Any) -> None:
    model = fused(
        """
        agraph (double[2, 3] x) => (double[2, 3] y) <double a = {0.1}, double b = {0.3}, double c = {0.7}, double d = {0.9}>
        { t = Mul(x, a) u = Add(t, b) v = Mul(u, c) y = Add(v, d) }
        """
    )
    expected, found = (_run(p, _drawn(model.before))[0] for p in (model.source, model.output))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# Names


def test_new_names_do_not_collide_with_existing_ones(fused: Any) -> None:
    """Values, nodes and initializers already have the names that a fusion would choose."""
    model = fused(
        f"""
        agraph (float[1, 1, 3, 3] x, float[2] Conv_output_0) => (float[1, 2, 3, 3] FusedConv, float[2] Conv)
        <float[2, 1, 1, 1] w = {{1, 2}}, {STATISTICS}>
        {{
          c = Conv(x, w) BatchNormalization = BatchNormalization(c, scale, shift, mean, var)
          FusedConv = Relu(BatchNormalization) Conv = Neg(Conv_output_0)
        }}
        """
    )
    assert model.operators == {"com.microsoft.FusedConv": 1, "Neg": 1}
    names = [n.name for n in model.after.graph.node]
    values = [*(t.name for t in model.after.graph.initializer), *(o for n in model.after.graph.node for o in n.output)]
    assert len(set(names)) == len(names) and len(set(values)) == len(values)
    model.agrees()


# Opsets


@pytest.mark.parametrize("opset", [9, 11, 13, 18, 20])
def test_a_convolution_fuses_at_every_opset(fused: Any, opset: int) -> None:
    model = fused(
        f"""
        agraph (float[1, 1, 3, 3] x) => (float[1, 2, 3, 3] y)
        <float[2, 1, 1, 1] w = {{1, 2}}, {STATISTICS}>
        {{ c = Conv(x, w) b = BatchNormalization(c, scale, shift, mean, var) y = Relu(b) }}
        """,
        version=opset,
    )
    assert model.operators == {"com.microsoft.FusedConv": 1}
    assert model.result.opset_after == opset
    model.agrees()


def test_softmax_before_opset_13_is_over_all_trailing_axes(fused: Any) -> None:
    """A pattern for one axis must not match the older operator over several. The numbers stay the same in any case."""
    text = "agraph (float[2, 3, 4] x, float[3, 4] b) => (float[2, 3, 4] y) { s = Add(x, b) y = Softmax <axis = 1> (s) }"
    fused(text, version=12).agrees()


def test_a_standard_operator_that_the_opset_lacks_is_skipped_with_its_reason(fused: Any) -> None:
    """The standard has Gelu since opset 20."""
    model = fused(gelu(), target="standard", opset="keep")
    assert "Gelu" not in model.operators and model.result.opset_after == 17
    assert any("opset 20" in skip.reason for skip in model.result.skipped)


@pytest.mark.parametrize("policy", ["auto", "20"])
def test_the_opset_is_raised_if_allowed(fused: Any, policy: str) -> None:
    model = fused(gelu(), target="standard", opset=policy)
    assert model.operators == {"Gelu": 1} and model.result.opset_after == 20
    model.agrees()


def test_the_opset_is_raised_for_a_kernel_of_the_results_type(fused: Any) -> None:
    """The variance is a double, for which there is no kernel of LayerNormalization beside float16. Only y must have one."""
    model = fused(
        """
        agraph (float16[2, 4, 8] x) => (float16[2, 4, 8] y)
        <double two = {2}, double eps = {1e-5}, float16[8] w = {1, 2, 1, 2, 1, 2, 1, 2}, float16[8] b = {0, 1, 0, 1, 0, 1, 0, 1}>
        {
          m = ReduceMean <axes = [-1]> (x) d = Sub(x, m) wide = Cast <to = 11> (d) p = Pow(wide, two)
          v = ReduceMean <axes = [-1]> (p) e = Add(v, eps) s = Sqrt(e) n = Div(wide, s) h = Cast <to = 10> (n)
          g = Mul(h, w) y = Add(g, b)
        }
        """,
        version=11,
        opset="auto",
    )
    assert model.operators == {"LayerNormalization": 1} and model.result.opset_after == 17
    model.agrees()


def test_the_opset_is_not_raised_without_need(fused: Any) -> None:
    model = fused("agraph (float[2, 8] x) => (float[2, 8] y) { y = Neg(x) }", target="standard", opset="auto")
    assert model.result.opset_after == 17 and model.output.read_bytes() == model.source.read_bytes()


def test_a_shift_that_may_be_larger_than_the_normalized_value_stays_outside(fused: Any) -> None:
    """LayerNormalization gives the shape of x. In the loop, nothing says that the carried value has no larger one."""
    result = fused(
        """
        g (float[batch, 3, 8] x, float[8] scale) => (float[a, b, c] y)
            <int64 trips = {2}, bool on = {1}, int64[3] sizes = {2, 3, 8}> {
            start = ConstantOfShape (sizes)
            y = Loop (trips, on, start) <body = step (int64 i, bool going, float[?, ?, ?] carried)
                => (bool same, float[?, ?, ?] next)
                <int64[1] last = {-1}, float two = {2}, float eps = {1e-5}> {
                same = Identity (going)
                m = ReduceMean (x, last)
                d = Sub (x, m)
                p = Pow (d, two)
                v = ReduceMean (p, last)
                e = Add (v, eps)
                s = Sqrt (e)
                n = Div (d, s)
                k = Mul (n, scale)
                next = Add (k, carried)
            }>
        }
    """,
        version=18,
    )
    body = next(n for n in result.after.graph.node if n.op_type == "Loop").attribute[0].g
    assert {"LayerNormalization", "Add"} <= {n.op_type for n in body.node}
    assert not result.result.undone
    result.agrees(x=np.random.default_rng(1).standard_normal((1, 3, 8)).astype(np.float32))


@pytest.mark.parametrize(("scale", "operator"), [(0.125, "com.microsoft.FusedMatMul"), (0.12625, "MatMul")])
def test_a_scale_that_float32_rounds_stays_outside_a_product_in_float64(scale: float, operator: str, fused: Any) -> None:
    """Attributes are float32."""
    model = fused(f"""
        g (double[2, 3, 4] a, double[2, 4, 5] b) => (double[2, 3, 5] y) <double scale = {{{scale}}}> {{
            s = MatMul (a, b)
            y = Mul (s, scale)
        }}
    """)
    assert operator in model.operators
    assert not model.result.undone
    before, after = (_run(path, _drawn(model.before)) for path in (model.source, model.output))
    np.testing.assert_allclose(after[0], before[0], rtol=1e-12)


# Sizes of 1, which may broadcast or vanish


def test_a_squeeze_without_axes_stays(fused: Any) -> None:
    """At length 1 it removes the axis of the length, too."""
    model = fused("agraph (float[seq, 8] x) => (y) { s = Squeeze(x) y = Softmax<axis = -1>(s) }")
    assert model.operators == {"Squeeze": 1, "Softmax": 1}
    model.agrees(x=np.ones((1, 8), np.float32))


def test_the_size_of_a_slice_with_steps_is_not_folded(fused: Any) -> None:
    """Of three rows, [0:6:2] has two and not three."""
    text = "int64[1] a = {0}, int64[1] e = {6}, int64[1] two = {2}"
    model = fused(f"agraph (float[seq, 8] x) => (y, z) <{text}> {{ y = Slice(x, a, e, a, two) z = Shape(y) }}")
    for length in (1, 3, 9):
        model.agrees(x=np.ones((length, 8), np.float32))


# Masks


MASKS = """agraph (float[N, 2, S, 4] q, float[N, 2, 4, S] k, float[N, 2, S, 4] v, bool[1, 1, S, S] keep, float[N, 1, 1, S] pad)
  => (float[N, 2, S, 4] y) <float low = {LOW}, float scale = {0.5}> {
  s = MatMul(q, k) t = Mul(s, scale) w = Where(keep, t, low) u = Add(w, pad) p = Softmax<axis = -1>(u) y = MatMul(p, v)
}"""
"""A causal mask and, added to it, one for padding."""


@pytest.mark.parametrize(("low", "is_fused"), [(-1e4, False), (-1e9, True), (-3.4028234663852886e38, True)])
def test_of_two_masks_the_one_that_drops_more_still_does(fused: Any, low: float, is_fused: bool) -> None:
    """With padding on the left, the first rows see only dropped keys. Which of the two masks drops more decides there."""
    model = fused(MASKS.replace("LOW", repr(low)), target="standard", prefer="fusion")
    assert (model.patterns["multi-head-attention"] == 1) is is_fused
    draw = np.random.default_rng(0)
    q, k, v = (draw.standard_normal(shape).astype(np.float32) for shape in [(1, 2, 6, 4), (1, 2, 4, 6), (1, 2, 6, 4)])
    keep = np.tril(np.ones((1, 1, 6, 6), bool))
    pad = np.array([[[[low, low, 0, 0, 0, 0]]]], np.float32)
    model.agrees(q=q, k=k, v=v, keep=keep, pad=pad)


def test_a_mask_that_a_later_factor_makes_small_is_kept(fused: Any) -> None:
    text = MASKS.replace("LOW", "-10000.0").replace("u = Add(w, pad)", "u = Mul(w, tiny)").replace(", float[N, 1, 1, S] pad", "")
    text = text.replace("float scale", "float tiny = {0.0001}, float scale")
    model = fused(text, target="standard", prefer="fusion", verify=False)
    assert model.patterns["multi-head-attention"] == 0


def test_a_product_with_a_vector_is_no_fused_matmul(fused: Any) -> None:
    """onnxruntime's FusedMatMul with transA gives another result for a vector."""
    product = "s = Transpose<perm = [1, 0]>(a) c = Cast<to = 1>(s) y = MatMul(c, b)"
    model = fused(f"agraph (float16[4, S] a, float[4] b) => (float[S] y) {{ {product} }}", prefer="fusion")
    assert not model.patterns and not model.result.undone


# Normalizations before products


def test_a_normalization_before_a_convolution_is_folded_although_an_activation_follows(fused: Any) -> None:
    model = fused(
        f"""
        agraph (float[1, 2, 3, 3] x) => (float[1, 1, 3, 3] y) <{STATISTICS}, float[1, 2, 1, 1] w = {{1, 2}}, float[1] b = {{3}}>
        {{ n = BatchNormalization(x, scale, shift, mean, var) c = Conv(n, w, b) y = Relu(c) }}
        """
    )
    assert model.operators == {"com.microsoft.FusedConv": 1}
    assert model.patterns == {"batch-normalization-before": 1, "conv-activation": 1}
    model.agrees()


def test_a_normalization_between_two_convolutions_is_folded_into_the_first(fused: Any) -> None:
    """The first weight already has the scale of the normalized values."""
    model = fused(
        f"""
        agraph (float[1, 1, 3, 3] x) => (float[1, 1, 3, 3] y)
        <{STATISTICS}, float[2, 1, 1, 1] v = {{1, 2}}, float[1, 2, 1, 1] w = {{1, 2}}>
        {{ c = Conv(x, v) n = BatchNormalization(c, scale, shift, mean, var) y = Conv(n, w) }}
        """
    )
    assert model.patterns == {"batch-normalization-after": 1}
    model.agrees()


@pytest.mark.parametrize(
    "product",
    [
        "y = Conv <pads = [0, 0, 0, 1]> (n, w)",
        'y = Conv <auto_pad = "SAME_LOWER"> (n, w)',
        "y = Conv(n, w) z = Relu(n)",
        "f = Flatten <axis = 0> (n) y = MatMul(f, v)",
    ],
    ids=["padding", "automatic padding", "another reader", "channels and positions in one axis"],
)
def test_a_normalization_is_not_folded_into_a_product_that_is_not_its_own(product: str, fused: Any) -> None:
    result = "float[a, b] y" if "v" in product else "float[a, b, c, d] y"
    model = fused(
        f"""
        agraph (float[1, 2, 2, 2] x) => ({result}{", float[1, 2, 2, 2] z" if "z =" in product else ""})
        <{STATISTICS}, float[1, 2, 2, 2] w = {{1, 2, 3, 4, 5, 6, 7, 8}}, float[8, 1] v = {{1, 2, 3, 4, 5, 6, 7, 8}}>
        {{ n = BatchNormalization(x, scale, shift, mean, var) {product} }}
        """
    )
    assert model.operators["BatchNormalization"] == 1
    model.agrees()


@pytest.mark.parametrize(
    ("back", "result", "operators"),
    [
        ("whole = Shape(p) y = Reshape(n, whole)", "float[b, l, 2] y", {"MatMul": 1, "Add": 1}),
        ("y = Reshape(n, heads)", "float[b, l, 2, 1] y", {"Reshape": 2, "Gemm": 1}),
    ],
    ids=["back to three axes", "on to four axes"],
)
def test_a_normalization_of_the_rows_of_a_product(back: str, result: str, operators: dict[str, int], fused: Any) -> None:
    model = fused(_rows("float[b, 3, 2] x", result, "r = Flatten <axis = 2> (p)", back))
    assert model.operators == operators
    model.agrees()


@pytest.mark.parametrize(
    ("product", "back"),
    [
        ("r = Flatten <axis = 2> (p)", "whole = Shape(p) y = Reshape(n, whole) z = Neg(p)"),
        ("t = Transpose <perm = [0, 2, 1]> (p) r = Reshape(t, pairs)", "y = Reshape(n, heads)"),
    ],
    ids=["another reader of the product", "channels that are moved"],
)
def test_other_normalizations_of_rows_are_left(product: str, back: str, fused: Any) -> None:
    results = "float[a, c, d] y, float[a, c, d] z" if "z =" in back else "float[a, c, d, e] y"
    model = fused(_rows("float[2, 3, 2] x", results, product, back))
    assert model.operators["BatchNormalization"] == 1
    model.agrees()


def _rows(x: str, results: str, product: str, back: str) -> str:
    """A linear layer of LeViT: the product, its rows, the normalization, and a Reshape."""
    return f"""
        agraph ({x}) => ({results})
        <{STATISTICS}, float[2, 2] w = {{1, 2, 3, 4}}, int64[2] pairs = {{-1, 2}}, int64[4] heads = {{-1, 3, 2, 1}}>
        {{ p = MatMul(x, w) {product} n = BatchNormalization(r, scale, shift, mean, var) {back} }}
    """


# Groups of channels


@pytest.mark.parametrize(("sizes", "ones"), [("t", "1"), ("t, 3", "1, 1"), ("2, t, 3", "1, 1, 1")])
def test_groups_of_channels_with_any_spatial_axes_become_one_operator(sizes: str, ones: str, fused: Any) -> None:
    model = fused(_grouped(f"float[4, {ones}]", sizes, "{1, 1}"), version=21, target="standard", prefer="fusion")
    assert model.operators == {"GroupNormalization": 1}
    model.agrees()


@pytest.mark.parametrize("scale", ["float[1, 4]", "float[4]", "float[1, 1, 4]"], ids=["positions", "fewer axes", "all axes"])
def test_a_scale_of_positions_stays_outside_the_normalization_of_groups(scale: str, fused: Any) -> None:
    """The length is 4 as the number of channels is, so only the shape of the scale tells them apart."""
    model = fused(_grouped(scale, "4", "{1, 1}"), version=21, target="standard", prefer="fusion")
    assert model.operators == {"GroupNormalization": 1, "Mul": 1, "Add": 1}
    model.agrees()


def test_groups_with_factors_of_their_own_are_left(fused: Any) -> None:
    model = fused(_grouped("float[4, 1]", "4", "{1, 2}"), version=21, target="standard", prefer="fusion")
    assert "GroupNormalization" not in model.operators
    model.agrees()


def _grouped(scale: str, sizes: str, factors: str) -> str:
    """GroupNorm as torch exports it: four channels in two groups. factors: of the groups, which torch sets to one."""
    return f"""
        g (float[b, 4, {sizes}] x) => (float[b, 4, {sizes}] y)
        <int64[3] split = {{0, 2, -1}}, float[2] one = {factors}, float[2] zero = {{0, 0}},
         {scale} w = {{1, 2, 3, 4}}, {scale} c = {{8, 7, 6, 5}}> {{
          r = Reshape(x, split)
          n = InstanceNormalization <epsilon = 1e-5> (r, one, zero)
          whole = Shape(x)
          o = Reshape(n, whole)
          s = Mul(o, w)
          y = Add(s, c)
        }}
    """


# Factors that no float can hold


@pytest.mark.parametrize(
    "body",
    [
        "d = Div(x, tiny) s = Sigmoid(d) y = Mul(d, s)",
        "p = Mul(x, large) q = Mul(p, p) r = Mul(q, p) s = Sigmoid(r) y = Mul(r, s)",
        "d = Div(tiny, x) e = Div(d, tiny) s = Sigmoid(e) y = Mul(e, s)",
    ],
)
def test_a_factor_beyond_the_range_of_floats_is_no_constant(fused: Any, body: str) -> None:
    """The reciprocal of a subnormal number is infinite, and so is a power of a large one."""
    constants = "double tiny = {1e-310}, double large = {1e200}"
    model = fused(f"agraph (double[2, 4] x) => (double[2, 4] y) <{constants}> {{ {body} }}")
    model.agrees(x=np.full((2, 4), 1e-305))
