"""The process of an isolated backend: compiles and runs regions on request.

It is `python -m onnx_subgraph.engine.worker NAME [LIBRARY]...`, with the run's libraries of custom operators. Messages arrive on
standard input and leave on standard output; the backend's own output goes to standard error. The process ends at the end of
standard input.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, BinaryIO

from onnx_subgraph.errors import OnnxSubgraphError
from onnx_subgraph.late import late_imports

with late_imports():
    import onnx
    import onnx_ir as ir

    from onnx_subgraph import custom_ops
    from onnx_subgraph.backends.backend import Backend, Declined
    from onnx_subgraph.backends.registry import find_backend
    from onnx_subgraph.backends.subgraph import Subgraph
    from onnx_subgraph.engine.wire import Message, receive, send


def main(name: str, *libraries: str) -> None:
    """Serve the backend of that name until standard input ends. libraries: of custom operators, for sessions of onnxruntime."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        with custom_ops.using(libraries):
            backend = find_backend(name)
    except OnnxSubgraphError as error:
        send(answers, Message({"error": str(error)}))
        return
    serve(backend, sys.stdin.buffer, answers)


def serve(backend: Backend, asked: BinaryIO, answers: BinaryIO) -> None:
    """Answer every message of `asked`."""
    regions: dict[int, Any] = {}
    traits = {"version": backend.version, "specializes": backend.specializes, "dynamic": backend.dynamic}
    send(answers, Message(traits))
    while True:
        try:
            message = receive(asked)
        except EOFError:
            return
        try:
            send(answers, _answer(backend, regions, message))
        except Declined as declined:
            send(answers, Message({"declined": str(declined)}))
        except Exception as error:  # a backend may raise any exception, and give what is no array
            send(answers, Message({"error": f"{type(error).__name__}: {error}"}))


def _answer(backend: Backend, regions: dict[int, Any], message: Message) -> Message:
    head = message.head
    for gone in head["gone"]:
        regions.pop(gone, None)
    if head["ask"] == "run":
        begun = time.perf_counter()
        outputs = list(backend.run(regions[head["region"]], message.arrays))
        return Message({"seconds": time.perf_counter() - begun}, outputs)
    model = ir.from_proto(onnx.load_from_string(message.content))
    signature = tuple((dtype, tuple(shape)) for dtype, shape in head["signature"])
    regions[head["region"]] = backend.compile(Subgraph(head["name"], head["key"], model), signature)
    return Message({})


if __name__ == "__main__":
    main(*sys.argv[1:])
