"""Axes from the front and from the back are compared as equal, in matches and in sentences; never if the rank is unknown."""

from __future__ import annotations

import pytest

from onnx_subgraph.language.axis import Axis, AxisSet, numbered, same_axes, same_axis
from onnx_subgraph.language.library import load_patterns
from tests.matching.graphs import found, matches, model, pattern

SLICES = load_patterns().get("slice-slice")
EXAMPLE = '{x: "float32[2, 3, 8]", axis: -1, other: -1}'
KNOWN, UNKNOWN = "float[N, 3, 8] x", "float[] x"
AXES = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] axis0 = {0}, int64[1] axis1 = {1}, "
AXES += "int64[1] axis2 = {2}, int64[1] axism = {-1}"


@pytest.mark.parametrize(
    ("first", "second", "inputs", "count"),
    [
        ("1", "2", KNOWN, 1),
        ("1", "m", KNOWN, 1),
        ("2", "m", KNOWN, 0),
        ("m", "2", KNOWN, 0),
        ("1", "2", UNKNOWN, 1),
        ("2", "2", UNKNOWN, 0),
        ("2", "m", UNKNOWN, 0),
        ("1", "m", UNKNOWN, 0),
    ],
)
def test_slices_are_joined_only_where_their_axes_are_known_to_differ(first: str, second: str, inputs: str, count: int) -> None:
    text = f"a = Slice(x, zero, two, axis{first}) y = Slice(a, one, two, axis{second})"
    assert matches(SLICES, model(text, inputs=inputs, constants=AXES)) == count


def test_the_reason_is_the_unknown_rank() -> None:
    text = "a = Slice(x, zero, two, axis2) y = Slice(a, one, two, axism)"
    (miss,) = found(SLICES, model(text, inputs=UNKNOWN, constants=AXES)).near_misses
    assert "are the same axes is not known: their rank is unknown" in miss.found
    assert "declare the shapes of the inputs" in miss.change


@pytest.mark.parametrize("written", ["axis", "positional"])
@pytest.mark.parametrize(
    ("sentence", "inputs", "count"),
    [
        ("axis == -1", KNOWN, 1),
        ("axis == 2", KNOWN, 1),
        ("axis in [0, 2]", KNOWN, 1),
        ("axis != 2", KNOWN, 0),
        ("axis == 1", KNOWN, 0),
        ("axis >= 2 and axis > -2", KNOWN, 1),
        ("axis == 2", UNKNOWN, 1),
        ("axis == 1", UNKNOWN, 0),
        ("axis == -1", UNKNOWN, 0),
        ("axis != -1", UNKNOWN, 0),
        ("axis > 0", UNKNOWN, 0),
        ("axis + 1 == 3", UNKNOWN, 0),
    ],
)
def test_a_sentence_compares_axes(written: str, sentence: str, inputs: str, count: int) -> None:
    example = '{x: "float32[2, 3, 8]", axis: 2}'
    if written == "axis":
        probe = pattern("y = Exp(Hardmax(x, axis=axis))", "y = Exp(x)", example=example, where=f"['{sentence}']")
        graph = model("h = Hardmax<axis = 2>(x) y = Exp(h)", inputs=inputs)
    else:
        probe = pattern("y = Exp(CumSum(x, axis))", "y = Exp(x)", example=example, where=f"['{sentence}']")
        graph = model("h = CumSum(x, k) y = Exp(h)", inputs=inputs, constants="int64 k = {2}")
    assert matches(probe, graph) == count


@pytest.mark.parametrize(("axes", "count"), [("[-1, -2]", 1), ("[1, 2]", 1), ("[2, 1]", 1), ("[0, 1]", 0), ("[1]", 0)])
def test_the_axes_of_a_reduction_are_a_set(axes: str, count: int) -> None:
    probe = pattern(
        "y = Exp(ReduceMax(x, axes=axes, keepdims=1))",
        "y = Exp(x)",
        example='{x: "float32[2, 3, 8]", axes: [-1]}',
        where=f"['axes == {axes}']",
    )
    assert matches(probe, model("r = ReduceMax(x, k) y = Exp(r)", inputs=KNOWN, constants="int64[2] k = {2, -2}")) == count


@pytest.mark.parametrize(
    ("formula", "text", "inputs", "count"),
    [
        ("CumSum(x, 2)", "CumSum(x, k)", KNOWN, 1),
        ("CumSum(x, -1)", "CumSum(x, k)", KNOWN, 1),
        ("CumSum(x, 1)", "CumSum(x, k)", KNOWN, 0),
        ("CumSum(x, -1)", "CumSum(x, k)", UNKNOWN, 0),
        ("Flatten(x, axis=0)", "Flatten<axis = 3>(x)", KNOWN, 0),
        ("Flatten(x, axis=3)", "Flatten<axis = 3>(x)", KNOWN, 1),
        ("Hardmax(x, axis=1)", "Hardmax<axis = 0>(x)", "float[N] x", 0),
    ],
)
def test_a_literal_axis_also_matches_counted_from_the_back(formula: str, text: str, inputs: str, count: int) -> None:
    probe = pattern(f"y = Exp({formula})", "y = Exp(x)", example='{x: "float32[2, 3, 8]"}')
    assert matches(probe, model(f"h = {text} y = Exp(h)", inputs=inputs, constants="int64 k = {2}")) == count


def test_a_repeated_axis_is_refused_if_a_rank_is_unknown() -> None:
    probe = pattern(
        "y = Hardmax(Exp(Hardmax(x, axis=axis)), axis=axis)", "y = Exp(x)", example='{x: "float32[2, 3, 8]", axis: -1}'
    )
    text = "h = Hardmax<axis = 2>(x) e = Exp(h) y = Hardmax<axis = -1>(e)"
    assert matches(probe, model(text, inputs=KNOWN)) == 1
    graph = model(text, inputs=UNKNOWN)
    assert matches(probe, graph) == 0
    (miss,) = found(probe, graph).near_misses
    assert "of a value whose rank is not known" in miss.found
    assert "declare the shapes" in miss.change


def test_when_two_axes_are_known_to_be_equal_or_different() -> None:
    last, front, unknown = Axis(-1, 3), Axis(2, None), Axis(-1, None)
    assert (same_axis(last, 2), same_axis(last, -1), same_axis(last, 1)) == (True, True, False)
    assert (same_axis(front, 2), same_axis(front, 1), same_axis(front, -1)) == (True, False, None)
    assert (same_axis(last, front), same_axis(last, unknown), same_axis(front, unknown)) == (None, True, None)
    assert numbered((0, 2), 3, ordered=False) == (-3, -1)
    assert same_axes(AxisSet((last, Axis(-3, 3))), (0, 2)) is True
    assert same_axes((last, Axis(-3, 3)), (0, 2)) is False
    assert same_axes((front, last), (2, -1)) is True


@pytest.mark.parametrize(
    ("inputs", "count"),
    [("x", 0), ("x, none", 0), ("x, axis1", 1)],
    ids=["no axes", "empty axes", "axes"],
)
def test_noop_with_empty_axes_is_ignored_only_beside_axes(inputs: str, count: int) -> None:
    """Without axes such a mean is its operand."""
    probe = pattern("y = Relu(ReduceMean(x, axes=_))", "y = Relu(x)", example='{x: "float32[2, 3]"}')
    text = f"m = ReduceMean <noop_with_empty_axes = 1> ({inputs}) y = Relu(m)"
    proto = model(text, inputs=KNOWN, constants=AXES + ", int64[0] none = {}", opset=18)
    assert matches(probe, proto) == count
