"""A place like an earlier one has the same outcome: nothing else changes, and nothing is worked out twice."""

from __future__ import annotations

from collections import defaultdict
from itertools import cycle
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.emitting.fragment import Fragment
from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting import replacement
from onnx_subgraph.rewriting.costs import measured
from onnx_subgraph.rewriting.outcomes import Case, Outcomes
from onnx_subgraph.rewriting.rewrite import Place
from onnx_subgraph.rewriting.rounds import Barred, Fused, Rewriter
from onnx_subgraph.rewriting.wishes import look_ahead
from tests.rewriting.stage import LOADABILITY, pattern, rewritten

SAMPLES = Path(__file__).parents[2] / "sample_models"
SILU = """
    <ir_version: 8, opset_import: ["" : 17]>
    g ({0}[2, 4] x, {1}[2, 4] u) => ({0}[2, 4] y, {1}[2, 4] v) {{
        a = Sigmoid(x)
        y = Mul(x, a)
        b = Sigmoid(u)
        v = Mul(u, b)
    }}
"""

WEIGHTS = {name: np.linspace(start, start + 1, 100).round(3) for name, start in (("w1", 1), ("b1", 2), ("w2", 3), ("b2", 4))}


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The last nodes of the matches for which a replacement was written, in order."""
    found: list[str] = []
    checked = replacement._checked

    def count(choice, *arguments):  # type: ignore[no-untyped-def]
        found.append(choice.match.nodes[-1].outputs[0].name)
        return checked(choice, *arguments)

    monkeypatch.setattr(replacement, "_checked", count)
    return found


def _silu(replace: str) -> Pattern:
    return pattern("y = x * Sigmoid(x)", example="{x: 'float32[2, 4]'}", onnxruntime=replace)


def _rewriter(target: str) -> Rewriter:
    return Rewriter(load_patterns().patterns, target, [LOADABILITY], costs=measured(), simplifying=True)


def _same(one: Fused, other: Fused) -> bool:
    return one.skips == other.skips and one.rewrites == other.rewrites and ir.to_proto(one.model) == ir.to_proto(other.model)


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("onnxruntime", ["t5_dynamo", "llama_torchscript"]),
        ("native", ["gpt2_dynamo"]),
        ("standard", ["unet_dynamo"]),
        ("function", ["llama_dynamo"]),
    ],
)
def test_nothing_but_the_work_changes(target: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at the places of one attempt, nor in attempts after a look ahead and after others."""
    for name in names:
        model = load(SAMPLES / f"{name}.onnx")
        infer_shapes(model)
        with monkeypatch.context() as patch:
            patch.setattr(Outcomes, "case", lambda *_: None)
            slow, half = _rewriter(target)(model), _rewriter(target)(model, _every_second())
        assert _same(_rewriter(target)(model), slow)
        rewriter = _rewriter(target)
        look_ahead(model, rewriter)
        assert _same(rewriter(model, _every_second()), half)
        assert _same(rewriter(model), slow)


def _every_second() -> Barred:
    """Bars every second place that it is asked about."""
    admitted: defaultdict[Place, bool] = defaultdict(cycle((True, False)).__next__)
    return lambda place: () if admitted[place] else None


def test_a_later_attempt_writes_no_replacement_again(tried: list[str]) -> None:
    model = load(SAMPLES / "bert_torchscript.onnx")
    infer_shapes(model)
    rewriter = _rewriter("onnxruntime")
    look_ahead(model, rewriter)
    looked = set(tried)
    tried.clear()
    rewriter(model)
    first = list(tried)
    tried.clear()
    rewriter(model)
    assert len(tried) < len(first) / 3
    tried.clear()
    _rewriter("onnxruntime")(model)
    assert len(looked) > 1 and len(first) < len(tried), "what the look ahead wrote is not written again"


def test_a_place_like_a_refused_one_is_not_tried(tried: list[str]) -> None:
    refused = _silu("y = com.microsoft.NoSuchOperator(x)")
    stage = rewritten(SILU.format("float", "float"), refused)
    assert tried == ["y"]
    assert [skip.node for skip in stage.skips] == ["y", "v"]
    assert len({skip.reason for skip in stage.skips}) == 1


