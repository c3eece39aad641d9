"""Error messages of onnxruntime, as people read them."""

from __future__ import annotations

import re

_PLACE_IN_SOURCE = re.compile(
    r"/onnxruntime_src/\S+?:\d+ [^()]*\((?:[^()]|\([^()]*\))*\)(?: const)?(?:::<lambda\([^()]*\)>)?(?: \[with [^]]*\])? "
    r"|\b\w+\.(?:cc|h):\d+ \w+ "
)
"""The line of onnxruntime's source that a message comes from, with the signature of its function."""


def first_lines(error: Exception) -> str:
    """The error message of onnxruntime without its prefix and the place in its source, shortened if it is long."""
    if isinstance(error, UnicodeDecodeError):  # the message contains a name that is not UTF-8
        text = error.object.decode(errors="backslashreplace")
    else:
        text = str(error).strip() or type(error).__name__
    # "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Non-zero status code returned while running Add node. Name:'…' …"
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    text = _PLACE_IN_SOURCE.sub("", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    short = " ".join(lines[:3])
    return short if len(short) <= 600 else short[:597] + "..."
