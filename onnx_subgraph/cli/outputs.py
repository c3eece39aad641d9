"""The output paths of `fuse`, decided before the first model is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from onnx_subgraph.cli.models import Models, Named
from onnx_subgraph.cli.streams import default_output
from onnx_subgraph.errors import ModelError, UsageError
from onnx_subgraph.paths import beside


def without_own(models: Sequence[Path], say: Callable[[str], None]) -> tuple[Path, ...]:
    """The models without outputs of an earlier run among them, so that `fuse *.onnx` can be run again.

    A file is our output if it has the name of an output and our metadata, or is an unchanged copy of its model. say: called with
    each one that is left out. Another file of such a name stays among the models; `plan_outputs` refuses it.
    """
    makers = {beside(model, "fused").resolve(): model for model in models}
    left = []
    for model in models:
        maker = makers.get(model.resolve())
        if maker is not None and _is_made_of(model, maker):
            say(f"{model}: left out, because an earlier run made it of {maker}, which is fused again")
        else:
            left.append(model)
    return tuple(left)


def _is_made_of(model: Path, maker: Path) -> bool:
    from onnx_subgraph.files.models import read
    from onnx_subgraph.pipeline import WRITTEN_BY

    try:
        if model.samefile(maker):
            return False
        return any(entry.key == WRITTEN_BY for entry in read(model).metadata_props) or model.read_bytes() == maker.read_bytes()
    except (ModelError, OSError):
        return False


def without_written(models: Models, output_dir: Path, say: Callable[[str], None]) -> Models:
    """The models without those found in `output_dir`, if that is inside the searched folder.

    say: called with how many are left out.
    """
    from onnx_subgraph.report.wording import count

    target = output_dir.resolve()
    left = [one for one in models.named if not (one.found and _is_in(one, target))]
    if out := len(models.named) - len(left):
        say(f"{output_dir}: {count(out, 'file')} in it left out, because the output is written there")
    return replace(models, named=tuple(left))


def _is_in(model: Named, folder: Path) -> bool:
    return folder in model.path.resolve().parents and model.root.resolve() in folder.parents


def plan_outputs(models: Sequence[Path], output: Path | None, output_dir: Path | None, below: Sequence[Path] = ()) -> list[Path]:
    """The file to write for each model. below: its path in `output_dir`; by default its name.

    Raises UsageError if options exclude each other or a file would be overwritten.
    """
    if output is not None and output_dir is not None:
        raise UsageError("-o and --output-dir exclude each other", hint="give one of them")
    if output is not None and len(models) > 1:
        raise UsageError(f"-o names one file, but there are {len(models)} models", hint="use --output-dir")
    if output is not None and output.is_dir():
        raise UsageError(f"{output} is a folder, and -o names a file", hint=f"use --output-dir {output}")
    if output is not None:
        outputs = [output]
    elif output_dir is not None:
        outputs = [output_dir / path for path in below or [Path(model.name) for model in models]]
    else:
        outputs = [default_output(model, "fused") for model in models]
    sources = {model.resolve() for model in models}
    written: dict[Path, Path] = {}
    for model, path in zip(models, outputs, strict=True):
        if path.resolve() in sources:
            raise UsageError(f"{path} is read, so it can't be written", hint="name another file or folder for the output")
        if (other := written.setdefault(path.resolve(), model)) is not model:
            raise UsageError(f"{other} and {model} would both be written to {path}", hint="fuse them with two commands")
    return outputs


@contextmanager
def output_folder(path: Path | None, outputs: Sequence[Path]) -> Iterator[None]:
    """Creates the output folder and its subfolders; removes the new ones at the end if nothing was written to them."""
    if path is None:
        yield
        return
    made: list[Path] = []
    for folder in sorted({path, *(output.parent for output in outputs)}):
        missing = [place for place in (folder, *folder.parents) if not place.exists()]
        made += reversed(missing)
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for folder in sorted(made, key=lambda place: -len(place.parts)):
            if not any(folder.iterdir()):
                folder.rmdir()
