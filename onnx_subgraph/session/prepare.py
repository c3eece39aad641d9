"""Preparing a model: our own commands, run on it in a process of their own, and their result kept in the cache.

The process of the user's program stays as it was: no heavy library is imported into it, no memory is held, and whatever crashes
while preparing crashes elsewhere. A verdict against a model is remembered too, so that the next start does not try again.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx_subgraph.backends.names import check_backend
from onnx_subgraph.errors import SessionError
from onnx_subgraph.language.installed import with_names_resolved
from onnx_subgraph.paths import several
from onnx_subgraph.session.cache import MODEL, Cache, Entry, NoCache
from onnx_subgraph.session.digest import PACKAGE, digest_of
from onnx_subgraph.session.ingredients import ISA, KERNELS, ingredients
from onnx_subgraph.session.settings import PREFIX, SessionSettings

LOOK_SECONDS = 0.05
"""How often a preparation looks whether it is still wanted."""
LOWEST = 19
"""The priority of a process in the background, as `nice` counts."""
FORMAT = "1"
"""Changes whenever what a cache entry means changes."""


class FailedError(SessionError):
    """A command ended without an answer, or with an error, which another time it may not."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Commands of `onnx-subgraph` to run one after the other on a model, each without its MODEL, its -o and its --json."""

    commands: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared model. path: its file, None where the original is to be used as it is (`reason` says why).

    from_cache: it was made before. nbytes: of its files. fusions, engines: how many were made. libraries: of custom
    operators, that the file needs. temporary: to be removed after loading.
    """

    path: Path | None
    reason: str = ""
    refused: bool = False
    from_cache: bool = False
    nbytes: int = 0
    fusions: int = 0
    engines: int = 0
    libraries: tuple[Path, ...] = ()
    temporary: Path | None = None


def fusing(settings: SessionSettings, providers: Sequence[str]) -> Recipe:
    """The recipe of a general model for these providers."""
    return Recipe((("fuse", *_options(settings, providers)), *partitioning(settings)))


def specializing(settings: SessionSettings, providers: Sequence[str], shapes: Mapping[str, tuple[int, ...]]) -> Recipe:
    """The recipe of a model for these shapes of its inputs alone."""
    fixed = [part for name, shape in shapes.items() for part in ("--shape", f"{name}={'x'.join(map(str, shape))}")]
    return Recipe((("specialize", *fixed, *_options(settings, providers)), *partitioning(settings)))


def _options(settings: SessionSettings, providers: Sequence[str]) -> tuple[str, ...]:
    options = ["--target", settings.target or ("onnxruntime" if settings.backend is None else "standard")]
    if settings.numerics != "float32":
        options += ["--numerics", settings.numerics]
    for provider in dict.fromkeys(providers):
        options += ["--provider", provider]
    if settings.skip:
        options += ["--skip", ",".join(settings.skip)]
    options += [part for path in with_names_resolved(settings.patterns) for part in ("--patterns", str(path.absolute()))]
    flags = {
        "--constant-initializers": settings.constant_initializers,
        "--keep-subnormals": settings.keep_subnormals,
        "--no-simplify": not settings.simplify,
        "--no-verify": not settings.verify,
    }
    return (*options, *_libraries(settings), *(flag for flag, wanted in flags.items() if wanted))


def partitioning(settings: SessionSettings) -> tuple[tuple[str, ...], ...]:
    """The command that gives regions to the backend, where one is chosen. Raises UsageError where there is no such backend."""
    if settings.backend is None:
        return ()
    check_backend(settings.backend)  # before the time is spent on fusing
    chosen = [*(["--isolated"] if settings.isolated else []), *(["--measure"] if settings.measure else [])]
    return (("partition", "--backend", settings.backend, *chosen, *_libraries(settings)),)


def _libraries(settings: SessionSettings) -> list[str]:
    return [part for path in several(settings.libraries) for part in ("--custom-op-library", str(path.absolute()))]


def prepare(
    source: Path | bytes,
    recipe: Recipe,
    settings: SessionSettings,
    *,
    weights: Path | None = None,
    stop: threading.Event | None = None,
) -> Prepared:
    """The model that `recipe` makes of `source`, from the cache where it was made before.

    source: a model file, or a serialized model, whose external data lies in `weights`. stop: ends it early when it is set, and
    what can be stopped goes on in the background, where it takes only the time that nobody else wants.
    Raises SessionError where it can't be made; OnnxSubgraphError and OSError where the model or the cache can't be read.
    """
    cache = NoCache() if settings.cache is None else Cache(Path(settings.cache), settings.cache_bytes)
    content = cache.memory.model(source, weights)
    key = digest_of([FORMAT, ingredients(settings, cache.memory), content, *map(json.dumps, recipe.commands)])

    def fill(folder: Path) -> dict[str, Any]:
        staging = folder / "staging"
        staging.mkdir()
        try:
            given = _staged(source, cache.memory.locations(source), staging, weights)
            return _follow(recipe, given, staging, folder, _Patience(settings.timeout, stop, settings.retry))
        except FailedError as error:
            if not settings.retry or isinstance(cache, NoCache):
                raise
            return {"refused": True, "failed": True, "reason": str(error), "until": time.time() + settings.retry}
        finally:
            shutil.rmtree(staging)

    return _prepared(cache.get(key, fill, lasting=not settings.retry), temporary=isinstance(cache, NoCache))


def _prepared(entry: Entry, *, temporary: bool) -> Prepared:
    note = entry.note
    reason = str(note.get("reason", ""))
    if "until" in note:
        minutes = max(1, math.ceil((float(note["until"]) - time.time()) / 60))
        reason += f" (it is tried again in {minutes} min, or now with {PREFIX}RETRY=0)"
    return Prepared(
        path=entry.model,
        reason=reason,
        refused=bool(note.get("refused")),
        from_cache=entry.found,
        nbytes=entry.nbytes,
        fusions=int(note.get("fusions", 0)),
        engines=int(note.get("engines", 0)),
        libraries=tuple(map(Path, note.get("libraries", ()))),
        temporary=entry.folder if temporary else None,
    )


@dataclass(frozen=True, slots=True)
class _Patience:
    """How long a command may run: so many seconds, and until `stop` is set. retry: for how long a failure is remembered."""

    seconds: float
    stop: threading.Event | None
    retry: float = 0.0


def _follow(recipe: Recipe, source: Path, staging: Path, folder: Path, patience: _Patience) -> dict[str, Any]:
    """Run the commands on `source`; leaves the model in `folder`, or no model where none of them changed anything."""
    model = source
    changed, fusions, engines, libraries, failed = False, 0, 0, list[str](), list[str]()
    for number, command in enumerate(recipe.commands):
        output = staging / f"step{number}" / MODEL
        output.parent.mkdir()
        told = _run(command, model, output, patience)
        verdict = told.get("verification", {})
        if verdict.get("verdict") == "different":
            return {"refused": True, "reason": f"`onnx-subgraph {command[0]}` made a model that is not equivalent"}
        if not output.exists():
            return {"refused": True, "reason": str(verdict.get("reason") or f"`onnx-subgraph {command[0]}` wrote no model")}
        if not told.get("unchanged"):
            model, changed = output, True
            fusions += sum(int(fusion["count"]) for fusion in told.get("fusions", ()))
            engines += len(told.get("engines", ()))
            libraries += told.get("libraries", ())
        failed += [str(region["reason"]) for region in told.get("refused", ()) if region.get("failed")]
    if changed:
        for path in sorted(model.parent.iterdir()):
            path.rename(folder / path.name)
    made = {"fusions": fusions, "engines": engines, "libraries": libraries}
    if failed and patience.retry:  # another time the backend may run what it did not run now
        made["until"] = time.time() + patience.retry
        return made | {"reason": failed[0]}
    return made | {"reason": "" if changed else "nothing in it can be fused"}


def _staged(source: Path | bytes, locations: Sequence[str], staging: Path, weights: Path | None) -> Path:
    """A file of the model with its data beside it: the file itself, or one that is written now, with links to its data."""
    if isinstance(source, Path) and weights is None:
        return source.absolute()
    path = staging / "given" / MODEL
    path.parent.mkdir()
    path.write_bytes(source if isinstance(source, bytes) else source.read_bytes())
    for location in locations:  # `Memory.model` has seen that they stay in their folder
        data = path.parent / location
        data.parent.mkdir(parents=True, exist_ok=True)
        data.symlink_to(((weights or Path.cwd()) / location).absolute())
    return path


def _run(command: tuple[str, ...], model: Path, output: Path, patience: _Patience) -> dict[str, Any]:
    """What the command says in JSON. Raises SessionError with its message where it fails."""
    call = [_python(), "-P", "-m", "onnx_subgraph", command[0], str(model), "-o", str(output), "--json", *command[1:]]
    try:
        with subprocess.Popen(
            call,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=_environment(),
        ) as child:
            if patience.stop is not None:
                _step_back(child)
            out, err = _communicate(child, command[0], patience)
    except OSError as error:
        raise SessionError(f"{call[0]} can't be run: {error.strerror or error}", hint=_PYTHON_HINT) from error
    try:
        told = json.loads(out)
    except ValueError:
        told = None
    if not isinstance(told, dict) or child.returncode not in (0, 1, 2):
        raise FailedError(_last_words(child.returncode, err, command[0]))
    if "error" in told:
        raise FailedError(str(told["error"]))
    return told


def _step_back(child: subprocess.Popen[str]) -> None:
    """Let everybody else go first, as far as the system can: threads that the child starts inherit it."""
    with contextlib.suppress(OSError):  # it may be gone already
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(child.pid, os.SCHED_IDLE, os.sched_param(0))
        elif hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, child.pid, LOWEST)


def _communicate(child: subprocess.Popen[str], command: str, patience: _Patience) -> tuple[str, str]:
    """What the child writes to its two streams. It does not outlive this call, whatever ends it."""
    begun = time.monotonic()
    try:
        while True:
            try:
                return child.communicate(timeout=LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                if patience.stop is not None and patience.stop.is_set():
                    raise SessionError("it was not waited for") from None
                if time.monotonic() - begun > patience.seconds:
                    raise FailedError(
                        f"`onnx-subgraph {command}` took longer than {patience.seconds:g} s",
                        hint=f"give it more with {PREFIX}TIMEOUT, or run `onnx-subgraph {command}` ahead of time",
                    ) from None
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


_PYTHON_HINT = "in a program that embeds Python, say with multiprocessing.set_executable which Python to run"


def _python() -> str:
    """The Python to run commands with: that of this process, or what an embedding program told multiprocessing."""
    from multiprocessing import spawn

    executable = spawn.get_executable()
    if not executable or getattr(sys, "frozen", False):
        raise SessionError("this program has no Python of its own to prepare models with", hint=_PYTHON_HINT)
    return os.fsdecode(executable)


def _environment() -> dict[str, str]:
    """The environment for our commands: they find what this process finds, and are not hooked themselves."""
    places = [place for place in sys.path if place and Path(place) != PACKAGE / "session" / "site"]
    if str(PACKAGE.parent) not in places:
        places.append(str(PACKAGE.parent))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX) or name in (ISA, KERNELS)}
    return {**kept, "PYTHONPATH": os.pathsep.join(places), f"{PREFIX}SESSION": "0"}


def _last_words(code: int, said: str, command: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    message = " ".join(lines[-3:]).removeprefix("Error: ")
    return f"`onnx-subgraph {command}` ended with {how}{': ' + message if message else ''}"
