"""Instances that a pattern file has as text: the models in its `fuses`. A region pattern, which has no formula, has no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from onnx_subgraph.errors import ModelError, PatternError
from onnx_subgraph.evaluator.truth import UnknownError, evaluate
from onnx_subgraph.files.wellformed import check
from onnx_subgraph.inputs.feeds import Feeds, draw_feeds
from onnx_subgraph.inputs.sizes import symbols
from onnx_subgraph.language.pattern import Case
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.proving.instance import Instance

_LONGER = 8
"""The size of an axis that has none, where a size of 1 leaves nothing to compare: most windows fit into it."""
_HINT = "correct the model below `keeps` or `fuses`"


def parsed(case: Case) -> onnx.ModelProto:
    """The model of a case. Raises PatternError, with the place of its text, where that is no model."""
    try:
        proto = onnx.parser.parse_model(case.model)
        check(proto, Path("the model"), {})
    except onnx.parser.ParseError as error:
        said = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        reason = " ".join(said.split())
        raise PatternError(f"the model is not in ONNX's text form: {reason}", span=case.span, hint=_HINT) from None
    except ModelError as error:
        raise PatternError(error.message, span=case.span, hint=_HINT) from None
    return proto


def given(case: Case) -> Instance:
    """The instance in `case`, with feeds drawn for its inputs. Raises as `parsed` does."""
    proto = parsed(case)
    model = inferred(proto)
    inner = [o for node in model.graph for o in node.outputs if o.name and o.dtype is not None and not o.is_graph_output()]
    types = {o.name: int(o.dtype) for o in inner if o.name and o.dtype is not None}
    return Instance(proto, drawn(proto), tuple(types), types, frozenset())


def drawn(proto: onnx.ModelProto) -> Feeds:
    """Feeds for a model: longer axes where 1 gives no result, positive floats where one is NaN or infinite everywhere."""
    model = ir.from_proto(proto)
    shortest = draw_feeds(model, {}, 0)
    for sizes in ({}, dict.fromkeys(symbols(model.graph.inputs), _LONGER)):
        feeds = draw_feeds(model, sizes, 0) if sizes else shortest
        try:
            outputs = [np.asarray(array) for array in evaluate(proto, feeds).values()]
        except UnknownError:
            continue
        if all(array.size for array in outputs):
            defined = all(array.dtype.kind not in "fc" or np.isfinite(array).any() for array in outputs)
            return feeds if defined else draw_feeds(model, sizes, 0, "positive")
    return shortest


def inferred(proto: onnx.ModelProto) -> ir.Model:
    """The model with inferred shapes, used for every target."""
    model: ir.Model = ir.from_proto(onnx.ModelProto.FromString(proto.SerializeToString()))  # a copy: inference renames values
    infer_shapes(model)
    return model
