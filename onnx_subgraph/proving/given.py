"""Instances of a region pattern, which has no formula: the models in the `fuses` of its file."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir

from onnx_subgraph.language.pattern import Case
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.proving.instance import Instance
from onnx_subgraph.verification.feeds import draw_feeds


def given(case: Case) -> Instance:
    """The instance in `case`, with feeds drawn for its inputs."""
    proto = onnx.parser.parse_model(case.model)
    model = ir.from_proto(proto)
    infer_shapes(model)
    inner = [o for node in model.graph for o in node.outputs if o.name and o.dtype is not None and not o.is_graph_output()]
    types = {o.name: int(o.dtype) for o in inner if o.name and o.dtype is not None}
    return Instance(onnx.parser.parse_model(case.model), draw_feeds(model, {}, 0), tuple(types), types, frozenset())
