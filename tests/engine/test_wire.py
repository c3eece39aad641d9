"""Messages to another process arrive as they were sent, or are not sent."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest

from onnx_subgraph.engine.wire import Message, receive, send

NUMBERS = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ARRAYS = {
    "contiguous": NUMBERS,
    "strided": NUMBERS[:, ::2, ::-1],
    "transposed": NUMBERS.T,
    "of another byte order": NUMBERS.astype(">f4"),
    "empty": NUMBERS[:, :0],
    "a scalar": np.array(7, np.int64),
    "float16": NUMBERS.astype(np.float16),
    "bool": NUMBERS > 4,
}


def test_arrays_and_content_arrive_as_they_were_sent() -> None:
    stream = BytesIO()
    send(stream, Message({"ask": "é"}, list(ARRAYS.values()), b"content"))
    send(stream, Message({}, [NUMBERS[:0]]))
    stream.seek(0)
    first, second = receive(stream), receive(stream)
    assert (first.head, first.content, len(second.arrays)) == ({"ask": "é"}, b"content", 1)
    for name, found in zip(ARRAYS, first.arrays, strict=True):
        assert (found.dtype.name, found.shape) == (ARRAYS[name].dtype.name, ARRAYS[name].shape), name
        np.testing.assert_array_equal(found, ARRAYS[name], name)
    with pytest.raises(EOFError):
        receive(stream)


@pytest.mark.parametrize("wrong", [None, [1.0], np.array(["a"], object)], ids=str)
def test_what_is_no_array_of_numbers_is_not_sent_in_part(wrong: Any) -> None:
    stream = BytesIO()
    with pytest.raises(TypeError, match="only arrays of numbers"):
        send(stream, Message({}, [NUMBERS, wrong]))
    assert not stream.getvalue()
