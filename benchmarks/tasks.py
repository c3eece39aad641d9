"""The models that a benchmark runs: files, and models of a corpus, with inputs for them.

A corpus is a folder of models without their weights, with `manifest.json`, `truth.json` and `materialize.py` (README.md).
"""

from __future__ import annotations

import fnmatch
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from scripts import load_script
from taking_turns import CPU

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from onnx_subgraph.files.models import load
from onnx_subgraph.inputs.feeds import draw_feeds, required_inputs
from onnx_subgraph.inputs.sizes import assignments


@dataclass(frozen=True)
class Task:
    """One model. entry: its entry in the corpus, with sizes and options of the transformers optimizer. budget: seconds of timing.

    made: a folder that keeps the fused models. dims: symbolic dimension → size, in place of the corpus's.
    """

    name: str
    model: Path
    budget: float
    threads: int
    entry: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    corpus: Path | None = None
    made: Path | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    provider: str = CPU

    @property
    def kept(self) -> str:
        """The name under which the row of this task is kept."""
        return "@".join([self.name, *(f"{name}={size}" for name, size in self.dims.items())])


def tasks(
    models_or_corpora: Iterable[Path],
    *,
    names: str = "*",
    budget: float = 0.0,
    threads: int = 0,
    cache: Path | None = None,
    shapes: Iterable[tuple[str, tuple[int, ...]]] = (),
    dims: Iterable[tuple[str, int]] = (),
    made: Path | None = None,
    provider: str = CPU,
) -> list[Task]:
    """The tasks for the given models and corpora.

    names: a glob over the names of a corpus. shapes: of inputs of files. cache: a folder of runnable models. dims: symbolic
    dimensions with sizes; only models of a corpus that have one of them are taken then. The others: see `Task`.
    """
    found, given = [], dict(dims)
    task = partial(Task, budget=budget, threads=threads, made=made, provider=provider)
    for path in models_or_corpora:
        if not (path / "manifest.json").exists():
            found.append(task(path.stem, path, shapes=dict(shapes)))
            continue
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        truth = json.loads((path / "truth.json").read_text(encoding="utf-8"))
        for name in fnmatch.filter(sorted(manifest), names):
            units = truth.get(manifest[name]["base"].removesuffix("_fp16conv"), {})
            entry = {**manifest[name], "transformer": bool(units.get("attention") or units.get("softmax"))}
            file = (cache or path / "runnable") / f"{name}.onnx"
            own = {d: size for d, size in given.items() if d in manifest[name].get("run_dims", {})}
            if bool(own) == bool(given):
                found.append(task(name, file, entry=entry, corpus=path.resolve(), dims=own))
    return found


def runnable(task: Task, folder: Path) -> Path:
    """The model with its weights. A model of a corpus gets them here, unless the cache has it."""
    if task.model.exists() or task.corpus is None:
        return task.model
    materialize = load_script(task.corpus / "materialize.py")
    path = (task.model.parent if task.model.parent.is_dir() else folder) / task.model.name
    model, size = materialize.materialize(str(task.corpus / task.model.name))
    materialize.save(model, size, str(path))
    return path


def feeds_of(path: Path, task: Task) -> Mapping[str, Any]:
    """Feeds at the sizes of the corpus, or at the first sizes that verification would use."""
    model = load(path)
    sizes = dict(next(iter(assignments(required_inputs(model), task.shapes))))
    sizes |= {name: int(size) for name, size in task.entry.get("run_dims", {}).items()} | dict(task.dims)
    return draw_feeds(model, sizes)
