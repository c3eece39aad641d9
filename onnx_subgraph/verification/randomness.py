"""Find random operators before models are compared, so that their results do not count as noise.

The results of a random node in the main graph are drawn once, by the original, and fed to both models: they become inputs. A node
counts as random if its operator is random, if a subgraph or function that it runs contains such a node, or if two runs on the
same feeds differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_subgraph.inputs.ranges import constant
from onnx_subgraph.model.attributes import plain_value
from onnx_subgraph.model.nested import bodies
from onnx_subgraph.operators.randomness import RANDOM
from onnx_subgraph.operators.schemas import canonical, schema
from onnx_subgraph.verification.blocks import Array
from onnx_subgraph.verification.bounds import is_float
from onnx_subgraph.verification.sessions import Outputs

_KNOWN = frozenset(("", "ai.onnx", "ai.onnx.ml", "com.microsoft"))
"""Domains whose random operators are known."""
_SHAPED = frozenset(("RandomNormalLike", "RandomUniformLike"))
"""Operators that read the shape of a value and not its elements."""
_DRAWN = "__drawn"
"""The suffix of the name of an input that replaces a random result."""
AGAIN = 1e-3
"""Two runs on the same feeds differ at random if the results differ by more than this fraction of their root mean square."""


class Source(NamedTuple):
    """A node of the main graph whose results are random.

    op: the random operator. node: its name, or that of the node that runs it. results: the names of its tensors that are read, in
    order. indices: which results of the node they are. draws: what it draws (`_draws`).
    """

    op: str
    node: str
    results: tuple[str, ...]
    indices: tuple[int, ...]
    draws: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op} at {self.node}"


def sources(model: ir.Model, suspects: Collection[str] = ()) -> tuple[Source, ...]:
    """The random nodes of the main graph, in graph order. suspects: results that differed in two runs."""
    found = []
    for node in model.graph:
        op = random_operator(node, model)
        if not op and any(value.name in suspects for value in node.outputs):
            op = node.op_type
        if op:
            read = {
                index: str(v.name)
                for index, v in enumerate(node.outputs)
                if v.name and (v.uses() or v.is_graph_output()) and isinstance(v.type, ir.TensorType | None)
            }
            name = node.name or str(node.outputs[0].name)
            found.append(Source(op, name, tuple(read.values()), tuple(read), _draws(node, model)))
    return tuple(found)


def suspicious(model: ir.Model) -> list[str]:
    """The results of nodes that may be random: of unknown operators, or with subgraphs that contain such."""
    doubtful = (n for n in model.graph if any(inner.domain not in _KNOWN for inner in _all_run_by(n, model)))
    return [str(v.name) for n in doubtful for v in n.outputs if v.name and isinstance(v.type, ir.TensorType | None)]


def differing(one: Outputs, other: Outputs) -> list[str]:
    """The outputs that differ between two runs on the same feeds by more than rounding explains, in order."""
    return [
        n for n, a in one.items() if isinstance(a, np.ndarray) and isinstance(b := other.get(n), np.ndarray) and _differ(a, b)
    ]


def with_results_fed(model: ir.Model, results: Mapping[str, ir.DataType], known: Sequence[Source] = ()) -> ir.Model:
    """A copy of the model in which these values of the main graph are inputs, and nothing computes them.

    results: their dtypes; names that the model does not have are ignored. known: the nodes of these results in the original. In a
    rewritten model a result may have the name of a graph output; then its node is found by the node's name. A node that draws
    other numbers than the original's stays, so that it is compared. `fed_name` names the inputs. If such a value is an output,
    the input is passed through. The operands of the removed nodes become outputs, so that they are still compared.
    """
    copy = model.clone()
    for node, cut in _cuts(copy, results, known):
        _yield_what_it_reads(node, copy.graph, next(iter(cut.values())))
        for index, result in cut.items():
            _feed(node.outputs[index], result, results[result], copy.graph)
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            copy.graph.remove(node, safe=True)
    return copy


def drawn_otherwise(model: ir.Model, results: Collection[str], known: Sequence[Source]) -> tuple[Source, ...]:
    """The random nodes of the original whose results are not fed, because no node of this model draws the same."""
    fed = {result for _, cut in _cuts(model, results, known) for result in cut.values()}
    return tuple(source for source in known if source.results and fed.isdisjoint(source.results))


def _cuts(model: ir.Model, results: Collection[str], known: Sequence[Source]) -> list[tuple[ir.Node, dict[int, str]]]:
    """The nodes that give these results: the position of a result → its name in the original."""
    of_node = {source.node: dict(zip(source.indices, source.results, strict=True)) for source in known}
    draws = {result: source.draws for source in known for result in source.results}
    found = []
    for node in model.graph:
        named = {index: str(v.name) for index, v in enumerate(node.outputs) if v.name in results}
        cut = named or {i: r for i, r in of_node.get(node.name or "", {}).items() if r in results and i < len(node.outputs)}
        if cut and (not known or _draws(node, model) == draws[next(iter(cut.values()))]):
            found.append((node, cut))
    return found


def _yield_what_it_reads(node: ir.Node, graph: ir.Graph, result: str) -> None:
    """Make outputs of the operands of a random node; of one whose elements it does not read, of the shape."""
    for index, value in enumerate(node.inputs):
        if value is not None and isinstance(value.type, ir.TensorType | None):
            output, shaped = value, node.op_type in _SHAPED
            if shaped or value.producer() is None or value.is_graph_output():
                read = ir.node("Shape" if shaped else "Identity", [value])
                graph.insert_before(node, read)
                output = read.outputs[0]
                output.type = ir.TensorType(ir.DataType.INT64) if shaped else value.type
            # Without Identity where possible: onnxruntime fuses a Transpose away that only an Identity reads besides a Gemm.
            output.name = f"input {index} of {result}"
            graph.outputs.append(output)


def _feed(value: ir.Value, result: str, dtype: ir.DataType, graph: ir.Graph) -> None:
    """Replace a value by an input. result: its name in the original."""
    name = str(value.name)
    stand_in = ir.val(fed_name(result), dtype)
    graph.inputs.append(stand_in)
    if not value.is_graph_output():
        value.replace_all_uses_with(stand_in)
        return
    value.name = f"{name}{_DRAWN}_plain"
    identity = ir.node("Identity", [stand_in])
    output = identity.outputs[0]
    output.name, output.type, output.shape = name, value.type, value.shape
    graph.append(identity)
    value.replace_all_uses_with(output, replace_graph_outputs=True)


def with_results_yielded(model: ir.Model, results: Collection[str]) -> ir.Model:
    """A copy of the model that yields only these values of its main graph."""
    copy = model.clone()
    yield_only(copy, results)
    return copy


def yield_only(model: ir.Model, results: Collection[str]) -> None:
    """Make these values of the main graph the only outputs of `model`."""
    model.graph.outputs.clear()
    model.graph.outputs.extend(value for node in model.graph for value in node.outputs if value.name in results)


def fed_name(result: str) -> str:
    """The name of the input that replaces a random result."""
    return f"{result}{_DRAWN}"


def listed(found: Sequence[Source]) -> str:
    """A text such as `RandomNormalLike at noise, Dropout at drop and 3 more`."""
    shown = ", ".join(map(str, found[:3]))
    return f"{shown} and {len(found) - 3} more" if len(found) > 3 else shown


def random_operator(node: ir.Node, model: ir.Model) -> str:
    """The random operator that a node is, or that its subgraphs or functions run; "" for none."""
    return next((inner.op_type for inner in _all_run_by(node, model) if _is_random(inner)), "")


def _draws(node: ir.Node, model: ir.Model) -> tuple[str, ...]:
    """The random operators that a node runs, with their attributes, in any order; the node itself if none of them is known."""
    random = [inner for inner in _all_run_by(node, model) if _is_random(inner)]
    refers = any(attribute.is_ref() for inner in random for attribute in inner.attributes.values())
    return tuple(sorted(map(_described, [*random, node] if refers or not random else random)))


def _described(node: ir.Node) -> str:
    """A node's operator and its attributes, but for bodies. Those that the node lacks have their defaults."""
    known = schema(node.op_type, node.domain)
    values = {name: spec.default for name, spec in known.attributes.items()} if known else {}
    values |= {name: a.ref_attr_name if a.is_ref() else plain_value(a) for name, a in node.attributes.items()}
    return f"{canonical(node.domain)}.{node.op_type} {sorted((name, str(value)) for name, value in values.items())}"


