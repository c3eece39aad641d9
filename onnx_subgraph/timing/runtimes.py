"""The runtimes for timing: onnxruntime, onnxruntime with our library of kernels, engines, and OpenVINO.

A runtime is configured as in an application, with all its optimisations. The only exception: idle threads of onnxruntime stop
spinning, so that the next model has the processor to itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onnx_subgraph import custom_ops, kernels
from onnx_subgraph.backends.openvino.loading import load
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.errors import OnnxSubgraphError, UsageError
from onnx_subgraph.verification.sessions import (
    Failure,
    Session,
    onnxruntime,
    plain_session_class,
    run,
    runner,
    source,
)

RUNTIMES = ("onnxruntime", "kernels", "engines", "openvino", "openvino-f32")
"""kernels: onnxruntime with our library of kernels. engines: an `EngineSession`, whose backends run the engines.

openvino: in the precision that it chooses. openvino-f32: in float32.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """How all models are run. provider: of onnxruntime. threads: 0 for the runtime's default.

    profile: the prefix of the file of onnxruntime's profile.
    """

    provider: str = "CPUExecutionProvider"
    threads: int = 0
    profile: Path | None = None


@dataclass(frozen=True, slots=True)
class Runner:
    """A model that is ready to run. outputs: their names. seconds: the time it took to open it."""

    run: Callable[[Mapping[str, Any]], Sequence[Any]]
    outputs: tuple[str, ...]
    seconds: float
    session: Session | None = None


def check_runtimes(runtimes: Sequence[str]) -> None:
    """Raises UsageError for a runtime that is not installed."""
    for runtime in runtimes:
        if runtime not in RUNTIMES:
            raise UsageError(f"there is no runtime {runtime!r}", hint=f"choose of {', '.join(RUNTIMES)}")
        if runtime.startswith("openvino"):
            _openvino()
        elif runtime == "kernels":
            kernels.path()


def open_runner(model: Path, runtime: str, setting: Setting) -> Runner | Failure:
    """Open a model in a runtime."""
    begun = time.perf_counter()
    try:
        opened = _in_openvino if runtime.startswith("openvino") else _in_engines if runtime == "engines" else _in_onnxruntime
        run, outputs, session = opened(model, runtime, setting)
    except OnnxSubgraphError:
        raise
    except Exception as error:  # the exceptions of onnxruntime and OpenVINO have no common base
        return Failure(" ".join(str(error).split())[:400])
    return Runner(run, outputs, time.perf_counter() - begun, session)


_Made = tuple[Callable[[Mapping[str, Any]], Sequence[Any]], tuple[str, ...], Session | None]


def _in_onnxruntime(model: Path, runtime: str, setting: Setting) -> _Made:
    ort = onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = setting.threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if setting.profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(setting.profile)
    custom_ops.register(options, [kernels.path()] if runtime == "kernels" else [])
    handle = plain_session_class()(source(model, options), options, providers=[setting.provider])
    session = Session(handle, tuple(output.name for output in handle.get_outputs()))
    evaluate = runner(session)
    return lambda feeds: evaluate(feeds, None), session.outputs, session


def _in_engines(model: Path, runtime: str, setting: Setting) -> _Made:
    if setting.threads:
        raise UsageError("engines take as many threads as their backends give them", hint="leave --threads out")
    session = EngineSession(model)
    return partial(session.run, None), tuple(output.name for output in session.get_outputs()), None


def _in_openvino(model: Path, runtime: str, setting: Setting) -> _Made:
    openvino = _openvino()
    config: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    if runtime == "openvino-f32":
        config["INFERENCE_PRECISION_HINT"] = "f32"
    if setting.threads:
        config["INFERENCE_NUM_THREADS"] = setting.threads
    core = openvino.Core()
    read = core.read_model(str(model))
    names = tuple(port.get_any_name() for port in read.outputs)  # compilation adds names of inner values
    compiled = core.compile_model(read, "CPU", config)
    request = compiled.create_infer_request()

    def infer(feeds: Mapping[str, Any]) -> Sequence[Any]:
        request.infer(dict(feeds), share_inputs=True)
        return [np.array(request.get_output_tensor(index).data) for index in range(len(compiled.outputs))]

    return infer, names, None


def _openvino() -> Any:
    try:
        return load()
    except ImportError as error:
        hint = "pip install 'onnx-subgraph[openvino]'"
        raise UsageError(f"the runtime openvino needs the package openvino: {error}", hint=hint) from error


def try_once(runner: Runner, feeds: Mapping[str, Any]) -> Mapping[str, Any] | Failure:
    """The outputs of one run, by name. In onnxruntime the run has verification's time limit."""
    if runner.session is not None:
        return run(runner.session, feeds)
    try:
        return dict(zip(runner.outputs, runner.run(feeds), strict=True))
    except Exception as error:  # as above
        return Failure(" ".join(str(error).split())[:400])
