"""Compare two sets of outputs numerically: whether the differences stay within the bound of each output (`bounds`).

This module does not use onnxruntime: it takes arrays and returns findings, so that it can be tested by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnx_subgraph.verification.blocks import Array, blocks, elementwise, wide
from onnx_subgraph.verification.bounds import Bound, difference_of, is_float


@dataclass(frozen=True, slots=True)
class Finding:
    """The comparison of one output.

    error, bound: at the element `worst`, whose ratio of error to bound is largest. problem: another defect, or "".
    compared: the number of finite or discrete elements that were compared.
    overflows: the number of elements where the reference is NaN or infinite and the candidate finite, if nothing else is wrong.
    jumps: the number of elements that may differ by more, because as many of the reference jump, or the same ones do.
    """

    error: float
    bound: float
    worst: tuple[int, ...] = ()
    problem: str = ""
    compared: int = 0
    overflows: int = 0
    jumps: int = 0

    @property
    def equal(self) -> bool:
        return not self.problem and self.error <= self.bound


def compare(reference: Array, candidate: Array, allowed: Bound) -> Finding:
    """Compare one output of the candidate with the reference's, and each of its parts; the first part that differs is told."""
    found = _compare(reference, candidate, allowed)
    for mask, bound in allowed.parts if found.equal else ():
        part = _compare(reference[mask], candidate[mask], bound)
        if not part.equal:
            return replace(part, worst=tuple(map(int, np.argwhere(mask)[part.worst])))
    return found


def beyond(reference: Array, candidate: Array, allowed: Bound) -> Array:
    """The elements that differ by more than the bound of each. Both arrays have the same shape."""
    if not is_float(reference):
        return np.asarray(reference != candidate)
    return np.asarray(difference_of(reference, candidate) > allowed.limits(reference.shape))


def _compare(reference: Array, candidate: Array, allowed: Bound) -> Finding:
    """Compare an output without its parts."""
    if reference.dtype != candidate.dtype:
        return _refused(f"dtype is {candidate.dtype}, the reference's is {reference.dtype}")
    if reference.shape != candidate.shape:
        return _refused(f"shape is {list(candidate.shape)}, the reference's is {list(reference.shape)}")
    if reference.size == 0:
        return Finding(0.0, 0.0)
    if not is_float(reference):
        return _compare_exactly(reference, candidate, float(allowed.element))
    problem, overflows = _misplaced(reference, candidate, allowed.free)
    compared, jumps, largest, without = _differences(reference, candidate, allowed)
    if jumps / reference.size > allowed.jumps:
        jumps = 0
    told = without if jumps else largest
    worst = tuple(int(i) for i in np.unravel_index(told.at, reference.shape))
    if not problem and told.error <= told.limit and compared:
        rms = float(np.sqrt(told.squares / compared))
        if rms > allowed.aggregate:
            problem = f"differs by {rms:.3g} in root mean square over {compared} elements, {allowed.aggregate:.3g} is allowed"
    return Finding(told.error, told.limit, worst, problem, compared, overflows, jumps)


@dataclass(slots=True)
class _Largest:
    """The element `at` with the largest ratio of difference to limit so far, and the sum of the squares of all differences."""

    ratio: float = -1.0
    error: float = 0.0
    limit: float = 0.0
    at: int = 0
    squares: float = 0.0

    def add(self, start: int, difference: Array, limits: Array, ratio: Array) -> None:
        """Add the block that starts at the element `start`."""
        here = int(np.argmax(ratio))
        if not ratio[here] <= self.ratio:
            self.ratio, self.error, self.at = float(ratio[here]), float(difference[here]), start + here
            self.limit = float(limits if limits.ndim == 0 else limits[here])
        self.squares += float(np.sum(np.square(difference)))


def _differences(reference: Array, candidate: Array, allowed: Bound) -> tuple[int, int, _Largest, _Largest]:
    """The number of elements that are compared, and of those that may have jumped; the largest of all, and without those."""
    compared, jumps, start = 0, 0, 0
    largest, without = _Largest(), None
    for mine, theirs, limits in blocks(reference, candidate, allowed.element):
        difference = difference_of(mine.reshape(-1), theirs.reshape(-1))
        finite = np.isfinite(difference)
        difference[~finite] = 0.0
        # infinite where the limit is 0 and there is a difference
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(difference > 0.0, difference / limits, 0.0)
        compared += int(finite.sum())
        jumped = (ratio > 1.0) & (difference <= allowed.furthest)
        if without is None and jumped.any():
            without = replace(largest)
        largest.add(start, difference, limits, ratio)
        if without is not None:
            jumps += int(jumped.sum())
            without.add(start, np.where(jumped, 0.0, difference), limits, np.where(jumped, 0.0, ratio))
        start += difference.size
    return compared, jumps, largest, without or largest


