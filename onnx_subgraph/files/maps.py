"""Types of maps, which onnx_ir does not have: the probabilities of a classifier by label, as ZipMap yields them.

While a model is in memory, values of such types have no type. Only the file names it, so that nothing else has to know maps.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

_MAPS = "onnx_subgraph.maps"
"""The key of a model's `meta` for the types of its inputs and outputs that are maps: name → the type, serialized."""


def take_out(proto: onnx.ModelProto) -> dict[str, bytes]:
    """Remove the types of maps from the values of the main graph, in place. Returns those of inputs and outputs."""
    found = {}
    for value in (*proto.graph.input, *proto.graph.output):
        if _is_of_maps(value.type):
            found[value.name] = value.type.SerializeToString(deterministic=True)
            value.ClearField("type")
    kept = [value for value in proto.graph.value_info if not _is_of_maps(value.type)]
    if len(kept) < len(proto.graph.value_info):
        del proto.graph.value_info[:]
        proto.graph.value_info.extend(kept)
    return found


def remember(model: ir.Model, found: dict[str, bytes]) -> None:
    """Keep what `take_out` removed for `put_back`."""
    if found:
        model.meta[_MAPS] = found


def hand_on(model: ir.Model, part: ir.Model) -> None:
    """Give a model of some nodes of `model` what is remembered of its values."""
    remember(part, model.meta.get(_MAPS, {}))


def put_back(proto: onnx.ModelProto, model: ir.Model) -> None:
    """Give inputs and outputs of a serialized model the types that `take_out` removed."""
    found = model.meta.get(_MAPS, {})
    for value in (*proto.graph.input, *proto.graph.output) if found else ():
        if value.name in found and value.type.WhichOneof("value") is None:
            value.type.ParseFromString(found[value.name])


def _is_of_maps(type_: onnx.TypeProto) -> bool:
    """Whether a type is a map, or a sequence or optional of maps."""
    kind = type_.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return _is_of_maps(getattr(type_, kind).elem_type)
    return bool(kind == "map_type")
