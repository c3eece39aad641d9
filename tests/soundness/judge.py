"""Whether two models compute the same, judged without the tool's own judge: plain onnxruntime, onnx's evaluator, and noise.

Both models run with optimisation off. What the fused one may differ by is what the original itself moves by when each element of
every float result in it is multiplied by a few units in the last place more or less (Monte Carlo arithmetic), and some units of
the largest value. Where the noise alone changes an integer or makes a number infinite, nothing is judged, and that is counted.
What random operators give is the same for both models (`stilled`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from onnx_subgraph.evaluator.truth import UnknownError, evaluate
from tests.soundness.growth import Array
from tests.soundness.stilled import stilled

EPSILON = {TensorProto.FLOAT: 2.0**-23, TensorProto.FLOAT16: 2.0**-10, TensorProto.DOUBLE: 2.0**-24}
"""A unit in the last place; of double only as much as is left once a number has become an attribute, which is a float."""
PERIOD = 1009
"""The number of independent factors for one result; a larger one repeats them. A prime, so that no axis repeats with them."""
DRAWS = 4
"""Runs with noise."""
SLACK = 4.0
"""How many times the noise …"""
FLOOR = {"float32": 32.0, "float16": 4.0, "float64": 8.0}
"""… and how many units of the largest value are allowed: kernels approximate tanh and erf."""

Arrays = dict[str, Array]

onnxruntime.set_default_logger_severity(4)


@dataclass(frozen=True, slots=True)
class Noisy:
    """The model with factors behind every float result. factors: the inputs for them → element type."""

    model: onnx.ModelProto
    factors: Mapping[str, int]

    def draw(self, draw: np.random.Generator) -> Arrays:
        """Independent random factors around one. A normalization would cancel a common factor."""
        return {
            name: np.asarray(1 + draw.integers(-2, 3, PERIOD) * EPSILON[kind], helper.tensor_dtype_to_np_dtype(kind))
            for name, kind in self.factors.items()
        }


@dataclass(slots=True)
class Judge:
    """Compares fused models with one original. judged, left: elements of outputs that were compared, and that could not be."""

    model: onnx.ModelProto
    feeds: tuple[Mapping[str, Array], ...]
    judged: int = 0
    left: int = 0
    ways: set[str] = field(default_factory=set)
    _reference: Arrays | None = None
    _noisy: Noisy | None = None

    def __post_init__(self) -> None:
        self.model = stilled(self.model)

    def loads(self) -> bool:
        """Whether onnxruntime loads the original."""
        return not isinstance(session(self.model), str)

    def difference(self, fused: onnx.ModelProto) -> str | None:
        """The error of the fused model, in words, or None. Never raises: a fused model that does not run is wrong."""
        fused = stilled(fused)
        if not self.loads():
            return None
        candidate = session(fused)
        if isinstance(candidate, str):
            return f"onnxruntime does not load it: {candidate}"
        return self.difference_of_runs(lambda feeds: run(candidate, feeds)) or self._by_evaluation(fused)

    def breaks_when_optimised(self) -> bool:
        """Whether onnxruntime's own optimisation makes another model of this one: its fusions have mistakes, too.

        A float64 that it computes with factors in float32 counts as well.
        """
        plain, optimised = session(self.model), session(self.model, optimised=True)
        if isinstance(plain, str) or isinstance(optimised, str):
            return isinstance(plain, str) != isinstance(optimised, str)
        for feeds in self.feeds:
            expected, found = run(plain, feeds), run(optimised, feeds)
            if isinstance(expected, str):
                continue
            if isinstance(found, str) or any(not _is_near(found[n], a) for n, a in expected.items()):
                return True
        return False

    def difference_of_runs(self, candidate: Callable[[Mapping[str, Array]], Arrays | str]) -> str | None:
        """The error of something that gives outputs, or a message, for feeds; in words, or None."""
        self._noisy = noisy(self.model)
        original, moved = session(self.model), session(self._noise.model)
        if isinstance(original, str):
            return None
        for number, feeds in enumerate(self.feeds):
            expected = run(original, feeds)
            if isinstance(expected, str):  # these sizes do not fit the model
                continue
            found = candidate(feeds)
            if isinstance(found, str):
                return f"onnxruntime does not run it on feeds {number}: {found}"
            self.ways.add("onnxruntime")
            self._reference = expected if number == 0 else self._reference
            noise = [] if isinstance(moved, str) else [run(moved, f) for f in self._disturbed(feeds)]
            problem = self._compare(found, expected, [n for n in noise if not isinstance(n, str)])
            if problem is not None and not self._is_true(found, feeds):
                return f"by onnxruntime, on feeds {number}, {problem}"
        return None

    def _is_true(self, found: Arrays, feeds: Mapping[str, Array]) -> bool:
        """Whether the fused model computed what the original says in float64, whatever onnxruntime makes of the original.

        It leaves out a Cast to float16 and back, so that a value may be less than itself.
        """
        try:
            expected = evaluate(self.model, feeds)
            noise = [evaluate(self._noise.model, f) for f in self._disturbed(feeds)]
        except UnknownError:
            return False
        narrow = {name: np.asarray(found[name]).dtype for name in expected if name in found}
        return set(narrow) == set(expected) and self._compare(found, expected, noise, narrow, widths=False) is None

    def _by_evaluation(self, fused: onnx.ModelProto) -> str | None:
        """Once more in float64, where onnx's evaluator knows all the operators and agrees with onnxruntime on the original."""
        if self._reference is None:
            return None
        try:
            feeds = self.feeds[0]
            expected = evaluate(self.model, feeds)
            found = evaluate(fused, feeds)
            noise = [evaluate(self._noise.model, f) for f in self._disturbed(feeds)]
        except UnknownError:
            return None
        types = {o.name: o.type.tensor_type.elem_type for o in self.model.graph.output}
        narrow = {n: np.dtype(helper.tensor_dtype_to_np_dtype(types[n])) for n in expected}
        if self._compare(self._reference, expected, noise, narrow, widths=False) is not None:
            self.ways.add("the evaluator differs from onnxruntime")  # it computes some early operator versions wrongly
            return None
        self.ways.add("float64")
        problem = self._compare(found, expected, noise, narrow)
        return None if problem is None else f"in float64, {problem}"

    @property
    def _noise(self) -> Noisy:
        assert self._noisy is not None
        return self._noisy

    def _disturbed(self, feeds: Mapping[str, Array]) -> Iterator[Arrays]:
        """The feeds with noise on the model's float inputs, and factors."""
        for number in range(DRAWS):
            draw = np.random.default_rng(number)
            moved = {n: _moved(a, draw) for n, a in feeds.items()}
            yield {**moved, **self._noise.draw(draw)}

    def _compare(
        self,
        found: Mapping[str, Array],
        expected: Mapping[str, Array],
        noise: list[Arrays],
        narrow: Mapping[str, np.dtype[Any]] | None = None,
        *,
        widths: bool = True,
    ) -> str | None:
        for name, right in expected.items():
            if name not in found:
                return f"{name} is missing"
            left, right = np.asarray(found[name]), np.asarray(right)
            if left.shape != right.shape or (widths and left.dtype != right.dtype):
                return f"{name} is {left.dtype}{list(left.shape)}, not {right.dtype}{list(right.shape)}"
            moved = [np.asarray(n[name]) for n in noise]
            moved = [m for m in moved if m.shape == right.shape]
            problem = self._elements(left, right, moved, right.dtype if narrow is None else narrow[name])
            if problem is not None:
                return f"{name} {problem}"
        return None

    def _elements(self, found: Array, expected: Array, moved: list[Array], dtype: np.dtype[Any]) -> str | None:
        if expected.dtype.kind != "f":
            steady = np.logical_and.reduce([m == expected for m in moved]) if moved else np.ones(expected.shape, bool)
            self._count(steady)
            wrong = (found != expected) & steady
            return f"has {int(wrong.sum())} other elements" if wrong.any() else None
        a, b = found.astype(np.float64), expected.astype(np.float64)
        with np.errstate(all="ignore"):
            apart = [np.abs(m.astype(np.float64) - b) for m in moved]
            noise = np.maximum.reduce(apart) if apart else np.zeros(b.shape)
            steady = np.isfinite(b) & np.isfinite(noise)
            scale = np.abs(b[steady]).max(initial=0.0)
            unit = EPSILON[int(helper.np_dtype_to_tensor_dtype(dtype))]
            bound = SLACK * noise + FLOOR[dtype.name] * unit * max(scale, 1e-3)
            over = ~(np.abs(a - b) <= bound) & steady
        self._count(steady)
        if not over.any():
            return None
        error = np.where(over, np.nan_to_num(np.abs(a - b), nan=np.inf), -1)
        at = np.unravel_index(int(np.argmax(error)), over.shape)
        place = [int(i) for i in at]
        return f"is {a[at]:.8g}, not {b[at]:.8g}, at {place}: {bound[at]:.3g} is allowed, {int(over.sum())} are off"

    def _count(self, steady: Any) -> None:
        self.judged += int(np.sum(steady))
        self.left += int(np.size(steady) - np.sum(steady))


