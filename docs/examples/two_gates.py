"""Writes a network in which each block weighs its channels twice, by their means and by their maxima: x · a + x · b."""

import sys

import numpy as np
import onnx
import onnx.parser

BLOCKS, CHANNELS = 4, 32

lines = []
for i in range(BLOCKS):
    lines += [f"c{i} = Conv <group = {CHANNELS}, pads = [1, 1, 1, 1]> (x{i}, w{i})"]
    lines += [f"m{i} = GlobalAveragePool (c{i})", f"u{i} = Conv (m{i}, v{i})", f"a{i} = Sigmoid (u{i})"]
    lines += [f"n{i} = GlobalMaxPool (c{i})", f"t{i} = Conv (n{i}, v{i})", f"b{i} = Sigmoid (t{i})"]
    lines += [f"p{i} = Mul (c{i}, a{i})", f"q{i} = Mul (c{i}, b{i})", f"x{i + 1} = Add (p{i}, q{i})"]
image = f"float[batch, {CHANNELS}, 64, 64]"
text = f"""<ir_version: 8, opset_import: ["" : 17]>
gates ({image} x0) => ({image} x{BLOCKS}) {{ {" ".join(lines)} }}"""
model = onnx.parser.parse_model(text)
draws = np.random.default_rng(0)
for i in range(BLOCKS):
    for name, shape in ((f"w{i}", (CHANNELS, 1, 3, 3)), (f"v{i}", (CHANNELS, CHANNELS, 1, 1))):
        weights = draws.normal(0, 0.3, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
onnx.save(model, sys.argv[1])
