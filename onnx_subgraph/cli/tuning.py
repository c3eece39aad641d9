"""What `fuse` is told of measuring: `--tune` measures what pays, `--tuned` names the file that keeps it for later runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onnx_subgraph.errors import UsageError

if TYPE_CHECKING:
    from onnx_subgraph.cli.batch import Tune
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.options import Options
    from onnx_subgraph.timing.tuning import Tuning

Command = TypeVar("Command", bound=Callable[..., Any])


def tune_options(command: Command) -> Command:
    """`--tune`, `--tune-budget` and `--tuned`."""
    for option in reversed(
        (
            click.option(
                "--tune", is_flag=True, help="Measure on this machine which fusions pay, and make those; it takes a minute."
            ),
            click.option(
                "--tune-budget",
                type=click.FloatRange(min=0),
                default=60.0,
                metavar="SECONDS",
                help="How long a model runs for --tune.",
            ),
            click.option(
                "--tuned",
                type=click.Path(path_type=Path),
                metavar="FILE.json",
                help="Write what --tune found to this file; without --tune, do as it says and measure nothing.",
            ),
        )
    ):
        command = option(command)
    return command


@dataclass(slots=True)
class Tuner:
    """The options of `tune_options`, and what was found for each model, by the name of its file."""

    tune: bool
    budget: float
    file: Path | None
    warn: Callable[[str], None]
    found: dict[str, Tuning] = field(default_factory=dict)

    def check(self, jobs: int, options: Options) -> None:
        """Reads the file. Raises UsageError where it can't be read, or where nothing can be measured."""
        if self.tune and (jobs > 1 or not options.providers):
            why = "on a machine that does nothing else: leave -j out" if jobs > 1 else "on a provider: name one with --provider"
            raise UsageError(f"--tune measures {why}")
        if not self.tune and self.file is not None:
            from onnx_subgraph.timing.tuning import read

            self.found = read(self.file)

    @property
    def measure(self) -> Tune | None:
        """What gives the options for a model by measuring; None where nothing is measured."""
        return self._measured if self.tune else None

    def _measured(self, model: Path, library: Library, options: Options, tell: Callable[[str], None]) -> Options:
        from onnx_subgraph.tuning import tune

        self.found[model.name] = tuning = tune(model, library, options, self.budget, tell)
        return _tuned(options, tuning)

    def known(self, model: Path, options: Options) -> Options:
        """The options for a model as the file has them. Raises UsageError where it has none."""
        if self.tune or self.file is None:
            return options
        tuning = self.found.get(model.name)
        if tuning is None:
            hint = "measure with --tune --tuned FILE, for all models at once"
            raise UsageError(f"{self.file}: it has nothing about {model.name}", hint=hint)
        if changed := tuning.other_machine:
            self.warn(f"Warning: {model}: what {self.file} says was measured elsewhere: {changed}; --tune measures again")
        return _tuned(options, tuning)

    def finish(self) -> None:
        """Writes the file, where something was measured for it."""
        if self.tune and self.file is not None:
            from onnx_subgraph.timing.tuning import write

            write(self.file, self.found)


def _tuned(options: Options, tuning: Tuning) -> Options:
    return replace(options, skip=(*options.skip, *tuning.skip), prefer=tuning.prefer, tuning=tuning)
