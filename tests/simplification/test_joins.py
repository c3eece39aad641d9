"""The first part of a Concat is taken apart no more, whatever stands between works on single elements."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simplification.test_simplify import operators, parsed, run, simplified

INPUTS = "float[N, 3] x, float[N, 3] z, float[N, 2] w"
WEIGHTS = "int64[2] equal = {3, 3}, int64[2] other = {2, 3}"
TAKEN = {
    "cosines of angles twice": ("j = Concat<axis = -1>(x, x) c = Cos(j) y, b = Split<axis = 1>(c, equal)", {"Cos": 1}),
    "of two values": ("j = Concat<axis = 1>(x, z) c = Sin(j) n = Neg(c) y, b = Split<axis = -1>(n, equal)", {"Sin": 1, "Neg": 1}),
    "nothing between": ("j = Concat<axis = 1>(x, z) a, b = Split<axis = 1>(j, equal) y = Neg(a)", {"Neg": 1}),
    "a cast": (
        "j = Concat<axis = 1>(x, x) h = Cast<to = 11>(j) a, b = Split<axis = 1>(h, equal) y = Cast<to = 1>(a)",
        {"Cast": 2},
    ),
    "another size": ("j = Concat<axis = 1>(w, z) c = Cos(j) y, b = Split<axis = 1>(c, other)", {"Cos": 1}),
}
KEPT = {
    "both parts": "j = Concat<axis = 1>(x, z) c = Cos(j) a, b = Split<axis = 1>(c, equal) y = Sub(a, b)",
    "the second part": "j = Concat<axis = 1>(x, z) c = Cos(j) a, y = Split<axis = 1>(c, equal)",
    "another part": "j = Concat<axis = 1>(z, w) c = Cos(j) y, b = Split<axis = 1>(c, other)",
    "another axis": "j = Concat<axis = 0>(x, z) c = Cos(j) t = Transpose(c) y, b = Split<axis = 1, num_outputs = 2>(t)",
    "what works on rows": "j = Concat<axis = 1>(x, z) c = Softmax(j) y, b = Split<axis = 1>(c, equal)",
    "cosines that are read": (
        "j = Concat<axis = 1>(x, z) c = Cos(j) a, b = Split<axis = 1>(c, equal) r = ReduceSum(c) y = Mul(a, r)"
    ),
}


def feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((4, size)).astype(np.float32) for name, size in (("x", 3), ("z", 3), ("w", 2))}


@pytest.mark.parametrize(("body", "left"), TAKEN.values(), ids=TAKEN)
def test_the_first_part_is_computed_alone(body: str, left: dict[str, int]) -> None:
    model = parsed(body, INPUTS, "float[A, B] y", WEIGHTS)
    _, written = simplified(model)
    assert operators(written) == left
    np.testing.assert_array_equal(run(written, feeds())[0], run(model, feeds())[0])


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_other_splits_stay(body: str) -> None:
    model = parsed(body, INPUTS, "float[A, B] y", WEIGHTS)
    model.opset_import[0].version = 18
    _, written = simplified(model)
    assert operators(written) == operators(model)
    np.testing.assert_array_equal(run(written, feeds())[0], run(model, feeds())[0])
