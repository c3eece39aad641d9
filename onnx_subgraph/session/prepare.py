"""Prepares a model: runs our own commands on it in child processes, and caches the result.

The user's process does not change: it imports no heavy library, holds no memory, and survives a crash during preparation. A
verdict against a model is cached too, so that the next start does not try again.
"""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnx_subgraph.backends.names import check_backends, names_in
from onnx_subgraph.errors import OnnxSubgraphWarning, SessionError
from onnx_subgraph.language.installed import with_names_resolved
from onnx_subgraph.paths import several
from onnx_subgraph.session import commands
from onnx_subgraph.session.cache import MODEL, PACKED, Cache, Entry, NoCache
from onnx_subgraph.session.commands import FailedError, Patience
from onnx_subgraph.session.digest import digest_of
from onnx_subgraph.session.ingredients import ingredients, machine
from onnx_subgraph.session.providers import CPU
from onnx_subgraph.session.settings import PREFIX, SessionSettings
from onnx_subgraph.session.users_frame import users_frame
from onnx_subgraph.temporary import LockedError

LEAST_PACKED = 1 << 17
"""The least bytes of a model whose weights are packed and shared, since packing starts a process."""
FORMAT = "1"
"""Increase this when the content of a cache entry changes its meaning."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Commands of `onnx-subgraph` to run on a model, one after the other, without MODEL, -o and --json.

    packs: also write a copy with weights packed for this machine and shared with other models of the same source.
    """

    commands: tuple[tuple[str, ...], ...]
    packs: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared model. path: its file, None if the original is to be used as it is (`reason` says why).

    packed: the same model with packed weights, for sessions that should not hold their own; None if there is none.
    from_cache: it existed before. nbytes: of its files, without shared ones. fusions, engines: how many were made.
    libraries: of custom operators, that the file needs. temporary: remove it after loading. key: of all inputs.
    content: the digest of the original and its data.
    """

    path: Path | None
    reason: str = ""
    packed: Path | None = None
    refused: bool = False
    from_cache: bool = False
    nbytes: int = 0
    fusions: int = 0
    engines: int = 0
    libraries: tuple[Path, ...] = ()
    temporary: Path | None = None
    key: str = ""
    content: str = ""


def fusing(settings: SessionSettings, providers: Sequence[str]) -> Recipe:
    """The recipe of a general model for these providers."""
    return Recipe((("fuse", *_options(settings, providers)), *partitioning(settings)))


def specializing(
    settings: SessionSettings, providers: Sequence[str], shapes: Mapping[str, tuple[int, ...]], *, packs: bool = False
) -> Recipe:
    """The recipe of a model for only these input shapes. packs: its sessions optimise as onnxruntime does by default."""
    fixed = [part for name, shape in shapes.items() for part in ("--shape", f"{name}={'x'.join(map(str, shape))}")]
    packs = packs and settings.backend is None and not several(settings.libraries) and tuple(providers) == (CPU,)
    return Recipe((("specialize", *fixed, *_options(settings, providers)), *partitioning(settings)), packs)


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
    """The command that gives regions to backends, if some are chosen. Raises UsageError for an unknown backend."""
    if settings.backend is None:
        return ()
    check_backends(settings.backend)  # before the time is spent on fusing
    chosen = [*(["--isolated"] if settings.isolated else []), *(["--measure"] if settings.measure else [])]
    backends = [part for name in names_in(settings.backend) for part in ("--backend", name)]
    return (("partition", *backends, *chosen, *_libraries(settings)),)


def _libraries(settings: SessionSettings) -> list[str]:
    return [part for path in several(settings.libraries) for part in ("--custom-op-library", str(path.absolute()))]


def cache_of(settings: SessionSettings) -> Cache | NoCache:
    """The cache of these settings, or its replacement if they have none."""
    return NoCache() if settings.cache is None else Cache(Path(settings.cache), settings.cache_bytes)


def prepare(
    source: Path | bytes,
    recipe: Recipe,
    settings: SessionSettings,
    *,
    cache: Cache | NoCache,
    weights: Path | None = None,
    stop: threading.Event | None = None,
    aside: bool = False,
) -> Prepared:
    """The model that `recipe` makes of `source`, from the cache if it is there.

    source: a model file, or a serialized model, whose external data is in `weights`. cache: keeps what it gives until it is
    loaded. stop: ends the preparation early when set.
    aside: nobody waits, so run at the lowest priority.
    Raises SessionError if it can't be made; OnnxSubgraphError and OSError if the model or the cache can't be read.
    """
    content = cache.memory.model(source, weights)
    here = machine() if recipe.packs else []
    key = digest_of([FORMAT, ingredients(settings, cache.memory), content, *map(json.dumps, recipe.commands), *here])

    def fill(folder: Path) -> dict[str, Any]:
        staging = folder / "staging"
        staging.mkdir()
        try:
            given = _staged(source, cache.memory.locations(source), staging, weights)
            patience = Patience(settings.timeout, stop, settings.retry, aside)
            note = _follow(recipe, given, staging, folder, patience)
            if cache.memory.model(source, weights) != content:
                raise SessionError("the model was changed while it was prepared")
            if recipe.packs and isinstance(cache, Cache) and (folder / MODEL).exists():
                note["unpacked"] = _pack(folder, staging, cache.weights(content), patience)
            return note
        except FailedError as error:
            if not settings.retry or isinstance(cache, NoCache):
                raise
            return {"refused": True, "failed": True, "reason": str(error), "until": time.time() + settings.retry}
        finally:
            shutil.rmtree(staging)

    patience = settings.timeout * (len(recipe.commands) + recipe.packs)  # as long as a maker may take
    try:
        entry = cache.get(key, fill, lasting=not settings.retry, patience=patience)
    except LockedError as error:
        warnings.warn(f"{error}; the model is prepared without the cache", OnnxSubgraphWarning, stacklevel=users_frame())
        entry = (cache := NoCache()).get(key, fill)
    return replace(_prepared(entry, key, temporary=isinstance(cache, NoCache)), content=content)


def _prepared(entry: Entry, key: str, *, temporary: bool) -> Prepared:
    note = entry.note
    reason = str(note.get("reason", ""))
    if "until" in note:
        minutes = max(1, math.ceil((float(note["until"]) - time.time()) / 60))
        reason += f" (it is tried again in {minutes} min, or now with {PREFIX}RETRY=0)"
    return Prepared(
        path=entry.model,
        reason=reason,
        packed=packed if (packed := entry.folder / PACKED).exists() else None,
        refused=bool(note.get("refused")),
        from_cache=entry.found,
        nbytes=entry.nbytes,
        fusions=int(note.get("fusions", 0)),
        engines=int(note.get("engines", 0)),
        libraries=tuple(map(Path, note.get("libraries", ()))),
        temporary=entry.folder if temporary else None,
        key=key,
    )


def _follow(recipe: Recipe, source: Path, staging: Path, folder: Path, patience: Patience) -> dict[str, Any]:
    """Run the commands on `source`; writes the model to `folder`, or none if no command changed anything."""
    model = source
    changed, fusions, engines, libraries, failed = False, 0, 0, list[str](), list[str]()
    for number, command in enumerate(recipe.commands):
        output = staging / f"step{number}" / MODEL
        output.parent.mkdir()
        told = commands.run(command, model, output, patience)
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
        _move(model.parent, folder)
    made = {"fusions": fusions, "engines": engines, "libraries": libraries}
    if failed and patience.retry:  # the backend may run it another time
        made["until"] = time.time() + patience.retry
        return made | {"reason": failed[0]}
    return made | {"reason": "" if changed else "nothing in it can be fused"}


def _pack(folder: Path, staging: Path, store: Path, patience: Patience) -> str:
    """Pack the weights of the model in `folder`; the reason if they are not packed, else ""."""
    if sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) < LEAST_PACKED:
        return "its weights are too small to be worth it"
    output = staging / "packed" / PACKED
    output.parent.mkdir()
    try:
        commands.run(("pack", "--store", str(store)), folder / MODEL, output, patience)
    except FailedError as error:
        return error.message
    _move(output.parent, folder)
    return ""


def _move(made: Path, folder: Path) -> None:
    """Move the files of one folder to another."""
    for path in sorted(made.iterdir()):
        path.rename(folder / path.name)


def _staged(source: Path | bytes, locations: Sequence[str], staging: Path, weights: Path | None) -> Path:
    """A file of the model with its data beside it: the file itself, or a new one with hard links to its data, or copies.

    Symbolic links would lead out of the folder of the model, which neither we nor onnxruntime follow.
    """
    if isinstance(source, Path):
        return source.absolute()
    taken = {Path(location).parts[0] for location in locations}
    path = staging / "given" / next(name for number in range(len(taken) + 1) if (name := f"{number or ''}{MODEL}") not in taken)
    path.parent.mkdir()
    path.write_bytes(source)
    folder = (weights or Path.cwd()).resolve()
    for location in locations:  # `Memory.model` has checked that none is absolute or goes up
        data, given = path.parent / location, (folder / location).resolve()
        if not given.is_relative_to(folder):
            raise SessionError(f"its data '{location}' is a link that leaves {folder}", hint="put the data itself there")
        data.parent.mkdir(parents=True, exist_ok=True)
        try:
            data.hardlink_to(given)
        except FileExistsError:  # another spelling of the same place
            continue
        except OSError:  # on another device, or the system refuses it
            shutil.copyfile(given, data)
    return path
