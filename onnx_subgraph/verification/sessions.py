"""Open and run onnxruntime sessions, without log output, with graph optimisation off or on.

onnxruntime is imported when the first session is opened. Custom operator libraries are loaded only if the user named them
(`custom_ops`) or the caller passes them. An error in a model or its feeds is returned as a `Failure`, never raised.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy.typing as npt

from onnx_subgraph import custom_ops
from onnx_subgraph.deadline import check, remaining
from onnx_subgraph.errors import UsageError
from onnx_subgraph.operators.names import operator_of
from onnx_subgraph.verification import exotic
from onnx_subgraph.verification.messages import first_lines
from onnx_subgraph.verification.verdict import PlacedNode, Placement
from onnx_subgraph.watch import after

Array = npt.NDArray[Any]
Outputs = dict[str, Any]
"""Output name → array; a list, a mapping or None where the model yields a sequence, a map or an absent optional."""

_RAN = "_kernel_time"
"""The suffix of a node's name in onnxruntime's profile for an execution of it."""
LONGEST_RUN = 600.0
"""The time limit of a run in seconds: a loop in a model may be endless, and the user can't interrupt a run."""
AFTER_LIMIT = 0.1
"""Seconds from the end of the time limit to the end of a run. The limit's exception must come before one that the run raises.

It would interrupt the cleanup otherwise.
"""

_WHEELS: Mapping[str, str] = {
    "CUDAExecutionProvider": "onnxruntime-gpu",
    "TensorrtExecutionProvider": "onnxruntime-gpu",
    "NvTensorRTRTXExecutionProvider": "onnxruntime-gpu",
    "DmlExecutionProvider": "onnxruntime-directml",
    "OpenVINOExecutionProvider": "onnxruntime-openvino",
    "ROCMExecutionProvider": "onnxruntime-rocm",
    "MIGraphXExecutionProvider": "onnxruntime-migraphx",
    "QNNExecutionProvider": "onnxruntime-qnn",
    "CANNExecutionProvider": "onnxruntime-cann",
    "VitisAIExecutionProvider": "onnxruntime-vitisai",
    "CoreMLExecutionProvider": "onnxruntime, on macOS",
    "WebGpuExecutionProvider": "onnxruntime-webgpu",
    "DnnlExecutionProvider": "a build of onnxruntime with --use_dnnl",
    "XnnpackExecutionProvider": "a build of onnxruntime with --use_xnnpack",
    "ACLExecutionProvider": "a build of onnxruntime with --use_acl",
    "NnapiExecutionProvider": "a build of onnxruntime for Android",
}
"""The wheel that contains a provider, according to onnxruntime's installation page."""

SERVICES = frozenset({"AzureExecutionProvider"})
"""The providers that run no operators of ONNX, only their own, which call a service. Every wheel for the CPU lists one."""

_EXACT: Mapping[str, Mapping[str, str]] = {"CUDAExecutionProvider": {"use_tf32": "0"}}
"""Options of providers. CUDA rounds products of float32 to TF32, which has 10 bits; a wrong result could pass as rounding."""

_NOT_UTF8 = "an input or output has a name that is not UTF-8, and onnxruntime's interface to Python knows no such name; rename it"


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of onnxruntime when it could not open or run a session: the first lines, without its prefix."""

    message: str


@dataclass(frozen=True, slots=True)
class Session:
    """An open session. outputs: the names, in the model's order. held: objects that must outlive it.

    refuses: why the model must not be run on these feeds; None where it may be.
    """

    handle: Any
    outputs: tuple[str, ...]
    held: Any = None
    refuses: Callable[[Mapping[str, Any]], Failure | None] = lambda _: None


@cache
def onnxruntime() -> ModuleType:
    """The installed onnxruntime, with its warnings turned off. Raises UsageError when it can't be imported."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise UsageError(f"onnxruntime can't be imported: {error}", hint="pip install onnxruntime, or use --no-verify") from error
    runtime.set_default_logger_severity(4)
    return runtime


def plain_session_class() -> Any:
    """The session class of onnxruntime itself, even if a hook replaced the public one."""
    return importlib.import_module("onnxruntime.capi.onnxruntime_inference_collection").InferenceSession


def exact(provider: str) -> tuple[str, dict[str, str]]:
    """A provider with the options that keep products in the type of the model, as onnxruntime takes them."""
    return provider, dict(_EXACT.get(provider, {}))


def check_providers(providers: Sequence[str]) -> None:
    """Raises UsageError if this onnxruntime lacks one of these execution providers, or one runs no operators of ONNX."""
    available = onnxruntime().get_available_providers()
    for provider in providers:
        if provider in SERVICES:
            message = f"execution provider {provider} runs no operators of ONNX, only its own, which call a service"
            raise UsageError(message, hint="leave it out; the other providers of a session run its nodes")
        if provider in available:
            if _WHEELS.get(provider) == "onnxruntime-gpu":
                _find_cuda()
            continue
        near = [
            name
            for name in (*available, *_WHEELS)
            if provider.lower() in (name.lower(), name.lower()[: -len("ExecutionProvider")])
        ]
        if near and near[0] != provider:
            hint = f"did you mean {near[0]}?"
        elif provider in _WHEELS:
            hint = f"it comes with {_WHEELS[provider]}; each of onnxruntime's wheels needs its own environment"
        else:
            hint = "use onnxruntime's name, such as CPUExecutionProvider"
        raise UsageError(f"execution provider {provider} is not in this onnxruntime; it has {', '.join(available)}", hint=hint)


