"""What stands in a partitioned model: the attributes of each engine, and the definition that it shares with its equals."""

import sys

import onnx

model = onnx.load(sys.argv[1])
definitions = {function.overload: function for function in model.functions}
for node in model.graph.node:
    if node.op_type == "Engine":
        said = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        shared = definitions[node.overload]
        (region,) = (a.t for a in shared.attribute_proto if a.name == "subgraph")
        print(f"{node.domain}::{node.op_type} {node.name}")
        print(f"  backend {said['backend'].decode()}, interval {said['interval']}, engine_key {said['engine_key'].decode()}")
        print(f"  subgraph of {len(region.raw_data)} bytes, {len(shared.node)} nodes when it is inlined")
