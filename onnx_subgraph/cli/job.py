"""The task for one model of many, and its failure, as the executors need them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, TypeVar

from onnx_subgraph.paths import several

if TYPE_CHECKING:
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.options import Options
    from onnx_subgraph.result import FuseResult

Say = Callable[[str], None]


class Job(Protocol):
    """The task for one model. less: what would take less time, for the message of `time_limit`."""

    less: ClassVar[str]

    @property
    def model(self) -> Path: ...
    @property
    def patterns(self) -> tuple[Path, ...]: ...
    @property
    def time_limit(self) -> float: ...
    def work(self, library: Library, tell: Say) -> FuseResult:
        """Runs the task. Raises the errors of the command."""
        ...

    def places(self) -> tuple[Path, ...]:
        """The files and folders that must exist."""
        ...

    def absolute(self) -> Self:
        """The same with absolute paths."""
        ...

    def called(self, result: FuseResult) -> FuseResult:
        """The result of `absolute`, with the paths of this task."""
        ...


J = TypeVar("J", bound=Job)


def read_by(options: Options) -> tuple[Path, ...]:
    """The files that options name."""
    return (*several(options.libraries), *(() if options.inputs is None else several(options.inputs)))


def absolute_options(options: Options) -> Options:
    """The same options with absolute paths."""
    inputs = None if options.inputs is None else Path(options.inputs).absolute()
    return replace(options, inputs=inputs, libraries=tuple(path.absolute() for path in several(options.libraries)))


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a model failed, in words for a person."""

    message: str

    def of(self, model: Path) -> str:
        """The message, which names the model."""
        return self.message if str(model) in self.message else f"{model}: {self.message}"


Settled = Callable[[int, "FuseResult | Failure"], None]