def _moved(array: Array, draw: np.random.Generator) -> Array:
    if array.dtype.kind != "f":
        return array
    unit = EPSILON[int(helper.np_dtype_to_tensor_dtype(array.dtype))]
    return np.asarray(array * (1 + draw.integers(-1, 2, array.shape) * unit), array.dtype)


def problem(model: onnx.ModelProto) -> str | None:
    """What onnx's checker says of a model, or None.

    It does not know SimplifiedLayerNormalization, which onnxruntime put into the default domain, nor follows types beyond the
    operators of other domains; onnxruntime's session does. Of an Attention of unknown sizes onnx 1.23 infers a size of 0.
    """
    checked = onnx.ModelProto()
    checked.CopyFrom(model)
    known = {o.domain for o in checked.opset_import} <= {"", "local", "onnx_subgraph"}
    for node in _nodes(checked):
        if node.op_type == "SimplifiedLayerNormalization" and not node.domain:
            node.domain, known = "com.microsoft", False
        if node.op_type == "Attention" and not node.domain:
            known = False
    for part in (checked, *checked.functions):
        if not any(o.domain == "com.microsoft" for o in part.opset_import):
            part.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    try:
        onnx.checker.check_model(checked, full_check=known)
    except Exception as error:  # the checker raises what its schemas raise
        return str(error)[:500]
    return None


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    stack = [*model.graph.node, *(n for f in model.functions for n in f.node)]
    while stack:
        node = stack.pop()
        yield node
        stack += [n for a in node.attribute for n in a.g.node]


