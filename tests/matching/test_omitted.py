"""Laws of omitted inputs: `None` matches only an omitted input, `_` matches anything, and a name needs an input."""

from __future__ import annotations

import pytest

from tests.rewriting.stage import pattern, rewritten

HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) <float low = {0.0}, float high = {6.0}> '


@pytest.mark.parametrize(
    ("argument", "found"),
    [("None", {"x, , high": True, "x, low, high": False}), ("_", {"x, , high": True, "x, low, high": True})],
)
def test_none_and_underscore_bind_nothing(argument: str, found: dict[str, bool]) -> None:
    bounded = pattern(f"y = Clip(x, {argument}, hi)", example='{x: "float32[2]", hi: "float32[] constant"}')
    for inputs, is_match in found.items():
        assert bool(rewritten(f"{HEAD} {{ y = Clip({inputs}) }}", bounded, target="function").matches) is is_match, inputs


@pytest.mark.parametrize("argument", ["lo", "0"])
def test_a_name_or_a_number_does_not_match_an_omitted_input(argument: str) -> None:
    low = ', lo: "float32[] constant"' if argument == "lo" else ""
    bounded = pattern(f"y = Clip(x, {argument}, hi)", example=f'{{x: "float32[2]", hi: "float32[] constant"{low}}}')
    assert rewritten(f"{HEAD} {{ y = Clip(x, low, high) }}", bounded, target="function").matches
    assert not rewritten(f"{HEAD} {{ y = Clip(x, , high) }}", bounded, target="function").matches
