"""Kernels of float16 and bfloat16 compute in float32 and round once, when they write the result.

The inputs of the models are float32 numbers that the type can represent, and a Cast converts them: numpy has no bfloat16 that
onnxruntime takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph.evaluator.truth import evaluate
from tests.kernels.conftest import Run, drawn, node, opened

TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
CODES = {"float16": onnx.TensorProto.FLOAT16, "bfloat16": onnx.TensorProto.BFLOAT16}
LAST = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half of the spacing of each type, relative to a number."""

Arrays = Mapping[str, np.ndarray]
storage = pytest.mark.parametrize("storage", TYPES)


def rounded(array: np.ndarray, storage: str) -> np.ndarray:
    """The nearest numbers of the type, as float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(TYPES[storage]).astype(np.float32)


def narrow(call: str, arrays: Arrays, storage: str, outputs: str = "y", constants: Arrays | None = None) -> onnx.ModelProto:
    """Like `node`, for a call on tensors of the type, with casts around it."""
    model = node(call, arrays, outputs, constants)
    graph = model.graph
    (made,) = graph.node
    casts = [onnx.helper.make_node("Cast", [n], [f"{n}_"], to=CODES[storage]) for n in dict.fromkeys(filter(None, made.input))]
    back = [onnx.helper.make_node("Cast", [f"{n}_"], [n], to=onnx.TensorProto.FLOAT) for n in filter(None, made.output)]
    made.input[:] = [f"{n}_" if n else "" for n in made.input]
    made.output[:] = [f"{n}_" if n else "" for n in made.output]
    del graph.node[:]
    graph.node.extend([*casts, made, *back])
    return model


def both(call: str, arrays: Arrays, storage: str, library: Path, isa: str, constants: Arrays | None = None) -> tuple[Run, Run]:
    """The results of the call on the type, and on float32."""
    return (
        opened(narrow(call, arrays, storage, constants=constants), library, isa),
        opened(node(call, arrays, constants=constants), library, isa),
    )


def every(storage: str) -> np.ndarray:
    """All numbers of the type, with infinities and NaN."""
    return np.arange(2**16, dtype=np.uint16).view(TYPES[storage]).astype(np.float32)


SUM = 'AddRMSNorm <epsilon = 0.001> (x, other, "")'


@storage
def test_every_number_is_read_and_written_unchanged(library: Path, isa: str, storage: str) -> None:
    for columns in (1, 3, 64):
        x = every(storage)[: 2**16 // columns * columns].reshape(-1, columns)
        arrays = {"x": x, "other": np.zeros_like(x)}
        _, found = opened(narrow(SUM, arrays, storage, "y, sum"), library, isa)(arrays)
        np.testing.assert_array_equal(found, x)


@storage
def test_results_are_rounded_to_the_nearest_and_to_even(library: Path, isa: str, storage: str) -> None:
    """A float32 sum may lie between two numbers of the type, often halfway, or beyond the largest."""
    draw = np.random.default_rng(0)
    x = every(storage).reshape(-1, 64)
    near = np.nan_to_num(x) * draw.choice([-2, -1, -0.5, 0.5, 1, 2], x.shape) * LAST[storage]
    for other in (near, draw.permutation(x.ravel()).reshape(x.shape)):
        arrays = {"x": x, "other": rounded(other.astype(np.float32), storage)}
        _, found = opened(narrow(SUM, arrays, storage, "y, sum"), library, isa)(arrays)
        with np.errstate(invalid="ignore", over="ignore"):
            np.testing.assert_array_equal(found, rounded(x + arrays["other"], storage))


ROWS = {
    "LayerNorm": "LayerNorm <epsilon = 0.001> (x, scale, shift)",
    "LayerNorm, plain": "LayerNorm <epsilon = 0.001> (x)",
    "LayerNorm, a shift of rows": 'LayerNorm <epsilon = 0.001> (x, "", shift)',
    "RMSNorm": "RMSNorm <epsilon = 0.001> (x, scale)",
    "AddLayerNorm": "AddLayerNorm <epsilon = 0.001> (x, other, scale, shift)",
    "Gelu": "Gelu (x)",
    "FastGelu": "FastGelu (x)",
    "Swish": "Swish <alpha = 1.5> (x)",
    "Softmax": "Softmax (x)",
}


@storage
@pytest.mark.parametrize("name", ROWS)
def test_rows_equal_those_of_float32_rounded(library: Path, isa: str, storage: str, name: str) -> None:
    call = ROWS[name]
    runs: dict[int, tuple[Run, Run]] = {}

    @settings(max_examples=15)
    @given(
        st.sampled_from([(), (0,), (1,), (2, 3), (70,), (3, 400)]),
        st.sampled_from([0, 1, 3, 7, 8, 9, 16, 31, 33, 64, 300, 2049, 5000]),
        st.integers(0, 9),
    )
    def holds(rows: tuple[int, ...], columns: int, seed: int) -> None:
        columns = min(columns, 300) if len(rows) == 2 else columns  # many rows, or long ones
        shift = (rows[-1], 1) if rows and "of rows" in name else (columns,)
        shapes = {"x": (*rows, columns), "other": (*rows, columns), "scale": (columns,), "shift": shift}
        arrays = {n: rounded(drawn(seed, *shape, high=4.0), storage) for n, shape in shapes.items() if n in call.split("(")[1]}
        if len(rows) not in runs:
            runs[len(rows)] = both(call, arrays, storage, library, isa)
        found, wide = (run(arrays)[0] for run in runs[len(rows)])
        np.testing.assert_array_equal(found, rounded(wide, storage))

    holds()


@storage
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_equals_that_of_float32_rounded(library: Path, isa: str, storage: str, interleaved: int) -> None:
    for length, size in [(0, 8), (1, 2), (7, 6), (5, 66), (40, 64)]:
        angles = drawn(1, 1, length, size // 2, high=3.0)
        arrays = {"x": drawn(0, 2, 3, length, size), "cos": np.cos(angles), "sin": np.sin(angles)}
        arrays = {n: rounded(a, storage) for n, a in arrays.items()}
        call = f"Rotary <heads = 3, interleaved = {interleaved}> (x, cos, sin)"
        found, wide = (run(arrays)[0] for run in both(call, arrays, storage, library, isa))
        np.testing.assert_array_equal(found, rounded(wide, storage))


@storage
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
def test_linear_equals_that_of_float32_rounded(library: Path, isa: str, storage: str, constant: bool) -> None:
    """With bfloat16, sums have another order where pairs are multiplied at once."""

    @settings(max_examples=25)
    @given(
        st.sampled_from([0, 1, 2, 3, 5, 7, 8, 13, 15, 31, 40, 130]),
        st.sampled_from([0, 1, 2, 17, 255, 257, 600, 1100, 2100]),
        st.sampled_from([0, 1, 7, 16, 31, 33, 64, 70]),
        st.sampled_from(["Identity", "Relu", "Gelu", "Tanh"]),
        st.sampled_from(["", "b", "gate", "residual", "b gate residual"]),
        st.integers(0, 9),
    )
    def holds(rows: int, depth: int, columns: int, act: str, parts: str, seed: int) -> None:
        like_y = {"gate": (rows, columns), "residual": (rows, columns)}
        shapes = {"x": (rows, depth), "w": (depth, columns), "b": (columns,), **like_y}
        given = {n: s for n, s in shapes.items() if n in ["x", "w", *parts.split()]}
        arrays = {n: rounded(drawn(seed + i, *s), storage) for i, (n, s) in enumerate(given.items())}
        names = ", ".join(n if n in given else '""' for n in shapes)
        constants = {"w": arrays.pop("w")} if constant else {}
        runs = both(f'Linear <act = "{act}"> ({names})', arrays, storage, library, isa, constants)
        found, wide = (run(arrays)[0] for run in runs)
        assert found.shape == (rows, columns)
        if isa == "amx" or (isa == "avx512_bf16" and storage == "bfloat16"):
            np.testing.assert_allclose(found, wide, rtol=1.01 * LAST[storage], atol=1e-4)
        else:
            np.testing.assert_array_equal(found, rounded(wide, storage))

    holds()


@storage
def test_sums_of_many_rows_have_the_order_of_float32(library: Path, isa: str, storage: str) -> None:
    """In another order, one element in some thousands is rounded to another number."""
    if isa == "amx" or (isa == "avx512_bf16" and storage == "bfloat16"):
        pytest.skip("pairs are multiplied at once")
    w = rounded(drawn(0, 2100, 64), storage)
    for seed in range(1, 13):
        arrays = {"x": rounded(drawn(seed, 130, 2100), storage)}
        found, wide = (run(arrays)[0] for run in both("Linear (x, w)", arrays, storage, library, isa, {"w": w}))
        np.testing.assert_array_equal(found, rounded(wide, storage))


@storage
@pytest.mark.parametrize("rows", [1, 7, 30])
def test_nan_and_infinity_propagate_as_in_float32(library: Path, isa: str, storage: str, rows: int) -> None:
    arrays = {"x": rounded(drawn(0, rows, 40), storage), "w": rounded(drawn(1, 40, 50), storage)}
    arrays["x"][0, 3], arrays["x"][-1, 4] = np.inf, np.nan
    arrays["w"][2, 7], arrays["w"][5, 8] = -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        truth = arrays["x"].astype(np.float64) @ arrays["w"].astype(np.float64)
    (found,) = opened(narrow("Linear (x, w)", arrays, storage), library, isa)(arrays)
    np.testing.assert_allclose(found, truth, rtol=2 * LAST[storage], atol=1e-4)


@storage
def test_attention_equals_that_of_float32_rounded(library: Path, isa: str, storage: str) -> None:
    @settings(max_examples=25)
    @given(
        st.sampled_from([1, 2, 7, 40, 300]),
        st.sampled_from([0, 1, 5, 64, 257, 600]),
        st.sampled_from([1, 7, 16, 64, 300]),
        st.sampled_from([1, 9, 32, 70]),
        st.sampled_from(["none", "every", "keys", "rows", "sink"]),
        st.booleans(),
    )
    def holds(length: int, keys: int, size: int, wide: int, mask: str, behind: bool) -> None:
        masks = {"every": (1, 4, length, keys), "keys": (1, 1, 1, keys), "rows": (length, 1)}
        shapes = {"query": (1, 4, length, size), "key": (1, 2, keys, size), "value": (1, 2, keys, wide)}
        if behind:
            shapes = {"query": (1, length, 4 * size), "key": (1, keys, 2 * size), "value": (1, keys, 2 * wide)}
        shapes |= {"mask": (1,), "sink": (1, 4, 1, 1)} if mask == "sink" else {}
        shapes |= {"mask": masks[mask]} if mask in masks else {}
        arrays = {n: rounded(drawn(i, *s, high=2.0), storage) for i, (n, s) in enumerate(shapes.items())}
        call = f"Attention <scale = 0.3, heads = 4, repeats = 2> ({', '.join(arrays)})"
        found, expected = (run(arrays)[0] for run in both(call, arrays, storage, library, isa))
        np.testing.assert_array_equal(found, rounded(expected, storage))

    holds()


THEIRS = {
    "Linear (x, w)": "y = MatMul(x, w)",
    'Linear <act = "Gelu"> (x, w, b)': "p = MatMul(x, w) h = Add(p, b) y = Gelu(h)",
    "LayerNorm <epsilon = 1e-5> (x)": "y = LayerNormalization <epsilon = 1e-5> (x, one)",
    "RMSNorm <epsilon = 1e-5> (x)": "y = RMSNormalization <epsilon = 1e-5> (x, one)",
    "Gelu (x)": "y = Gelu(x)",
    "FastGelu (x)": 'y = Gelu <approximate = "tanh"> (x)',
    "Attention <scale = 0.2> (query, key, value)": "y = Attention <scale = 0.2> (query, key, value)",
}


@pytest.mark.parametrize("call", THEIRS)
def test_errors_are_at_most_twice_those_of_onnxruntime(library: Path, isa: str, call: str) -> None:
    shapes = {"x": (60, 300), "w": (300, 80), "b": (80,), "one": (300,)}
    shapes |= {"query": (1, 2, 30, 16), "key": (1, 2, 70, 16), "value": (1, 2, 70, 20)}
    arrays = {n: rounded(drawn(i, *shape), "float16") for i, (n, shape) in enumerate(shapes.items())}
    arrays["one"][:] = 1
    names = [n for n in arrays if n in THEIRS[call].replace("(", " ").replace(")", " ").replace(",", " ").split()]
    ours = opened(narrow(call, {n: arrays[n] for n in names if n != "one"}, "float16"), library, isa)
    found = ours({n: arrays[n] for n in names if n != "one"})[0]

    given = ", ".join(f"float16[{', '.join(map(str, shapes[n]))}] {n}" for n in names)
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> g ({given}) => (float16 y) {{ {THEIRS[call]} }}')
    model.graph.output[0].type.tensor_type.ClearField("shape")
    feeds = {n: arrays[n].astype(np.float16) for n in names}
    truth, theirs = evaluate(model, feeds)["y"], opened(model, library, isa)(feeds)[0].astype(np.float64)
    assert np.abs(found - truth).max() <= 2 * np.abs(theirs - truth).max()


@storage
@pytest.mark.parametrize("rows", [1, 8, 33, 150])
def test_results_are_the_same_bit_by_bit(library: Path, isa: str, storage: str, rows: int) -> None:
    arrays = {"x": rounded(drawn(0, rows, 1500), storage), "w": rounded(drawn(1, 1500, 90), storage)}
    heads = {n: rounded(drawn(2, 1, 4, rows, 32), storage) for n in ("query", "key", "value")}
    calls = {"Linear (x, w)": arrays, "Attention <scale = 0.3> (query, key, value)": heads, "Softmax (x)": {"x": arrays["x"]}}
    for call, feeds in calls.items():
        runs = [opened(narrow(call, feeds, storage), library, isa, threads) for threads in (1, 2)]
        assert len({run(feeds)[0].tobytes() for run in runs for _ in range(3)}) == 1


MIXED = """<ir_version: 10, opset_import: ["" : 20, "onnx_subgraph" : 1]>
g (float16[2, 8] x, TYPE[8] scale) => (float16[2, 8] y) { y = onnx_subgraph.RMSNorm <epsilon = 0.1> (x, scale) }"""


@pytest.mark.parametrize("word", ["float", "double", "int32"])
def test_tensors_of_two_types_are_an_error_of_onnxruntime(library: Path, word: str) -> None:
    with pytest.raises(Exception, match=r"no kernel def matches node inputs for Op: RMSNorm|Type Error"):
        opened(MIXED.replace("TYPE", word), library)
    opened(MIXED.replace("TYPE", "float16"), library)
