"""Compares a fused case with its original by onnx's checker and plain onnxruntime, without the project's own verification.

If the original passed the checker, or opened in a session, the fused model must, too. Outputs are equal if they differ by at most
2e-4 of the largest magnitude in float32, or 1e-2 in float16, on the feeds of the case, with and without optimisation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime


def fault(case: Mapping[str, Any], source: Path, output: Path) -> tuple[str, str] | None:
    """What is wrong with the model written to `output`: ("invalid" or "wrong", why), or None."""
    return _validity(onnx.load(source), source, output) or _equality(case, source, output)


def _validity(original: onnx.ModelProto, source: Path, output: Path) -> tuple[str, str] | None:
    """A fault if the original passes onnx's checker, or opens in a session, and the written model does not."""
    try:
        onnx.checker.check_model(original)
    except Exception:  # the checker raises any error of its schemas; an invalid original proves nothing
        pass
    else:
        try:
            onnx.checker.check_model(onnx.load(output))
        except Exception as error:
            if "No Op registered for" not in str(error) and "No opset import" not in str(error):
                return "invalid", f"onnx.checker: {str(error).splitlines()[0]}"
    for optimised in (False, True):
        with contextlib.suppress(Exception):
            _session(source, optimised=optimised)
            try:
                _session(output, optimised=optimised)
            except Exception as error:
                return "invalid", f"onnxruntime: {str(error).splitlines()[0]}"
    return None


def _equality(case: Mapping[str, Any], source: Path, output: Path) -> tuple[str, str] | None:
    """A fault if the outputs differ on the case's feeds, for two seeds, with and without optimisation."""
    if not case["runnable"] or case["feeds"] is None:
        return None
    reference = _session(source, optimised=False)
    for optimised in (False, True):
        try:
            candidate = _session(output, optimised=optimised)
        except Exception:  # `_validity` reports it if the original loads; onnxruntime's own fusions break some models
            continue
        for seed in (0, 1):
            values = dict(feeds(case["feeds"], seed))
            expected, again = reference.run(None, values), _session(source, optimised=False).run(None, values)
            try:
                found = candidate.run(None, values)
            except Exception as error:
                return "wrong", f"does not run: {str(error).splitlines()[0]}"
            names = [o.name for o in reference.get_outputs()]
            for name, a, b, c in zip(names, found, expected, again, strict=True):
                difference = "" if _difference(c, b) else _difference(a, b)  # a Dropout in training mode is no reference
                if difference:
                    return "wrong", f"{name}: {difference}"
    return None


def _difference(found: Any, expected: Any) -> str:
    """How `found` differs from `expected` by more than 2e-4 of the largest magnitude (float16: 1e-2), or ""."""
    if not isinstance(expected, np.ndarray):
        return "" if len(found) == len(expected) else "another length"
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind != "f":
        return "" if np.array_equal(found, expected) else "integers differ"
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "other values are not finite"
    bound = (1e-2 if expected.dtype == np.float16 else 2e-4) * max(np.abs(b[finite]).max(initial=0.0), 1e-2)
    error = np.abs(a - b)[finite].max(initial=0.0)
    return "" if error <= bound else f"differs by {error:.3g}, bound {bound:.3g}"


def feeds(specifications: Sequence[Mapping[str, Any]], seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Values for the inputs of a case, uniform in the case's range."""
    draw = np.random.default_rng(seed)
    for spec in specifications:
        dtype, shape = np.dtype(spec["dtype"]), spec["shape"]
        if spec.get("value") is not None:
            yield spec["name"], np.broadcast_to(np.array(spec["value"], dtype), shape).copy()
        elif dtype.kind == "f":
            yield spec["name"], draw.uniform(spec["lo"], spec["hi"], shape).astype(dtype)
        else:
            yield spec["name"], draw.integers(int(spec["lo"]), max(int(spec["hi"]), int(spec["lo"]) + 1), shape).astype(dtype)


def _session(path: Path, *, optimised: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
