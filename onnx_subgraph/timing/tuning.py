"""The file that stores the best way to fuse a model on a machine; a later run reads it instead of measuring again."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onnx_subgraph.errors import UsageError
from onnx_subgraph.files.atomic import written_whole
from onnx_subgraph.kernels.library import ISA
from onnx_subgraph.timing.turns import Ratio

FORMAT = 1
KNOWN = {
    "prefer": ("speed", "fusion"),
    "target": ("onnxruntime", "standard", "native", "function"),
    "numerics": ("float32", "bf16x3", "bf16"),
}
"""The allowed values of the fields of a way."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A variant that was timed. what: in words, such as `without gelu`. ratio: its time by that of the model without it.

    taken: whether the final model has it.
    """

    what: str
    ratio: Ratio
    taken: bool


@dataclass(frozen=True, slots=True)
class Way:
    """How to fuse a model, in addition to the user's options. skip: patterns that are not applied.

    backend: makes engines of the regions that it supports, after the fusions; "" for none; several are separated by `;`.
    results: the values that engines of the first backend may compute; None for all. The others: see `Options`.
    """

    skip: tuple[str, ...] = ()
    prefer: str = "speed"
    target: str = "onnxruntime"
    numerics: str = "float32"
    rounded: tuple[str, ...] | None = None
    accuracy: float | None = None
    backend: str = ""
    results: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tuning(Way):
    """The chosen way for one model. choices: everything that was timed. notes: why other variants were not used, in words.

    whole: the time of the resulting model by that of the original; None where nothing is fused. machine: where this was measured.
    """

    choices: tuple[Choice, ...] = ()
    whole: Ratio | None = None
    machine: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def other_machine(self) -> str:
        """How this machine differs from the one of the measurements, in words; "" if it does not."""
        now = machine(str((self.machine or {}).get("provider", "")))
        changed = [name for name, value in (self.machine or {}).items() if now.get(name, value) != value]
        return ", ".join(f"{name} was {(self.machine or {})[name]} and is {now[name]}" for name in changed)


def machine(provider: str) -> dict[str, str]:
    """The parts of the machine that the times of a model depend on."""
    from onnx_subgraph.verification.sessions import onnxruntime

    return {"processor": processor(), "onnxruntime": onnxruntime().__version__, "provider": provider}


def processor() -> str:
    """The processor, as the system reports it, and the instruction set to which our kernels are limited.

    The name alone is not enough: virtual machines share one among generations.
    """
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    facts = {key.strip(): fact.strip() for key, _, fact in (line.partition(":") for line in text.splitlines())}
    numbers = [f"{word} {facts[key]}" for key, word in (("cpu family", "family"), ("model", "model")) if key in facts]
    limit = [f"limited to {word}"] if (word := os.environ.get(ISA)) else []
    return ", ".join([facts.get("model name") or platform.processor() or platform.machine(), *numbers, *limit])


def write(path: Path, found: Mapping[str, Tuning]) -> None:
    """Write the tunings, by the short names of the models (`short_names`). Raises ModelError where the file can't be written."""
    models = {name: asdict(tuning) for name, tuning in found.items()}
    with written_whole(path) as (file,):
        file.write((json.dumps({"format": FORMAT, "models": models}, indent=2, ensure_ascii=False) + "\n").encode())


def read(path: Path) -> dict[str, Tuning]:
    """Read the tunings, by the short names of the models. Raises UsageError where the file is not valid."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, and this version reads {FORMAT}")
        return {str(name): _tuning(fields) for name, fields in content["models"].items()}
    except OSError as error:
        raise UsageError(
            f"{path}: can't be read: {error.strerror or error}", hint="check the path; --tune writes the file"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = "something in it is of the wrong type" if isinstance(error, TypeError | AttributeError) else str(error)
        said = f"{said} is missing" if isinstance(error, KeyError) else said
        raise UsageError(
            f"{path}: it is no file that --tune has written: {said}", hint="make it with --tune --tuned FILE"
        ) from error


def _names(given: Any, what: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise ValueError(f"{what} is no list of names")
    return tuple(given)


def _number(given: Any, what: str) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not -1e300 < given < 1e300:
        raise ValueError(f"{what} is no number")
    return float(given)


def _ratio(given: Mapping[str, Any]) -> Ratio:
    return Ratio(**{name: _number(value, "a ratio") for name, value in given.items()})


def _choice(fields: Mapping[str, Any]) -> Choice:
    what, taken = fields["what"], fields["taken"]
    if not isinstance(what, str) or not isinstance(taken, bool):
        raise ValueError("a choice needs a text, and `taken` as true or false")
    return Choice(what, _ratio(fields["ratio"]), taken)


def _tuning(fields: Mapping[str, Any]) -> Tuning:
    for name, known in KNOWN.items():
        if fields[name] not in known:
            raise ValueError(f"{name} is {fields[name]!r}")
    rounded, accuracy, results, whole = fields["rounded"], fields["accuracy"], fields.get("results"), fields.get("whole")
    backend, choices = fields["backend"], fields.get("choices", [])
    if not isinstance(backend, str) or not isinstance(choices, list):
        raise ValueError("backend is no name, or choices is no list")
    if accuracy is not None and _number(accuracy, "accuracy") <= 0:
        raise ValueError("accuracy is not above 0")
    return Tuning(
        skip=_names(fields["skip"], "skip"),
        prefer=fields["prefer"],
        target=fields["target"],
        numerics=fields["numerics"],
        rounded=None if rounded is None else _names(rounded, "rounded"),
        results=None if results is None else _names(results, "results"),
        accuracy=None if accuracy is None else float(accuracy),
        backend=backend,
        choices=tuple(map(_choice, choices)),
        whole=None if whole is None else _ratio(whole),
        notes=_names(fields.get("notes", []), "notes"),
        machine={str(k): str(v) for k, v in (fields.get("machine") or {}).items()},
    )