@cache
def _find_cuda() -> None:
    """Let onnxruntime load the libraries of CUDA that pip installed (its extras `cuda` and `cudnn`). It prints what it misses."""
    if hasattr(onnxruntime(), "preload_dlls"):
        with contextlib.redirect_stdout(io.StringIO()):
            onnxruntime().preload_dlls()


def open_session(
    model: Path | bytes,
    provider: str,
    *,
    optimised: bool,
    folder: Path | None = None,
    libraries: Sequence[Path] = (),
    weights: Mapping[str, Array] | None = None,
    threads: int | None = None,
    placing: bool = False,
    profile: Path | None = None,
) -> Session | Failure:
    """A session for a model file, or for a serialized model whose external data is in `folder`.

    libraries: of custom operators, in addition to those of this run.
    threads: None for the number of processors, at most four; 1 saves a small model the thread pool.
    weights: initializers that the model declares as external data, in memory. placing: record on which provider each node runs.
    profile: the prefix of the file in which the session records what runs, for `executed`.
    Raises UsageError when the provider is in the wheel but does not start on this machine.
    """
    runtime = onnxruntime()
    options = runtime.SessionOptions()
    level = runtime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.use_deterministic_compute = True
    options.enable_cpu_mem_arena = False  # a session here runs a few times; the arena would double its memory, and keep it
    options.intra_op_num_threads = threads or max(1, min(4, os.cpu_count() or 1))
    options.inter_op_num_threads = 1
    # with few processors, threads that spin while waiting slow each other down, and a single run gains nothing
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if placing:
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    try:
        custom_ops.register(options, libraries)
        if weights:
            values = [runtime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
            options.add_external_initializers(list(weights), values)
        handle = plain_session_class()(source(model, options, folder), options, providers=[exact(provider)])
    except Exception as error:  # onnxruntime's exceptions have no common base but Exception
        return Failure(first_lines(error))
    if provider not in handle.get_providers():
        raise UsageError(
            f"execution provider {provider} is in this onnxruntime but does not start on this machine",
            hint="its driver or libraries are missing; onnxruntime's own log says which",
        )
    try:
        _, outputs = ([argument.name for argument in arguments] for arguments in (handle.get_inputs(), handle.get_outputs()))
    except UnicodeDecodeError:
        return Failure(_NOT_UTF8)
    return Session(handle, tuple(outputs), weights)


def source(model: Path | bytes, options: Any, folder: Path | None = None) -> str | bytes:
    """The model as onnxruntime's Python interface accepts it: a path, or bytes for a path that is not UTF-8.

    options: of the session; the folder of the external data is set there if it is not the path's own.
    """
    if isinstance(model, Path) and not _is_utf8(model):
        folder = folder or model.resolve().parent
        model = model.read_bytes()
    if folder is not None and _is_utf8(folder):
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    return model if isinstance(model, bytes) else str(model)


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def optimise(model: Path, provider: str, target: Path, *, folder: Path | None = None) -> Path | Failure:
    """Let onnxruntime write the model after its fusions (level "extended"). Returns `target`.

    folder: of the external data, if that is not the model's own. The weights are written beside the target.
    """
    runtime = onnxruntime()
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 4
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", f"{target.name}.data")
    try:
        custom_ops.register(options)
        plain_session_class()(source(model, options, folder), options, providers=[provider])
    except Exception as error:  # onnxruntime's exceptions have no common base but Exception
        return Failure(first_lines(error))
    return target


def placement(session: Session, provider: str) -> Placement | None:
    """On which provider the nodes of a session run; None where this onnxruntime (before 1.24) does not tell."""
    if not hasattr(session.handle, "get_provider_graph_assignment_info"):
        return None
    return Placement(
        provider,
        tuple(
            PlacedNode(node.name, operator_of(node), part.ep_name)
            for part in session.handle.get_provider_graph_assignment_info()
            for node in part.get_nodes()
        ),
    )


def executed(session: Session) -> frozenset[str]:
    """The names of the nodes that ran in a session with a `profile`, including inlined ones. Ends the profile.

    Empty where the profile is incomplete, for example because the disk is full.
    """
    try:
        events = json.loads(Path(session.handle.end_profiling()).read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return frozenset()
    names = (str(event.get("name", "")) for event in events if event.get("cat") == "Node")
    return frozenset(name.removesuffix(_RAN) for name in names if name.endswith(_RAN))


def run(session: Session, feeds: Mapping[str, Any]) -> Outputs | Failure:
    """The outputs for these feeds (input name → array, or a list of arrays for a sequence)."""
    if (refused := session.refuses(feeds)) is not None:
        return refused
    options = onnxruntime().RunOptions()
    options.log_severity_level = 4
    with after(min(LONGEST_RUN, remaining() + AFTER_LIMIT), partial(setattr, options, "terminate", True)) as alarm:
        try:
            return dict(zip(session.outputs, runner(session)(feeds, options), strict=True))
        except Exception as error:  # as above
            check()
            return Failure(f"it ran for {LONGEST_RUN:g} seconds and was ended" if alarm.rang else first_lines(error))


def runner(session: Session) -> Callable[[Mapping[str, Any], Any], Sequence[Any]]:
    """A function that runs a session: feeds and run options → outputs, in the model's order. Raises onnxruntime's errors."""
    if exotic.takes(session.handle):
        return partial(exotic.run, session.handle, onnxruntime().OrtValue)
    return lambda feeds, options: list(session.handle.run(None, dict(feeds), options))
