"""Register the custom operator libraries of packs and users for every session of a run, and check what packs require."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from onnx_subgraph import custom_ops
from onnx_subgraph.errors import UsageError
from onnx_subgraph.language.pack import Pack
from onnx_subgraph.model.declared_shapes import shaped_like
from onnx_subgraph.paths import StrPath
from onnx_subgraph.verification.messages import first_lines
from onnx_subgraph.verification.sessions import onnxruntime


@contextmanager
def with_libraries(paths: Sequence[StrPath], packs: Sequence[Pack] = ()) -> Iterator[None]:
    """Within the block every session has these libraries of custom operators, and those of the packs.

    Raises UsageError for a library that does not load, and for a pack that requires another onnxruntime or names an operator with
    unknown shapes.
    """
    for pack in packs:
        if pack.onnxruntime and not pack.takes(onnxruntime().__version__):
            message = f"the pack {pack.name} asks for onnxruntime {pack.onnxruntime}, and {onnxruntime().__version__} is here"
            raise UsageError(message, hint="install that onnxruntime, or leave the pack out")
        for name, standard in pack.shapes.items():
            if not shaped_like(pack.domain, name, standard):
                message = f"the pack {pack.name} gives {name} the shapes of {standard}, and these are not known"
                raise UsageError(message, hint="name an operator of the standard")
        for path in pack.libraries:
            _check(path, f"of the pack {pack.name} ")
    for given in paths:
        _check(Path(given))
    with custom_ops.using([path for pack in packs for path in pack.libraries]), custom_ops.using(paths):
        yield


def _check(path: Path, whose: str = "") -> None:
    try:
        onnxruntime().SessionOptions().register_custom_ops_library(str(path.absolute()))
    except Exception as error:  # onnxruntime's exceptions have no common base but Exception
        said = first_lines(error) if path.is_file() else "there is no such file"
        hint = "it is a shared library that exports RegisterCustomOps, built for this machine"
        raise UsageError(f"the library of custom operators {path} {whose}can't be loaded: {said}", hint=hint) from error