def _is_random(node: ir.Node) -> bool:
    if node.op_type not in RANDOM or node.domain not in _KNOWN:
        return False
    return node.op_type != "Dropout" or _drops(node)


def _drops(node: ir.Node) -> bool:
    """Whether a Dropout may be in training mode: it has a third input (from opset 12 on) that is not constantly false."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return False
    said = constant(node.inputs[2])
    return said is None or bool(said.any())


def _all_run_by(node: ir.Node, model: ir.Model) -> Iterator[ir.Node]:
    """The node, and every node that its subgraphs and the functions that it calls run."""
    seen: set[ir.OperatorIdentifier] = set()
    queue = [node]
    while queue:
        current = queue.pop()
        function = model.functions.get(current.op_identifier())
        if function is None:
            yield current
        elif function.identifier() not in seen:
            seen.add(function.identifier())
            queue += function
        for body in bodies(current):
            queue += body


def _differ(one: Array, other: Array) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    if not is_float(one):
        return bool((one != other).any())
    with np.errstate(all="ignore"):
        difference = np.abs(one.astype(np.complex128) - other.astype(np.complex128))
        scale = np.sqrt(np.nanmean(np.where(np.isfinite(one), np.abs(one.astype(np.complex128)) ** 2, 0.0))) if one.size else 0.0
        misplaced = (np.isnan(one) != np.isnan(other)).any()
    return bool(misplaced or (np.nan_to_num(difference, posinf=0.0) > AGAIN * max(float(scale), 1e-30)).any())