def test_a_place_like_a_replaced_one_gets_a_copy(tried: list[str]) -> None:
    stage = rewritten(SILU.format("float", "float"), _silu("y = com.microsoft.QuickGelu(x, alpha=1.0)"))
    assert tried == ["y"]
    assert stage.operators == ["com.microsoft.QuickGelu"] * 2
    stage.agrees({"x": np.eye(2, 4, dtype=np.float32), "u": -np.eye(2, 4, dtype=np.float32)})


@pytest.mark.parametrize(
    ("replace", "tries"),
    [
        ("y = Add(b, Mul(w, x))", ["y"]),  # weights are read in the run
        ("y = Mul(Add(x, Div(b, w)), w)", ["y", "v"]),  # new ones are computed from them
    ],
)
def test_each_place_keeps_its_weights(replace: str, tries: list[str], tried: list[str]) -> None:
    weights = ", ".join(f"float[100] {name} = {{{', '.join(map(str, row))}}}" for name, row in WEIGHTS.items())
    model = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 100] x, float[2, 100] u) => (float[2, 100] y, float[2, 100] v) <{weights}> {{
            a = Mul(x, w1)
            y = Add(a, b1)
            c = Mul(u, w2)
            v = Add(c, b2)
        }}
    """
    example = "{x: 'float32[2, 100]', w: 'float32[100] constant', b: 'float32[100] constant'}"
    where = "where: w.is_constant and b.is_constant"
    stage = rewritten(model, pattern("y = x * w + b", example=example, extra=where, onnxruntime=replace))
    assert tried == tries
    assert len(stage.rewrites) == 2
    stage.agrees({"x": np.ones((2, 100), np.float32), "u": np.full((2, 100), 2, np.float32)})


def test_a_place_of_another_type_is_tried(tried: list[str]) -> None:
    refused = _silu("y = com.microsoft.NoSuchOperator(x)")
    rewritten(SILU.format("float", "double"), refused)
    assert tried == ["y", "v"]


def test_a_reason_names_its_own_place(tried: list[str]) -> None:
    wrong = _silu("y = Cast(x, to=10)")
    stage = rewritten(SILU.format("float", "float"), wrong)
    assert tried == ["y", "v"]
    assert [skip.reason.split(" would")[0] for skip in stage.skips] == ["the result y", "the result v"]


@pytest.mark.parametrize(
    ("first", "second", "tries"),
    [
        ("{0.5}", "{0.5}", ["y"]),
        ("{0.5}", "{0.25}", ["y", "v"]),
    ],
)
def test_a_place_with_another_constant_is_tried(first: str, second: str, tries: list[str], tried: list[str]) -> None:
    model = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 4] x, float[2, 4] u) => (float[2, 4] y, float[2, 4] v) <float a = {first}, float b = {second}> {{
            y = Mul(x, a)
            v = Mul(u, b)
        }}
    """
    rewritten(
        model,
        pattern(
            "y = x * k",
            example="{x: 'float32[2, 4]', k: 0.5}",
            extra="where: k.is_constant",
            onnxruntime="y = com.microsoft.NoSuchOperator(x, k)",
        ),
    )
    assert tried == tries


