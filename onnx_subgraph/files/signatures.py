"""Check that the nodes of standard operators have the operands, attributes and bodies that their schemas require.

onnxruntime refuses a model where one is missing. Operators of other domains are not checked, because newer versions of
onnxruntime give them more operands; nor are operators of an opset that the installed onnx does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import onnx

from onnx_subgraph.errors import ModelError
from onnx_subgraph.files.protobuf import all_nodes, describe
from onnx_subgraph.operators import Schema, canonical, is_standard, latest_opset, schema

_AGAIN = "onnxruntime refuses it, too; the file is damaged, or its exporter made a mistake"
_Bodies = Mapping[str, tuple[int | None, int]]
"""Attribute → the number of inputs (None: any) and outputs of the graph in it."""


def check(proto: onnx.ModelProto, path: Path) -> None:
    """Raise ModelError for the first node that its operator does not allow. The imports are tidied (`tidy_protobuf`)."""
    local = frozenset((f.domain, f.name) for f in proto.functions)
    for nodes, imports in ((proto.graph.node, proto.opset_import), *((f.node, f.opset_import) for f in proto.functions)):
        opsets = {one.domain: one.version for one in imports}
        for node in all_nodes(nodes):
            if (node.domain, node.op_type) not in local:
                domain = canonical(node.domain)
                known = _schema(node.op_type, domain, opsets.get(domain, 0))
                wrong = None if known is None else _mistake(node, known)
                if wrong is not None:
                    raise ModelError(f"{path}: {describe(node)} {wrong}", hint=_AGAIN)


@lru_cache(maxsize=4096)
def _schema(operator: str, domain: str, opset: int) -> Schema | None:
    """The schema of a standard operator; None for others."""
    if not opset or (not domain and opset > latest_opset()) or not is_standard(operator, domain):
        return None
    return schema(operator, domain, opset)


def _mistake(node: onnx.NodeProto, known: Schema) -> str | None:
    """What is wrong with a node, as the predicate of a sentence; None where nothing is."""
    operator = f"{known.name} (version {known.since_version})"
    if not known.min_inputs <= len(node.input) <= known.max_inputs:
        return f"has {_counted(len(node.input), 'operand')}, and {operator} takes {_range(known.min_inputs, known.max_inputs)}"
    if len(node.output) > known.max_outputs:
        return f"has {_counted(len(node.output), 'result')}, and {operator} has {_range(known.min_outputs, known.max_outputs)}"
    for formal, name in zip(known.inputs, node.input, strict=False):
        if not (name or formal.optional):
            return f"leaves out the operand {formal.name}, which {operator} requires"
    given = {attribute.name: attribute for attribute in node.attribute}
    for name, spec in known.attributes.items():
        attribute = given.get(name)
        if attribute is None:
            if spec.required:
                return f"lacks the attribute '{name}', which {operator} requires"
        elif attribute.type and (kind := onnx.AttributeProto.AttributeType.Name(attribute.type)) != spec.type:
            return f"has {kind} for the attribute '{name}', and {operator} takes {spec.type}"
    return _misfit(given, _bodies(node)) if known.name in _WITH_BODIES else None


_WITH_BODIES = frozenset({"If", "Loop", "Scan"})


def _bodies(node: onnx.NodeProto) -> _Bodies:
    """The number of inputs and outputs that the bodies of a control flow operator must have."""
    if node.op_type == "If":
        return dict.fromkeys(("then_branch", "else_branch"), (0, len(node.output)))
    if node.op_type == "Loop":  # operands: trip count, condition, state; inputs: iteration, condition, state
        return {"body": (len(node.input), len(node.output) + 1)}
    return {"body": (None, len(node.output))}  # Scan has an operand of lengths before opset 9


def _misfit(given: Mapping[str, onnx.AttributeProto], bodies: _Bodies) -> str | None:
    for name, (inputs, outputs) in bodies.items():
        graph = given[name].g
        if inputs is not None and len(graph.input) != inputs:
            return f"gives its {name} {_counted(inputs, 'value')}, and the graph there takes {len(graph.input)}"
        if len(graph.output) != outputs:
            return f"needs {_counted(outputs, 'result')} of its {name}, and the graph there has {len(graph.output)}"
    return None


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _range(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"at least {least}" if most >= 2**31 - 1 else f"{least} to {most}"
