"""The message for a person when something fails.

An `OnnxSubgraphError` is a mistake that the user can mend, and has its own message. An error of the file system names its file.
Anything else is a bug of this tool: one line says what happened and how to report it, and `ONNX_SUBGRAPH_DEBUG=1` shows the
traceback.
"""

from __future__ import annotations

import os
import traceback

from onnx_subgraph.errors import OnnxSubgraphError

DEBUG = "ONNX_SUBGRAPH_DEBUG"
"""The environment variable that shows tracebacks."""
_SMALLER = "give smaller sizes with --shape, or run it on a machine with more memory"


def describe(error: BaseException) -> str:
    """The message for `error`, without a newline at the end; with the traceback before it if `DEBUG` is set."""
    message = _message(error)
    if not os.environ.get(DEBUG):
        return message
    return "".join(traceback.format_exception(error)) + message


def _message(error: BaseException) -> str:
    match error:
        case OnnxSubgraphError():
            return str(error)
        case OSError(strerror=str(reason)):
            return f"{error.filename}: {reason}" if error.filename is not None else reason
        case MemoryError():
            return f"this machine has not enough memory for the model and its inputs\nhint: {_SMALLER}"
        case _:
            summary = f"{type(error).__name__}: {error}".splitlines()[0]
            return f"{summary}\nThis is a bug in onnx-subgraph. Please report it with what {DEBUG}=1 adds to this message."
