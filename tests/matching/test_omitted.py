"""Laws of inputs that are left out: `None` is nothing else, `_` is anything, and a name is a value that is there."""

from __future__ import annotations

import pytest

from tests.rewriting.stage import pattern, rewritten

HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) <float low = {0.0}, float high = {6.0}> '


@pytest.mark.parametrize(
    ("argument", "found"),
    [("None", {"x, , high": True, "x, low, high": False}), ("_", {"x, , high": True, "x, low, high": True})],
)
def test_an_argument_that_binds_nothing(argument: str, found: dict[str, bool]) -> None:
    bounded = pattern(f"y = Clip(x, {argument}, hi)", example='{x: "float32[2]", hi: "float32[] constant"}')
    for inputs, is_match in found.items():
        assert bool(rewritten(f"{HEAD} {{ y = Clip({inputs}) }}", bounded, target="function").matches) is is_match, inputs


@pytest.mark.parametrize("argument", ["lo", "0"])
def test_a_name_or_a_number_is_no_input_that_is_left_out(argument: str) -> None:
    low = ', lo: "float32[] constant"' if argument == "lo" else ""
    bounded = pattern(f"y = Clip(x, {argument}, hi)", example=f'{{x: "float32[2]", hi: "float32[] constant"{low}}}')
    assert rewritten(f"{HEAD} {{ y = Clip(x, low, high) }}", bounded, target="function").matches
    assert not rewritten(f"{HEAD} {{ y = Clip(x, , high) }}", bounded, target="function").matches