@pytest.mark.parametrize(
    ("types", "size", "first", "second", "tries"),
    [
        ("float[2, 4] x, float[2, 4] u", "P", "x, u, u", "x, u, u", ["y"]),
        ("float[2, 4] x, float[2, 4] u", "P", "x, x, x", "u, u, u", ["y"]),
        ("float[2, 4] x, float[2, 4] u", "P", "x, u, u", "x, u, x", ["y", "v"]),
        ("float[2, 4] x, float[3, 4] u", "P", "x, x, x", "u, u, u", ["y", "v"]),
        ("float[N, 4] x, float[M, 4] u", "P", "x, x, x", "u, u, u", ["y", "v"]),
        ("float[2, 4] x, float[2, 4] u", "Q", "x, x, x", "u, u, u", ["y", "v"]),
        ("float[2, 4] x, float16[2, 4] u", "P", "x, x, x", "x, x, u", ["y", "v"]),
    ],
)
def test_places_that_differ_in_a_fact_are_tried(
    types: str, size: str, first: str, second: str, tries: list[str], tried: list[str]
) -> None:
    """Their types, shapes, the names of their sizes, and which operands are the same value, also of those without a name."""
    model = f"""
        <ir_version: 8, opset_import: ["" : 17, "vendor": 1]>
        g ({types}) => (float[P, 4] y, float[{size}, 4] v) {{
            y = vendor.Mix({first})
            v = vendor.Mix({second})
        }}
    """
    example = "{a: 'float32[2, 4]', b: 'float32[2, 4]'}"
    rewritten(model, pattern("y = vendor.Mix(a, b, _)", example=example, onnxruntime="y = com.microsoft.NoSuchOperator(a, b)"))
    assert tried == tries


def test_a_place_with_another_large_table_is_tried(tried: list[str]) -> None:
    tables = ", ".join(f"int64[600] {name} = {{{', '.join([str(number)] * 600)}}}" for name, number in (("k", 1), ("m", 2)))
    model = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (int64[600] x, int64[600] u) => (int64[600] y, int64[600] v) <{tables}> {{ y = Mul(x, k) v = Mul(u, m) }}
    """
    example = "{x: 'int64[600]', k: 'int64[600] constant'}"
    rewritten(model, pattern("y = x * k", example=example, onnxruntime="y = com.microsoft.NoSuchOperator(x, k)"))
    assert tried == ["y", "v"]


def test_a_place_of_which_fewer_results_are_read_is_tried(tried: list[str]) -> None:
    model = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 4] x, float[2, 4] u) => (float[2, 4] y, float[2, 4] z, float[2, 4] v) {
            y = Sin(x)
            z = Exp(y)
            v = Sin(u)
            w = Exp(v)
        }
    """
    both = pattern("y = Sin(x)\nz = Exp(y)", example="{x: 'float32[2, 4]'}", onnxruntime="y = Sin(x)\nz = Exp(Sin(x))")
    rewritten(model, both)
    assert tried == ["z", "w"]


def test_a_replacement_that_reads_what_is_removed_here_is_refused_here() -> None:
    """Others read the first factor at one place, so it stays there; at the other place it goes with the match."""
    model = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x, float[2] u, float[2] w, float[2] t) => (float[2] y, float[2] v, float[2] p, float[2] s) {
            p = Sin(x)
            q = Sin(u)
            y = Sub(p, q)
            r = Sin(w)
            s = Sin(t)
            v = Sub(r, s)
        }
    """
    example = "{a: 'float32[2]', b: 'float32[2]'}"
    replace = "y = (p + a) - (Sin(b) + a)"
    reads = pattern("p = Sin(a)\nq = Sin(b)\ny = p - q", example=example, extra="shares: [p, q]", onnxruntime=replace)
    stage = rewritten(model, reads)
    assert [rewrite.root for rewrite in stage.rewrites] == ["y"]
    assert "reads the inner value r" in stage.skips[0].reason
    stage.agrees({name: np.full(2, number, np.float32) for number, name in enumerate("xuwt")})


def test_a_function_has_the_alternative_of_its_place() -> None:
    model = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x, float[2] u) => (float[2] y, float[2] v) <float[2] k = {1, 2}> {
            a = Sub(x, k)
            y = Relu(a)
            b = Sub(k, u)
            v = Relu(b)
        }
    """
    example = "{x: 'float32[2]', k: 'float32[2] constant'}"
    either = pattern("y = Relu(x - k) | Relu(k - x)", example=example, extra="where: k.is_constant")
    stage = rewritten(model, either, target="function")
    assert len(stage.rewrites) == 2
    stage.agrees({"x": np.full(2, 3, np.float32), "u": np.full(2, -3, np.float32)})


