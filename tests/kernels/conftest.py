"""Fixtures and functions for the tests of the kernels. Without a compiler all these tests are skipped, with the reason."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph import kernels, temporary
from onnx_subgraph.kernels.build import source_folder
from onnx_subgraph.kernels.compilers import Compiler, compilers

ISAS = ("baseline", "avx2", "avx512", "avx512_bf16", "amx")
"""The instruction sets that the library has on some processor."""

Run = Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]


@pytest.fixture(scope="session")
def library() -> Path:
    """The library of kernels, built now if needed. Its tests are skipped only if there is no compiler at all."""
    if next(compilers(), None) is None:
        pytest.skip("there is no C compiler here")
    return kernels.path()


def kept(compiler: Compiler, flags: Sequence[str], make: Callable[[Path], None]) -> Path:
    """What `make` compiles, for all workers and later runs, until the compiler, a flag, a source, or code that builds changes."""
    here = Path(__file__).parent
    key = hashlib.sha256(repr((compiler, flags)).encode())
    folders = (source_folder(), Path(kernels.__file__).parent, here)
    for file in sorted(file for folder in folders for kind in ("*.c", "*.h", "*.py") for file in folder.glob(kind)):
        key.update(file.name.encode() + file.read_bytes())
    folder = here.parents[1] / ".pytest_cache" / "kernels"
    target = folder / key.hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    with temporary.alone(folder):
        if not target.is_file():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                made = Path(scratch) / "made"
                make(made)
                made.replace(target)
    return target


@pytest.fixture(scope="session", params=ISAS)
def isa(request: pytest.FixtureRequest, library: Path) -> str:
    """Each instruction set; those that this processor lacks are skipped."""
    if request.param not in kernels.describe().here:
        pytest.skip(f"this processor has no {request.param}")
    return str(request.param)


def session(model: str | onnx.ModelProto, library: Path, isa: str = "amx", threads: int = 1) -> onnxruntime.InferenceSession:
    """A session of a model (text or proto) with the kernels of one instruction set."""
    made = onnx.parser.parse_model(model) if isinstance(model, str) else model
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    with mock.patch.dict(os.environ, {"ONNX_SUBGRAPH_ISA": isa, "ONNX_SUBGRAPH_KERNELS": "all"}):
        options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


def opened(model: str | onnx.ModelProto, library: Path, isa: str = "amx", threads: int = 1) -> Run:
    """Like `session`, but returns the function that runs the model."""
    found = session(model, library, isa, threads)
    return lambda feeds: found.run(None, dict(feeds))


def node(
    call: str, inputs: Mapping[str, np.ndarray], outputs: str = "y", constants: Mapping[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    """A model with one call of our operators. inputs: name → an array with the input's rank. outputs: names of the results."""
    sizes = {name: [f"{name}{axis}" for axis in range(array.ndim)] for name, array in inputs.items()}
    given = ", ".join(f"float[{', '.join(axes)}] {name}" if axes else f"float {name}" for name, axes in sizes.items())
    results = ", ".join(f"float {name}" for name in outputs.split(", ") if name != '""')
    head = '<ir_version: 10, opset_import: ["" : 20, "onnx_subgraph" : 1]>'
    model = onnx.parser.parse_model(f"{head} g ({given}) => ({results}) {{ {outputs} = onnx_subgraph.{call} }}")
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    for name, array in (constants or {}).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def drawn(seed: int, *shape: int, high: float = 1.0) -> np.ndarray:
    """Random numbers between -high and high."""
    return np.random.default_rng(seed).uniform(-high, high, shape).astype(np.float32)
