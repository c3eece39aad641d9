"""The settings of a session, and the environment variables that set them.

Only the standard library is imported here, because every program under the hook reads them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from onnx_subgraph.backends.names import is_file_name, names_in
from onnx_subgraph.errors import UsageError
from onnx_subgraph.language.installed import with_names_resolved
from onnx_subgraph.paths import StrPath, cache_folder, path_of, several
from onnx_subgraph.targets import NUMERICS, TARGETS, check_numerics
from onnx_subgraph.values import check_not_negative, check_positive, check_share, check_whole, words

PREFIX = "ONNX_SUBGRAPH_"
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off", "none"})
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How a session prepares its model.

    enabled: False loads models as they are.
    skip, patterns, target, numerics: as the options of `onnx-subgraph fuse`; the default target is standard with a backend, since
    few backends know onnxruntime's operators, else onnxruntime.
    backend: of `onnx-subgraph partition`, several in a list or separated by `;`, None to only fuse.
    isolated: backends prepare and run in separate processes, which may crash.
    measure: as the option of `onnx-subgraph partition`.
    static: prepare a model for each signature that comes again, as `StaticSession` does.
    constant_initializers, keep_subnormals: as the options of `onnx-subgraph fuse`; with the first the session has fewer inputs.
    simplify: False is `--no-simplify`. libraries: of custom operators, loaded for the preparation and into the session.
    deadline: seconds that a run of the backend may take, None for no limit.
    check: the share of its runs that is compared with onnxruntime's. verify: compare the fused model with the original first.
    strict: raise an error instead of warning and loading the unmodified model.
    cache: the folder of prepared models, None for none. cache_bytes: its size limit. timeout: seconds that preparing may take.
    retry: seconds for which a failed preparation is not tried again, 0 to try each time.
    Relative paths are of the folder in which the settings are made. Raises PatternError for a pack without its package, and
    UsageError for other values that can't be used.
    """

    enabled: bool = True
    backend: str | Sequence[str] | None = None
    isolated: bool = False
    measure: bool = False
    static: bool = False
    target: str | None = None
    numerics: str = "float32"
    skip: str | Sequence[str] = ()
    patterns: StrPath | Sequence[StrPath] = ()
    libraries: StrPath | Sequence[StrPath] = ()
    constant_initializers: bool = False
    keep_subnormals: bool = False
    simplify: bool = True
    deadline: float | None = None
    check: float = 0.002
    verify: bool = True
    strict: bool = False
    cache: StrPath | None = field(default_factory=cache_folder)
    cache_bytes: int = 8 << 30
    timeout: float = 600.0
    retry: float = 3600.0

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        check_share(check=self.check)
        check_positive(deadline=self.deadline, timeout=self.timeout)
        check_not_negative(retry=self.retry)
        check_whole(cache_bytes=self.cache_bytes)
        check_numerics(self.numerics, self.target or "onnxruntime")
        put("skip", words(self.skip))
        if self.cache is not None:  # paths stay where they are when the program changes its folder
            put("cache", path_of(self.cache, "the cache").absolute())
        if self.backend is not None:
            names = names_in(self.backend)
            if not names:
                raise UsageError("the settings name no backend", hint="give None for no backend, or the name of one")
            put("backend", ";".join(map(_in_place, names)))
        put("patterns", tuple(path.absolute() for path in with_names_resolved(self.patterns)))
        put("libraries", tuple(path.absolute() for path in several(self.libraries)))

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> SessionSettings:
        """The settings from `ONNX_SUBGRAPH_…` variables, with defaults. Raises UsageError that names a bad variable."""
        given = {name: environment[PREFIX + name].strip() for name in VARIABLES if PREFIX + name in environment}
        cache = given.get("CACHE", "")
        default = cls(cache=None)
        return cls(
            enabled=_flag(given, "SESSION", default.enabled),
            backend=_backend(given.get("BACKEND", "")),
            isolated=_flag(given, "ISOLATED", default.isolated),
            measure=_flag(given, "MEASURE", default.measure),
            static=_flag(given, "STATIC", default.static),
            target=_word(given, "TARGET", TARGETS) or None,
            numerics=_word(given, "NUMERICS", NUMERICS) or default.numerics,
            skip=tuple(part.strip() for part in given.get("SKIP", "").split(",") if part.strip()),
            patterns=tuple(Path(part) for part in given.get("PATTERNS", "").split(os.pathsep) if part),
            libraries=tuple(Path(part) for part in given.get("CUSTOM_OP_LIBRARIES", "").split(os.pathsep) if part),
            constant_initializers=_flag(given, "CONSTANT_INITIALIZERS", default.constant_initializers),
            keep_subnormals=_flag(given, "KEEP_SUBNORMALS", default.keep_subnormals),
            simplify=_flag(given, "SIMPLIFY", default.simplify),
            deadline=_seconds(given, "DEADLINE", default.deadline),
            check=_share(given, "CHECK", default.check),
            verify=_flag(given, "VERIFY", default.verify),
            strict=_flag(given, "STRICT", default.strict),
            cache=cache_folder(environment) if not cache else None if cache.lower() in _NO else Path(cache),
            cache_bytes=_bytes(given["CACHE_SIZE"]) if given.get("CACHE_SIZE") else default.cache_bytes,
            timeout=_seconds(given, "TIMEOUT", default.timeout),
            retry=_number(given, "RETRY", default.retry, 1e9, "is no number of seconds", "3600"),
        )


