"""Counts the units of a network (LayerNorm, RMSNorm, GELU, SiLU, …) in a graph, whatever operators compute them.

The count is of the graph as it is: an operator of the exporter counts like one that a fusion made. Nested bodies and functions of
the model count. The bodies of our own fused operators do not count; calls of them do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx

OURS = "onnx_subgraph"
"""The domain of fused operators that carry their definition."""

UNITS = ("layer_norm", "rms_norm", "gelu", "gelu_tanh", "quick_gelu", "silu", "hardswish", "hardsigmoid", "batch_norm", "relu",
         "group_norm", "attention")  # fmt: skip
"""The counted units, in the order of the columns. `gelu` is the erf form, `relu` a Relu or Relu6 in a convolution."""

OPERATORS: Mapping[str, tuple[str, ...]] = {
    "layer_norm": ("LayerNormalization", "SkipLayerNormalization", "EmbedLayerNormalization"),
    "rms_norm": ("RMSNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"),
    "gelu": ("BiasGelu",),
    "gelu_tanh": ("FastGelu",),
    "hardswish": ("HardSwish",),
    "hardsigmoid": ("HardSigmoid",),
    "group_norm": ("GroupNormalization", "GroupNorm", "SkipGroupNorm"),
    "attention": ("Attention", "MultiHeadAttention", "GroupQueryAttention"),
}
"""Operators that are a unit by their name alone, in any domain."""

OWN = (
    ("rms", "rms_norm"), ("simplified", "rms_norm"), ("group-norm", "group_norm"), ("layer-norm", "layer_norm"),
    ("quick-gelu", "quick_gelu"), ("tanh-gelu", "gelu_tanh"), ("gelu-tanh", "gelu_tanh"), ("fast-gelu", "gelu_tanh"),
    ("gelu", "gelu"), ("geglu", "gelu"), ("hard-swish", "hardswish"), ("hard-sigmoid", "hardsigmoid"),
    ("silu", "silu"), ("swish", "silu"), ("swiglu", "silu"), ("swi-glu", "silu"), ("attention", "attention"),
)  # fmt: skip
"""Part of a pattern's id → the unit of the pattern and of its operator in our own domain. The first part that fits counts."""


@dataclass(frozen=True)
class Graphs:
    """All nodes of one graph, with the producer and the consumers of each name. Names in nested graphs are separate."""

    nodes: tuple[onnx.NodeProto, ...]
    producer: Mapping[str, onnx.NodeProto]
    consumers: Mapping[str, tuple[onnx.NodeProto, ...]]


def scopes(model: onnx.ModelProto) -> Iterator[Graphs]:
    """The main graph, every nested body, and every function that is not one of our fused operators."""
    waiting: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *(f for f in model.functions if f.domain != OURS)]
    while waiting:
        graph = waiting.pop()
        consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                consumers.setdefault(name, []).append(node)
            waiting.extend(a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)
        producer = {name: node for node in graph.node for name in node.output}
        yield Graphs(tuple(graph.node), producer, {k: tuple(v) for k, v in consumers.items()})


def count(model: onnx.ModelProto) -> Counter[str]:
    """Unit → its number in `model` as one operator. Also counts `batch_norm_left`."""
    found: Counter[str] = Counter()
    for scope in scopes(model):
        for node in scope.nodes:
            found.update(_units_of(node))
    return found


def spelled(model: onnx.ModelProto) -> Counter[str]:
    """Unit → its number in an exported `model`, as one operator or written out. An exporter may merge equal calls.

    Each unit is counted by an operator that all its forms have: an Erf is a GELU, a Sigmoid of x multiplied by x is a SiLU (of a
    scaled x: QuickGELU). `relu` counts the activations that follow a convolution and can become part of it.
    """
    found = count(model)
    found["batch_norm"] = found.pop("batch_norm_left", 0)
    for scope in scopes(model):
        for node in scope.nodes:
            if node.op_type == "Erf":
                found["gelu"] += 1
            elif node.op_type == "Sigmoid":
                found.update(_sigmoid_units(node, scope))
            elif node.op_type in ("Relu", "Clip") and _behind_convolution(node, scope):
                found["relu"] += 1
    return found


def operators(model: onnx.ModelProto) -> Counter[str]:
    """Operators by qualified name, with those of nested bodies and functions, without the bodies of our own fused operators."""
    default = ("", "ai.onnx")
    return Counter(
        n.op_type if n.domain in default else f"{n.domain}.{n.op_type}" for scope in scopes(model) for n in scope.nodes
    )


def unit_of_pattern(identifier: str) -> str | None:
    """The unit of a pattern, by its id; None if it is about something else."""
    if identifier.startswith("conv") and any(part in identifier for part in ("relu", "activation", "clip", "residual")):
        return "relu"
    if "batch-norm" in identifier:
        return "batch_norm"
    return next((unit for part, unit in OWN if part in identifier), None)


def _units_of(node: onnx.NodeProto) -> Iterator[str]:
    if node.domain == OURS:
        unit = unit_of_pattern(_kebab(node.op_type))
        if unit:
            yield unit
        return
    for unit, names in OPERATORS.items():
        if node.op_type in names:
            yield unit
    match node.op_type:
        case "Gelu":
            yield "gelu_tanh" if _attribute(node, "approximate", b"none") == b"tanh" else "gelu"
        case "QuickGelu" | "Swish":
            alpha = float(_attribute(node, "alpha", 1.702 if node.op_type == "QuickGelu" else 1.0))  # type: ignore[arg-type]
            yield "silu" if abs(alpha - 1) < 1e-3 else "quick_gelu"
        case "FusedConv" | "FusedGemm":
            activation = _attribute(node, "activation", b"")
            if activation in (b"Relu", b"Clip"):
                yield "relu"
            elif activation == b"HardSigmoid":
                yield "hardsigmoid"
        case "BatchNormalization":
            yield "batch_norm_left"


def _sigmoid_units(node: onnx.NodeProto, scope: Graphs) -> Iterator[str]:
    products = [c for c in scope.consumers.get(node.output[0], ()) if c.op_type == "Mul"]
    argument = node.input[0]
    if any(argument in product.input for product in products):
        yield "silu"
        return
    scaled = scope.producer.get(argument)
    if scaled is not None and scaled.op_type == "Mul" and any(set(scaled.input) & set(p.input) for p in products):
        yield "quick_gelu"


def _behind_convolution(node: onnx.NodeProto, scope: Graphs) -> bool:
    behind = scope.producer.get(node.input[0])
    if behind is None or len(scope.consumers[node.input[0]]) > 1:
        return False
    sources = [behind]
    if behind.op_type == "Add":
        sources = [scope.producer[name] for name in behind.input if name in scope.producer]
    return any(_is_convolution(source, scope) for source in sources)


def _is_convolution(node: onnx.NodeProto, scope: Graphs) -> bool:
    if len(scope.consumers[node.output[0]]) > 1:
        return False
    if node.op_type == "BatchNormalization":
        before = scope.producer.get(node.input[0])
        return before is not None and before.op_type == "Conv" and len(scope.consumers[node.input[0]]) == 1
    return node.op_type == "Conv"


def _attribute(node: onnx.NodeProto, name: str, default: object) -> object:
    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _kebab(name: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))
