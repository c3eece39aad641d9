"""The environment of processes that are started in the user's program."""

from __future__ import annotations

import os

PROTOBUF = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
"""Names protobuf's implementation for processes that import it later. The one in Python is slow, and refuses text that is not
UTF-8."""


def environment() -> dict[str, str]:
    """The environment of this process, with the implementation of protobuf that it has.

    onnxruntime-extensions names the slow one when a program imports it.
    """
    from google.protobuf.internal import api_implementation  # type: ignore[import-untyped]

    kept = dict(os.environ)
    if api_implementation.Type() != kept.get(PROTOBUF):
        kept.pop(PROTOBUF, None)
    return kept