VARIABLES: Mapping[str, str] = {
    "SESSION": "1 or 0: 0 loads models as they are, 1 (with the hook) prepares them",
    "BACKEND": "the backends that regions are given to, with a ; between them; it implies SESSION=1",
    "ISOLATED": "1 runs the backend in a process of its own, which it may crash",
    "MEASURE": "1 gives the backend only regions that were timed to be faster by it, as partition --measure",
    "STATIC": "1 prepares a model for each signature of feeds that comes again, as StaticSession does",
    "TARGET": "as fuse --target",
    "NUMERICS": "as fuse --numerics",
    "SKIP": "as fuse --skip",
    "PATTERNS": "as fuse --patterns; several, separated as in PATH",
    "CUSTOM_OP_LIBRARIES": "as fuse --custom-op-library; several, separated as in PATH",
    "CONSTANT_INITIALIZERS": "1 takes weights that are inputs out of the inputs, as fuse --constant-initializers",
    "KEEP_SUBNORMALS": "1 leaves weights that are subnormal, as fuse --keep-subnormals",
    "SIMPLIFY": "0 leaves nodes whose results are known beforehand, as fuse --no-simplify",
    "DEADLINE": "how many seconds a run of the backend may take; no limit by default",
    "CHECK": "the share of the backend's runs that is compared with onnxruntime's, 0.002 by default",
    "VERIFY": "0 prepares without comparing with the original",
    "STRICT": "1 raises where the unmodified model would be used",
    "CACHE": "the folder of prepared models, or off",
    "CACHE_SIZE": "how large that folder may become, 8G by default",
    "RETRY": "how many seconds it is remembered that preparing a model failed, 3600 by default; 0 tries each time",
    "TIMEOUT": "how many seconds preparing a model may take, 600 by default",
}
"""Environment variable without its prefix → its meaning."""


def asked_for(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment asks to prepare onnxruntime's own sessions too.

    SESSION=1 does; BACKEND and STATIC=1 do, unless SESSION=0.
    """
    session, backend, static = (
        environment.get(f"{PREFIX}{name}", "").strip().lower() for name in ("SESSION", "BACKEND", "STATIC")
    )
    return session in _YES or (session == "" and (backend not in _NO or static in _YES))


def is_strict(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment asks that failures raise; it can be read even if other variables are wrong."""
    return environment.get(f"{PREFIX}STRICT", "").strip().lower() not in _NO


def _in_place(backend: str) -> str:
    """The name of a backend, or the absolute path of the file that declares it."""
    return str(Path(backend).absolute()) if is_file_name(backend) else backend


def _backend(text: str) -> str | None:
    if text.lower() in _NO:
        return None
    if not names_in(text):
        raise UsageError(f"{PREFIX}BACKEND={text} names no backend", hint=VARIABLES["BACKEND"])
    return text


def _word(given: Mapping[str, str], name: str, known: Sequence[str]) -> str:
    text = given.get(name, "")
    if text and text not in known:
        raise UsageError(f"{PREFIX}{name}={text} is none of {', '.join(known)}", hint=VARIABLES[name])
    return text


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, "").lower()
    if not text:
        return default
    if text not in _YES and text not in _NO:
        raise UsageError(f"{PREFIX}{name}={given[name]} is neither 1 nor 0", hint=VARIABLES[name])
    return text in _YES


def _bytes(text: str) -> int:
    number, unit = text.lower().removesuffix("b").removesuffix("i"), ""
    if number[-1:].isalpha():
        number, unit = number[:-1], number[-1]
    try:
        count = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        count = -1.0
    if not 0 <= count < 1 << 62:
        raise UsageError(f"{PREFIX}CACHE_SIZE={text} is no number of bytes", hint="write for example 500M or 8G")
    return int(count)


def _seconds(given: Mapping[str, str], name: str, default: Any) -> Any:
    return _number(given, name, default, 1e9, "is no number of seconds", "600")


def _share(given: Mapping[str, str], name: str, default: float) -> float:
    return float(_number(given, name, default, 1.0, "is no share of 1", "0.01"))


def _number(given: Mapping[str, str], name: str, default: Any, most: float, problem: str, example: str) -> Any:
    """The number in a variable, or the default. Raises UsageError below 0 and above `most`."""
    text = given.get(name, "")
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most or (number == 0 and name not in ("CHECK", "RETRY")):
        raise UsageError(f"{PREFIX}{name}={text} {problem}", hint=f"write for example {example}")
    return number