def compare_all(reference: Mapping[str, Any], candidate: Mapping[str, Any], bounds: Mapping[str, Bound]) -> dict[str, Finding]:
    """Compare all outputs; elements of sequences and maps separately. Returns name, or name[key], → finding."""
    mine, theirs = flatten(reference), flatten(candidate)
    findings = {}
    for name in mine.keys() | theirs.keys():
        if name not in theirs:
            findings[name] = _refused("the candidate does not yield it")
        elif name not in mine:
            findings[name] = _refused("the reference does not yield it")
        else:
            findings[name] = compare(mine[name], theirs[name], bounds[name])
    return {name: findings[name] for name in (*mine, *(name for name in theirs if name not in mine))}


def compare_flipped(
    reference: Mapping[str, Any],
    candidate: Mapping[str, Any],
    bounds: Mapping[str, Bound],
    runs: Iterable[Mapping[str, Array]],
    apart: Collection[str] = (),
) -> dict[str, Finding]:
    """As `compare_all`, with the first run of the original in which noise changed the choices that the candidate makes.

    All outputs must agree with the same run, in the elements that the noise changed there: rows and their numbers belong
    together. The other elements are compared with the reference. {} where there is no such run. apart: outputs that may differ.
    """
    mine, theirs = flatten(reference), flatten(candidate)
    for run in runs:
        moved = {name: beyond(mine[name], array, bounds[name]) for name, array in run.items()}
        chosen = {name: np.where(moved[name], array, mine[name]) for name, array in run.items()}
        found = compare_all(chosen, theirs, bounds)
        if all(finding.equal for name, finding in found.items() if name not in apart):
            return {name: replace(one, jumps=one.jumps + int(moved[name].sum())) for name, one in found.items()}
    return {}


def flatten(outputs: Mapping[str, Any]) -> dict[str, Array]:
    """Outputs as arrays: sequences and maps by element (`name[0]`, `name[key]`), without absent optionals."""
    flat: dict[str, Array] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            flat |= flatten({f"{name}[{i}]": item for i, item in enumerate(value)})
        elif isinstance(value, Mapping):
            flat |= flatten({f"{name}[{key}]": item for key, item in value.items()})
        elif value is not None:
            flat[name] = np.asarray(value)
    return flat


def nonfinite(outputs: Mapping[str, Any]) -> int:
    """The number of elements of outputs that are NaN or infinite."""
    return sum(int((~np.isfinite(array)).sum()) for array in flatten(outputs).values() if is_float(array))


def varies(outputs: Mapping[str, Any]) -> bool:
    """Whether the finite elements of an output of floats are not all the same, or there is no such output."""
    floats = [array.astype(np.float64) for array in flatten(outputs).values() if is_float(array) and array.dtype.kind != "c"]
    finite = [array[np.isfinite(array)] for array in floats]
    return not floats or any(array.size and np.ptp(array) > 0 for array in finite)


def _refused(problem: str) -> Finding:
    return Finding(float("inf"), 0.0, (), problem)


def _misplaced(reference: Array, candidate: Array, free: Array | None) -> tuple[str, int]:
    """The first element where one is NaN or infinite and the other is different, and the number of those with a finite candidate.

    "" if there is none. The count is 0 where anything else is wrong.
    """
    if reference.dtype.kind == "c":
        real, imaginary = _misplaced(reference.real, candidate.real, free), _misplaced(reference.imag, candidate.imag, free)
        return (real[0] or imaginary[0], real[1] + imaginary[1])
    wrong = elementwise(lambda mine, theirs: _are_misplaced(wide(mine), wide(theirs)), reference, candidate, dtype=bool)
    if free is not None:
        wrong &= ~free
    if not wrong.any():
        return "", 0
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = int(wrong.sum())
    numbers = bool(np.isfinite(candidate[wrong]).all())
    found, wanted = float(candidate[index]), float(reference[index])
    said = f"is {found:.3g} at {list(index)}, where the reference is {wanted} ({count} such elements)"
    return (f"{said}: the reference overflows, it does not" if numbers else said), count if numbers else 0


def _are_misplaced(reference: Array, candidate: Array) -> Array:
    """The elements where one is NaN or infinite, and the other is different."""
    numbers = np.isfinite(reference) & np.isfinite(candidate)
    return np.asarray(~(numbers | (np.isnan(reference) & np.isnan(candidate)) | (reference == candidate)))


def _compare_exactly(reference: Array, candidate: Array, allowed: float) -> Finding:
    unequal = np.asarray(reference != candidate)
    fraction = float(np.mean(unequal))
    if fraction <= allowed:
        return Finding(fraction, allowed, (), "", reference.size)
    index = tuple(int(i) for i in np.argwhere(unequal)[0])
    found, wanted = (np.asarray(array[index]).item() for array in (candidate, reference))
    problem = (
        f"is {found!r} at {list(index)}, where the reference is {wanted!r}; "
        f"{int(unequal.sum())} of {reference.size} elements differ, {int(allowed * reference.size)} may"
    )
    return Finding(fraction, allowed, index, problem, reference.size)
