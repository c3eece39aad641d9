"""Checks of the values that a caller gives. The command line checks its own; the functions of the package check theirs here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from numbers import Integral, Real

from onnx_subgraph.errors import UsageError


def check_one_of(name: str, given: object, known: Sequence[str]) -> None:
    """Raises UsageError unless `given` is one of the words `known`."""
    if given not in known:
        raise UsageError(f"{name} is {given!r}", hint=f"give one of {', '.join(known)}")


def words(given: str | Iterable[str]) -> tuple[str, ...]:
    """One word or many, each once, in order: a `str` is one word."""
    return (given,) if isinstance(given, str) else tuple(dict.fromkeys(given))


def providers_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """One execution provider or many, each once. Raises UsageError if there is none."""
    if not (providers := words(given)):
        raise UsageError("there is no execution provider to run on", hint="give one, such as CPUExecutionProvider")
    return providers


def check_not_negative(**given: object) -> None:
    """Raises UsageError for the first of these that is negative, infinite or not a number. None stands for a default."""
    for name, value in given.items():
        if value is not None and not (isinstance(value, Real) and 0 <= value < inf):  # type: ignore[operator]
            raise UsageError(f"{name} is {value!r}", hint="give a number that is 0 or more")


def check_positive(**given: object) -> None:
    """Raises UsageError for the first of these that is 0, negative, infinite or not a number. None stands for a default."""
    for name, value in given.items():
        if value is not None and not (isinstance(value, Real) and 0 < value < inf):  # type: ignore[operator]
            raise UsageError(f"{name} is {value!r}", hint="give a number above 0")


def check_share(**given: object) -> None:
    """Raises UsageError for the first of these that is no share of 1."""
    for name, value in given.items():
        if not (isinstance(value, Real) and 0 <= value <= 1):  # type: ignore[operator]
            raise UsageError(f"{name} is {value!r}", hint="give a share from 0 to 1, for example 0.01")


def check_kind(name: str, given: object, kind: type) -> None:
    """Raises UsageError for an object of another class. None stands for a default."""
    if given is not None and not isinstance(given, kind):
        raise UsageError(f"{name} is of type {type(given).__name__}", hint=f"give {kind.__name__}(…)")


def check_whole(**given: object) -> None:
    """Raises UsageError for the first of these that is negative or no whole number."""
    check_not_negative(**given)
    for name, value in given.items():
        if not _is_whole(value):
            raise UsageError(f"{name} is {value!r}", hint="give a whole number that is 0 or more")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_shapes(*shapes: Mapping[str, object]) -> None:
    """Raises UsageError for a shape that is no sequence of whole numbers of 1 and more. shapes: input → shape."""
    for name, shape in (pair for one in shapes for pair in one.items()):
        sizes = shape if isinstance(shape, Sequence) and not isinstance(shape, str) else None
        if sizes is None or not all(_is_whole(size) and int(size) > 0 for size in sizes):
            hint = "give whole numbers of 1 and more, for example (1, 128)"
            raise UsageError(f"the shape of the input {name!r} is {shape!r}", hint=hint)
