"""A schedule: runs one signature (the shapes and dtypes of the feeds), or all of them. Most are specialised models.

A run is a run of its session, whose outputs belong to the caller. With reused buffers, inputs and outputs are allocated and bound
once, and a run only copies the feeds in and replays.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]
"""Input name → array."""
Signature = tuple[tuple[str, str, tuple[int, ...]], ...]
"""(input, dtype, shape) of each feed, by the name of the input."""
EVERY: Signature = (("every size", "", ()),)
"""Stands for all signatures of one pattern."""

_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint64)": np.uint64,
    "tensor(uint32)": np.uint32,
    "tensor(uint16)": np.uint16,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}
"""onnxruntime's types that a numpy array can be bound to."""
_NUMBERS = frozenset((*np.typecodes["AllInteger"], *np.typecodes["AllFloat"], "?"))
"""The characters of numpy's own numbers. Those of other packages, such as bfloat16, have characters that do not name a dtype."""


def signature_of(feeds: Mapping[str, Any]) -> Signature | None:
    """The signature of feeds; None if one is not an array (an OrtValue, a list, a sequence), or not of numpy's own numbers."""
    try:
        parts = sorted((name, feed.dtype.char, feed.shape) for name, feed in feeds.items())
    except (AttributeError, TypeError):
        return None
    if not _NUMBERS.issuperset(char for _, char, _ in parts) or not all(isinstance(feed, np.ndarray) for feed in feeds.values()):
        return None
    return tuple(parts)


def pattern_of(signature: Signature) -> Signature:
    """The common part of the signatures of all sizes: inputs, dtypes, ranks."""
    return tuple((name, char, (0,) * len(shape)) for name, char, shape in signature)


def spelled(signature: Signature) -> str:
    """A signature for a person: `input_ids=int64[1, 128]`."""
    if signature == EVERY:
        return EVERY[0][0]
    return ", ".join(f"{name}={np.dtype(char).name}{list(shape)}" for name, char, shape in signature)


@dataclass(frozen=True, slots=True)
class Buffers:
    """Arrays at fixed addresses, bound to a session by name."""

    binding: Any
    inputs: dict[str, Array]
    outputs: dict[str, Array]

    @classmethod
    def bound(cls, session: Any, signature: Signature) -> Buffers | None:
        """Buffers for a session; None if an output's shape or type is not known before a run, or if it is an input.

        onnxruntime does not write such an output into its buffer.
        """
        outputs, fed = {}, {name for name, _, _ in signature}
        for argument in session.get_outputs():
            dtype = _DTYPES.get(argument.type)
            if argument.name in fed or dtype is None or not all(isinstance(size, int) for size in argument.shape):
                return None
            outputs[argument.name] = np.empty(argument.shape, dtype)
        inputs = {name: np.zeros(shape, np.dtype(char)) for name, char, shape in signature}
        binding = session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        for name, array in outputs.items():
            binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        return cls(binding, inputs, outputs)

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        return sum(array.nbytes for array in (*self.inputs.values(), *self.outputs.values()))


@dataclass(slots=True, eq=False)
class Schedule:
    """One schedule, ready to run.

    model: its file, None if there never was one. nbytes: an estimate of its weights and buffers. buffers: only if they are
    reused.
    """

    signature: Signature
    session: Any
    model: Path | None
    nbytes: int
    buffers: Buffers | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _owner: weakref.ref[threading.Thread] | None = None

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array], run_options: Any = None) -> Any:
        """The outputs, as onnxruntime's `run` gives them; from the bound buffers if these are reused.

        The buffers belong to the first thread that runs: another one would overwrite what it is still reading.
        """
        if self.buffers is not None and self._is_owner():
            return self._replay(self.buffers, output_names, feeds, run_options)
        return self.session.run(output_names, feeds, run_options)

    def answer(self, feeds: Feeds) -> Any:
        """All outputs, in arrays that belong to the caller."""
        return self.session.run(None, feeds)

    @property
    def fallbacks(self) -> int:
        """How many runs of its engines fell back to onnxruntime."""
        return int(getattr(self.session, "fallbacks", 0))

    @property
    def failure(self) -> str:
        """Why a backend of its engines was given up; "" if none was."""
        return str(getattr(self.session, "failure", ""))

    def _is_owner(self) -> bool:
        mine = threading.current_thread()
        with self._lock:
            self._owner = self._owner or weakref.ref(mine)
            return self._owner() is mine

    def _replay(self, buffers: Buffers, output_names: Sequence[str] | None, feeds: Mapping[str, Array], options: Any) -> Any:
        bound = buffers.inputs
        moved = {name: array for name, array in feeds.items() if array is not bound[name]}
        written = [bound[name] for name in moved]
        for name, array in {name: _apart(array, written) for name, array in moved.items()}.items():
            np.copyto(bound[name], array)
        self.session.run_with_iobinding(buffers.binding, options)
        return [buffers.outputs[name] for name in output_names or buffers.outputs]


def _apart(array: Array, written: Sequence[Array]) -> Array:
    """The array, or a copy if it may be in the memory of an array that is written before it is read."""
    if array.flags.owndata and all(array is not other for other in written):
        return array
    return array.copy() if any(np.may_share_memory(array, other) for other in written) else array