def test_a_copy_has_the_captured_attributes_of_its_place() -> None:
    model = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x, float[2] u) => (float[2] y, float[2] v) {
            a = LeakyRelu <alpha = 0.1> (x)
            y = Neg(a)
            b = LeakyRelu <alpha = 0.2> (u)
            v = Neg(b)
        }
    """
    leaky = pattern("y = Neg(LeakyRelu(x, **rest))", example="{x: 'float32[2]'}", onnxruntime="y = LeakyRelu(x, **rest) * -1")
    stage = rewritten(model, leaky)
    assert len(stage.rewrites) == 2
    stage.agrees({"x": np.full(2, -3, np.float32), "u": np.full(2, -3, np.float32)})


@pytest.mark.parametrize(("first", "second", "tries"), [(17, 17, ["y"]), (17, 18, ["y", "y"])])
def test_a_place_at_another_opset_is_tried(first: int, second: int, tries: list[str], tried: list[str]) -> None:
    model = f"""
        <ir_version: 10, opset_import: ["" : 17, "a": 1, "b": 1]>
        g (float[2, 4] x) => (float[2, 4] z) {{ m = a.f(x) z = b.f(m) }}
        <domain: "a", opset_import: ["" : {first}]> f (x) => (y) {{ s = Sigmoid(x) y = Mul(x, s) }}
        <domain: "b", opset_import: ["" : {second}]> f (x) => (y) {{ s = Sigmoid(x) y = Mul(x, s) }}
    """
    rewritten(model, _silu("y = com.microsoft.NoSuchOperator(x)"))
    assert tried == tries


def test_a_place_in_a_function_is_tried(tried: list[str]) -> None:
    model = """
        <ir_version: 10, opset_import: ["" : 17, "a": 1]>
        g (float[2, 4] x) => (float[2, 4] z) { s = Sigmoid(x) y = Mul(x, s) z = a.f(y) }
        <domain: "a", opset_import: ["" : 17, "a": 1]> f (x) => (y) { s = Sigmoid(x) y = Mul(x, s) }
    """
    rewritten(model, _silu("y = com.microsoft.NoSuchOperator(x)"))
    assert tried == ["y", "y"]


def test_copies_have_constants_of_their_own() -> None:
    model = SILU.format("float", "float").replace("2, 4", "2, 400")
    stage = rewritten(model, _silu("y = x * Sigmoid(x) + Range(0.0, 400.0, 1.0) * 0"))
    constants = stage.model.graph.initializers.values()
    assert len(constants) == 2
    assert all(value.const_value is not None and value.const_value.name == value.name for value in constants)
    stage.agrees({"x": np.ones((2, 400), np.float32), "u": -np.ones((2, 400), np.float32)})


def test_a_copy_calls_only_functions_of_the_model() -> None:
    outcomes, function = Outcomes(), ir.Function("own", "f", graph=ir.Graph([], [], nodes=[]), attributes=[])
    fragment = Fragment({"own": 1}, lambda _: None, functions=[function])
    fragment.provides["y"] = fragment.node("f", [], domain="own")[0]
    case = Case("kind", ())
    outcomes.made(case, fragment)
    other = ir.Function("own", "f", graph=ir.Graph([], [], nodes=[]), attributes=[])
    assert outcomes.known(case, {}) is None
    assert outcomes.known(case, {other.identifier(): other}) is None
    copied = outcomes.known(case, {function.identifier(): function})
    assert copied is not None
    assert [node.op_type for node in copied.nodes] == ["f"]
    assert copied.provides["y"] is copied.nodes[0].outputs[0] is not fragment.provides["y"]


def test_no_large_constant_is_computed_to_copy_it() -> None:
    def compute() -> ir.TensorProtocol:
        raise AssertionError

    outcomes, case, fragment = Outcomes(), Case("kind", ()), Fragment({"": 17}, lambda _: None)
    constant = fragment.constant(ir.LazyTensor(compute, dtype=ir.DataType.FLOAT, shape=ir.Shape([2000])))
    fragment.provides["y"] = fragment.node("Neg", [constant])[0]
    outcomes.made(case, fragment)
    assert outcomes.known(case, {}) is None
