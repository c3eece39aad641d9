"""Sizes that are joined and then moved are joined in their last order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simplification.test_simplify import operators, parsed, run, simplified

INPUTS = "float[N, C, L] x"
NUMBERS = """
int64 place = {2}, int64[1] here = {0}, int64[1] pairs_end = {-9223372036854775807}, int64[1] back = {-1},
int64[2] pairs = {-1, 2}, int64[1] seven = {7}, int64 modulus = {7}, int64[1] one = {1}, int64[1] none = {0},
int64[4] zeros = {0, 0, 0, 0}, int64[1] all = {-1}, int64[3] three = {0, 0, 0}, int64[1] three_on = {3},
int64[1] end = {9}
"""
AMOUNT = "s = Shape(x) l = Gather(s, place) r = Neg(l) m = Mod(r, seven) "
PADDING = "p = Reshape(j, pairs) b = Slice(p, back, pairs_end, here, back) t = Transpose<perm = [1, 0]>(b) q = Reshape(t, all) "
PADDED = "y = Pad(x, q)"
ONE = {
    "one end, as TorchScript pads": "h = Concat<axis = 0>(none, m) j = Concat<axis = 0>(h, zeros) " + PADDING + PADDED,
    "both ends": "j = Concat<axis = 0>(m, one, zeros) " + PADDING + PADDED,
    "a number that becomes a vector": "n = Mod(l, modulus) u = Unsqueeze(n, here) j = Concat<axis = 0>(u, one, zeros) "
    + PADDING
    + PADDED,
    "a part": "j = Concat<axis = 0>(zeros, three, m, one) q = Slice(j, three_on, end, here) y = Pad(x, q)",
}
STAY = {
    "what is in order": "q = Concat<axis = 0>(three, m, one, one) y = Pad(x, q)",
    "a half of a vector": "v = Concat<axis = 0>(m, one) w = Mod(v, seven) j = Concat<axis = 0>(w, zeros) " + PADDING + PADDED,
}


def feeds(length: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal((2, 3, length)).astype(np.float32)}


@pytest.mark.parametrize("body", ONE.values(), ids=ONE)
@pytest.mark.parametrize("length", [3, 7, 9])
def test_moved_sizes_are_one_concat(body: str, length: int) -> None:
    model = parsed(AMOUNT + body, INPUTS, "float[A, B, D] y", NUMBERS)
    _, written = simplified(model)
    left = operators(written)
    assert left["Concat"] == 1
    assert not left.keys() & {"Reshape", "Transpose", "Slice"}
    np.testing.assert_array_equal(run(written, feeds(length))[0], run(model, feeds(length))[0])


@pytest.mark.parametrize("body", STAY.values(), ids=STAY)
def test_other_vectors_stay(body: str) -> None:
    model = parsed(AMOUNT + body, INPUTS, "float[A, B, D] y", NUMBERS)
    _, written = simplified(model)
    kept, before = operators(written), operators(model)
    assert all(kept[name] == before[name] for name in ("Reshape", "Transpose", "Slice"))
    np.testing.assert_array_equal(run(written, feeds(5))[0], run(model, feeds(5))[0])
