"""Draw values for a site that is checked without values from the model, until some show an error there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.errors import UsageError
from onnx_subgraph.inputs.feeds import draw_feeds
from onnx_subgraph.inputs.guessing import with_shapes
from onnx_subgraph.inputs.sizes import Sizes, assignments, known, moderate, resolve
from onnx_subgraph.model.repetition import Repetition
from onnx_subgraph.model.shapes import SHAPE_DATA
from onnx_subgraph.model.triangle import Triangle
from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.holding import Held, Holding

SCALES = (1.0, 30.0, 1000.0)
"""Factors for drawn values, tried until the result is not zero: otherwise a unit that is never active gives only zeros."""
TRIALS = 24
"""The number of sets of sizes that are tried for drawn values."""


def on_drawn(holding: Holding, reading: ir.Model, case: Case, cutting: Cutting, *, wide: bool = False) -> Held | None:
    """The result on the first drawn values that show something; None where there are none.

    wide: the worst result on drawn values of all magnitudes, of the same sizes.
    Some sizes are refused only by the replacement, such as batches that would broadcast. They count only if it runs on no others.
    """
    tried: list[Sizes] = []
    refused: Held | None = None
    model = with_shapes(reading)
    for sizes in islice(_sizes(model, case.sizes), TRIALS):
        if sizes in tried:
            continue
        tried.append(sizes)
        try:
            values = draw_feeds(model, sizes, case.seed or 0) | _of_shapes(model, sizes)
        except UsageError:
            return None
        showing: list[Held] = []
        for scale in SCALES:
            held = holding.on(_as_known({name: _scaled(value, scale) for name, value in values.items()}, cutting))
            refused = refused if held.runs else refused or held
            if held.accuracy is None or not held.runs:
                break
            showing += [held] if held.shows else []
            if showing and not wide:
                break
        if showing:
            return max(showing, key=lambda held: held.gravity)
    return refused


def _of_shapes(model: ir.Model, sizes: Sizes) -> dict[str, Any]:
    """The values of inputs that hold sizes, by shape inference. A drawn target of a Reshape would not fit its operand."""
    sizes = known(model.graph.inputs, sizes)
    found: dict[str, Any] = {}
    for value in model.graph.inputs:
        elements = [dim if isinstance(dim, int) else resolve(sizes, dim.value or "") for dim in value.meta.get(SHAPE_DATA, ())]
        if elements and None not in elements and value.dtype is not None and value.shape is not None:
            array = np.array(elements, value.dtype.numpy())
            found[str(value.name)] = array if value.shape.rank() else array[0]
    return found


def _as_known(values: Mapping[str, Any], cutting: Cutting) -> dict[str, Any]:
    """The values, with what is known of them: which are equal, which repeat, and the numbers that the replacement leaves out.

    A number or mask that the replacement reads is drawn as well: an initial state of zeros would show nothing.
    """
    read = {str(value.name) for value in cutting.after.graph.inputs}
    left_out = values.keys() - read
    values = {**values, **{name: _repeated(values[name], how) for name, how in cutting.repeating.items() if name in values}}
    drawn = {
        **values,
        **{name: np.full_like(values[name], number) for name, number in cutting.uniform.items() if name in left_out},
        **{name: _triangular(values[name], numbers) for name, numbers in cutting.triangles.items() if name in left_out},
    }
    return {**drawn, **{name: drawn[other] for name, other in cutting.equal.items() if other in drawn}}


def _repeated(value: Any, how: Repetition) -> Any:
    """The value with the first half of each row twice, or each of its elements; unchanged where a row has no halves."""
    if not value.ndim or value.shape[-1] % 2:
        return value
    half = value[..., : value.shape[-1] // 2]
    return np.concatenate([half, half], axis=-1) if how == "halves" else np.repeat(half, 2, axis=-1)


def _triangular(value: Any, numbers: Triangle) -> Any:
    rows, columns = value.shape[-2:]
    triangle = np.where(np.tri(rows, columns, dtype=bool), numbers.below, numbers.above)
    return np.broadcast_to(triangle, value.shape).astype(value.dtype)


def _scaled(value: Any, scale: float) -> Any:
    return value * np.asarray(scale, value.dtype) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


def read_apart(cutting: Cutting) -> str:
    """A value that only the replacement reads, or "".

    It is another form of a value that the replaced nodes read, such as its source. A drawn value would not agree with that.
    """
    known = {value.name for value in cutting.before.graph.inputs}
    known |= {name for name, other in cutting.equal.items() if other in known}
    return next((str(value.name) for value in cutting.after.graph.inputs if value.name not in known), "")


def _sizes(model: ir.Model, sizes: Mapping[str, int]) -> Iterator[Sizes]:
    """Sizes for the dimensions of the inputs of `model`: first those of the case, and those that are expressions of them."""
    inputs = list(model.graph.inputs)
    of_the_case = (found | _computed(found, sizes) | dict(sizes) for found in assignments(inputs, {}))
    yield from moderate(inputs, chain(of_the_case, assignments(inputs, {})))


def _computed(names: Iterable[str], sizes: Mapping[str, int]) -> Sizes:
    """The sizes of those names that are expressions of known ones: `3*batch` drawn apart would contradict `batch`."""
    return {name: size for name in names if (size := resolve(sizes, name)) is not None}
