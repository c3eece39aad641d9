"""Measures the peak memory of fusing a model with 2.5 GB of external weights: `python benchmarks/memory.py`.

Makes a chain of blocks (LayerNorm and erf-GELU in primitive operators, around large MatMuls) with its weights in one data file.
Runs the command line on it without verification in a child process. Prints the peak resident memory of the child, and whether the
weights were written again. The data file is sparse except for its first megabytes. Nothing of it should be read, and a page of a
hole that is read counts like any other.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 4096
INNER = 4 * WIDTH


def make_model(folder: Path, gigabytes: float) -> Path:
    """A model file `large.onnx` in the folder, with its weights in `large.onnx.data`."""
    per_block = 2 * 4 * WIDTH * INNER
    blocks = max(1, round(gigabytes * 1e9 / per_block))
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = [
        numpy_helper.from_array(np.array(value, np.float32), name)
        for name, value in (("two", 2.0), ("eps", 1e-5), ("root2", 2**0.5), ("one", 1.0), ("half", 0.5))
    ]
    offset, x = 0, "x"
    for block in range(blocks):
        names = [f"{name}{block}" for name in ("up", "down")]
        for name, shape in zip(names, ([WIDTH, INNER], [INNER, WIDTH]), strict=True):
            length = 4 * shape[0] * shape[1]
            tensor = TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
            for key, text in (("location", "large.onnx.data"), ("offset", str(offset)), ("length", str(length))):
                tensor.external_data.add(key=key, value=text)
            weights.append(tensor)
            offset += length
        weights += [numpy_helper.from_array(np.ones(WIDTH, np.float32), f"{name}{block}") for name in ("gamma", "beta")]
        x = _block(nodes, x, block)
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", WIDTH])],
        weights,
    )
    path = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with (folder / "large.onnx.data").open("wb") as file:
        file.write(np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32).tobytes())
        file.truncate(offset)
    return path


def _block(nodes: list[onnx.NodeProto], x: str, block: int) -> str:
    def add(operator: str, *inputs: str, **attributes: object) -> str:
        result = f"{operator.lower()}_{block}_{len(nodes)}"
        nodes.append(helper.make_node(operator, list(inputs), [result], name=f"{operator}_{block}_{len(nodes)}", **attributes))
        return result

    centred = add("Sub", x, add("ReduceMean", x, axes=[-1]))
    variance = add("ReduceMean", add("Pow", centred, "two"), axes=[-1])
    normal = add("Div", centred, add("Sqrt", add("Add", variance, "eps")))
    scaled = add("Add", add("Mul", normal, f"gamma{block}"), f"beta{block}")
    up = add("MatMul", scaled, f"up{block}")
    gelu = add("Mul", add("Mul", up, add("Add", add("Erf", add("Div", up, "root2")), "one")), "half")
    return add("Add", x, add("MatMul", gelu, f"down{block}"))


_DIRECTLY = """
import sys
from pathlib import Path
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.files.models import load, save
from onnx_subgraph.model.shapes import infer_shapes
source, target = map(Path, sys.argv[1:])
model = load(source)
infer_shapes(model)
constants = Constants(model)
for node in model.graph:
    for value in node.outputs:
        constants.array(constants.see_through(value))
save(model, target, source)
"""


def main() -> int:
    """Make the model, run, print the measurements. Returns the exit code of the child."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.5, help="size of the weights (default: 2.5)")
    parser.add_argument("--directly", action="store_true", help="load, infer and save only, without the command line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = make_model(folder, options.gigabytes)
        target = folder / "large.fused.onnx"
        data = folder / "large.onnx.data"
        before = data.stat()
        command = (
            [sys.executable, "-c", _DIRECTLY, str(source), str(target)]
            if options.directly
            else [sys.executable, "-m", "onnx_subgraph", "fuse", "--no-verify", str(source), "-o", str(target)]
        )
        start = time.perf_counter()
        done = subprocess.run(command, cwd=Path(__file__).resolve().parent.parent, check=False)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        after = data.stat()
        written = sum(file.stat().st_size for file in folder.iterdir() if file not in (source, data))
        print(
            json.dumps(
                {
                    "weights_gb": round(before.st_size / 1e9, 2),
                    "peak_mb": round(peak / 1e6),
                    "seconds": round(seconds, 1),
                    "written_mb": round(written / 1e6, 2),
                    "weights_rewritten": written > before.st_size // 2
                    or (before.st_mtime_ns, before.st_ino) != (after.st_mtime_ns, after.st_ino),
                    "exit_code": done.returncode,
                }
            )
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