# onnxruntime


def session(model: onnx.ModelProto, *, optimised: bool = False) -> onnxruntime.InferenceSession | str:
    """A session, or onnxruntime's message."""
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common class
        return _first_line(error)


def run(opened: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> Arrays | str:
    """The outputs, or onnxruntime's message."""
    options = onnxruntime.RunOptions()
    options.log_severity_level = 4
    wanted = {i.name for i in (*opened.get_inputs(), *opened.get_overridable_initializers())}
    names = [o.name for o in opened.get_outputs()]
    try:
        results = opened.run(names, {n: a for n, a in feeds.items() if n in wanted}, options)
    except Exception as error:  # as above
        return _first_line(error)
    return {n: np.asarray(r) for n, r in zip(names, results, strict=True)}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


# Noise


def noisy(model: onnx.ModelProto) -> Noisy:
    """The model with factors behind every float result of its graph and bodies; functions are inlined."""
    made = onnx.shape_inference.infer_shapes(onnx.inliner.inline_local_functions(model))
    factors: dict[str, int] = {}
    _disturb(made.graph, factors)
    made.graph.input.extend(helper.make_tensor_value_info(n, kind, [PERIOD]) for n, kind in factors.items())
    made.graph.initializer.extend(numpy_helper.from_array(np.array(number, np.int64), n) for n, number in _NUMBERS.items())
    return Noisy(made, factors)


_NUMBERS = {"factor_zero": 0, "factor_one": 1, "factor_period": PERIOD}


def _spread(factor: str, value: str) -> list[onnx.NodeProto]:
    """Nodes whose last result has the shape of `value` and the elements of `factor`, repeated.

    The shape is that of the run: bodies may declare others, and other feeds have other sizes.
    """
    steps: list[tuple[str, list[str]]] = [
        ("Size", [value]),
        ("Range", ["factor_zero", f"{factor}_0", "factor_one"]),
        ("Mod", [f"{factor}_1", "factor_period"]),
        ("Gather", [factor, f"{factor}_2"]),
        ("Shape", [value]),
        ("Reshape", [f"{factor}_3", f"{factor}_4"]),
    ]
    return [helper.make_node(op, read, [f"{factor}_{i}"], name=f"{factor}_{i}") for i, (op, read) in enumerate(steps)]


def _disturb(graph: onnx.GraphProto, factors: dict[str, int]) -> None:
    types = {v.name: v.type.tensor_type for v in (*graph.value_info, *graph.output)}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _disturb(attribute.g, factors)
        if node.op_type in ("Constant", "Identity"):
            continue
        for index, output in enumerate(node.output):
            if output in types and types[output].elem_type in EPSILON:
                factor, exact = f"factor_{len(factors)}", f"exact_{len(factors)}"
                factors[factor] = types[output].elem_type
                node.output[index] = exact
                nodes += _spread(factor, exact)
                nodes.append(helper.make_node("Mul", [exact, nodes[-1].output[0]], [output], name=f"{factor}_mul"))
    copies = [onnx.NodeProto() for _ in nodes]
    for copy, node in zip(copies, nodes, strict=True):
        copy.CopyFrom(node)
    del graph.node[:]
    graph.node.extend(copies)
    del graph.value_info[:]


def _is_near(found: Any, expected: Any) -> bool:
    near = 1e-9 if expected.dtype == np.float64 else 1e-2
    return found.shape == expected.shape and np.allclose(found, expected, near, near, equal_nan=True)
