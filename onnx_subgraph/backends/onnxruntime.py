"""The backend `onnxruntime`: a nested session for each region.

It runs whatever onnxruntime runs, and is the fallback of every engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from onnx_subgraph import custom_ops, kernels
from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend, Signature, plain_array
from onnx_subgraph.errors import KernelError, UsageError
from onnx_subgraph.kernels.marked import KERNELS
from onnx_subgraph.verification.sessions import check_providers, exact, plain_session_class

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_subgraph.backends.subgraph import Subgraph


@dataclass(frozen=True, slots=True)
class Nested:
    """A session, the names of its inputs and outputs, and the weights that it reads from our memory."""

    session: Any
    inputs: tuple[str, ...]
    outputs: list[str]
    weights: object


class OnnxRuntime(Backend):
    """Nested sessions. providers: as onnxruntime takes them. options: makes the options of one session.

    Each session has its own threads, unless the program gave onnxruntime a global pool
    (`onnxruntime.set_global_thread_pool_sizes`). The sessions have the libraries of custom operators of the run that creates the
    backend.
    """

    name = "onnxruntime"
    specializes = False

    def __init__(self, providers: Sequence[Any] = ("CPUExecutionProvider",), options: Callable[[], Any] | None = None) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise UsageError(f"onnxruntime can't be imported: {error}", hint="pip install onnxruntime") from error
        self._runtime = onnxruntime
        self._providers = list(providers)
        self._options = options or self._quiet_options
        self._libraries = custom_ops.libraries()
        self.version = str(onnxruntime.__version__)

    @classmethod
    def configured(cls, options: str) -> OnnxRuntime:
        """The execution provider of the sessions, `CUDAExecutionProvider`. Products keep the type of the model."""
        check_providers([options])
        return cls([exact(options)])

    def supports(self, node: ir.Node) -> bool:
        """Always true: a model that onnxruntime can't run fails anyway."""
        return True

    def compile(self, subgraph: Subgraph, signature: Signature) -> Nested:
        """A session. Large weights are passed in memory, and don't count towards the 2 GiB of a protobuf."""
        content, weights = subgraph.detached()
        options = self._options()
        also = list(self._libraries)
        if KERNELS in subgraph.model.metadata_props:
            with contextlib.suppress(KernelError):  # without the library it runs by its definitions
                also.append(kernels.describe().path)
        custom_ops.register(options, also)
        values = [self._runtime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        if values:
            options.add_external_initializers(list(weights), values)
        return Nested(self._session(content, options), subgraph.inputs, list(subgraph.outputs), (weights, values))

    def run(self, compiled: Nested, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs of the session. Sequences, maps and absent optional values are handed on."""
        plain = [plain_array(value) if hasattr(value, "dtype") else value for value in inputs]
        feeds = dict(zip(compiled.inputs, plain, strict=True))
        outputs: list[Array] = compiled.session.run(compiled.outputs, feeds)
        return outputs

    def _session(self, content: bytes, options: Any) -> Any:
        """A session; in the program's global thread pool if there is one, since onnxruntime then accepts no other.

        If onnxruntime's optimisation fails, as it does for a Relu and a Clip of doubles, the session has none.
        """
        open_session = partial(plain_session_class(), content, options, providers=self._providers)
        try:
            return open_session(enable_fallback=0)  # onnxruntime prints nothing if this fails
        except Exception as error:  # onnxruntime's exceptions have no common base class of their own
            if "use_per_session_threads" in str(error):
                options.use_per_session_threads = False
            else:
                options.graph_optimization_level = self._runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return open_session()

    def _quiet_options(self) -> Any:
        options = self._runtime.SessionOptions()
        options.log_severity_level = 4
        # threads that spin while waiting take processor time from other sessions and backends between the engines
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return options
