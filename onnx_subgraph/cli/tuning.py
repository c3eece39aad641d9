"""The tuning options of `fuse`: `--tune` measures what pays, `--tuned` names the file that keeps the choice for later runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onnx_subgraph.cli.finite import Finite
from onnx_subgraph.cli.streams import WrittenPath
from onnx_subgraph.cli.written import check_writable
from onnx_subgraph.errors import UsageError
from onnx_subgraph.paths import name_for, short_names

if TYPE_CHECKING:
    from onnx_subgraph.cli.batch import Tune
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.options import Options
    from onnx_subgraph.timing.tuning import Tuning

Command = TypeVar("Command", bound=Callable[..., Any])

BUDGET = 60.0
"""Seconds to measure one model, unless `--tune-budget` gives them."""


def tune_options(command: Command) -> Command:
    """`--tune`, `--tune-budget`, `--accuracy`, `--backend` and `--tuned`."""
    for option in reversed(
        (
            click.option(
                "--tune", is_flag=True, help="Measure on this machine which fusions pay, and make those; it takes a minute."
            ),
            click.option(
                "--tune-budget",
                type=Finite(min=0),
                show_default=f"{BUDGET:g}",
                metavar="SECONDS",
                help="The time to measure one model with --tune.",
            ),
            click.option(
                "--accuracy",
                type=Finite(min=0, min_open=True),
                metavar="X",
                help="The largest error of an output against float64, as a share of its largest element. With --tune, products "
                "are rounded within this limit if that is faster. With --numerics, a model that exceeds it is not written.",
            ),
            click.option(
                "--backend",
                "backends",
                multiple=True,
                metavar="NAME",
                help="With --tune: also try engines of this backend, for example openvino; see `partition`. May be repeated.",
            ),
            click.option(
                "--tuned",
                type=WrittenPath(with_flag="tune"),
                metavar="FILE.json",
                help="Write the choice of --tune to this file. Without --tune, use the choice in it and measure nothing.",
            ),
        )
    ):
        command = option(command)
    return command


@dataclass(slots=True)
class Tuner:
    """The options of `tune_options`. target: the one that the user named, or None.

    found: the measurement of each model. kept: the content of the file, by its model names.
    """

    tune: bool
    budget: float | None
    file: Path | None
    backends: tuple[str, ...]
    warn: Callable[[str], None]
    target: str | None = None
    found: dict[Path, Tuning] = field(default_factory=dict)
    kept: dict[str, Tuning] = field(default_factory=dict)

    def check(self, jobs: int, options: Options) -> None:
        """Reads the file. Raises UsageError if it can't be read, or nothing can be measured."""
        if self.tune and (jobs > 1 or not options.providers):
            if jobs > 1:
                raise UsageError("--tune needs the machine for itself", hint="leave -j out")
            raise UsageError("--tune measures on a provider, and there is none", hint="name one with --provider")
        if options.accuracy is not None and self.file is None and not (self.tune or options.numerics != "float32"):
            raise UsageError(
                "--accuracy limits the error of rounding, but nothing is rounded", hint="add --tune, or --numerics bf16"
            )
        if options.accuracy is not None and self.tune and options.target != "native" and not self.backends:
            hint = "add --target native, or --backend openvino"
            raise UsageError("only kernels of the target native and backends compute in less than float32", hint=hint)
        if self.budget is not None and not self.tune:
            raise UsageError("--tune-budget limits --tune, and nothing is measured", hint="add --tune")
        if self.backends and not self.tune:
            hint = "add --tune; `onnx-subgraph partition` gives regions to a backend without measuring the whole"
            raise UsageError("--backend is tried by --tune", hint=hint)
        if self.backends and (options.dry_run or options.target == "function"):
            raise UsageError("--backend needs a model that is written to run", hint="leave --dry-run and --target function out")
        if self.backends:
            from onnx_subgraph.backends.names import check_backends

            for name in self.backends:
                check_backends(name)
        if self.tune and self.file is not None:
            check_writable("--tuned", self.file)
        if not self.tune and self.file is not None:
            from onnx_subgraph.timing.tuning import read

            self.kept = read(self.file)

    @property
    def measure(self) -> Tune | None:
        """A function that measures the options for a model; None if nothing is to be measured."""
        return self._measured if self.tune else None

    def _measured(self, model: Path, library: Library, options: Options, tell: Callable[[str], None]) -> Options:
        from onnx_subgraph.tuning import tune

        budget = BUDGET if self.budget is None else self.budget
        self.found[model] = tuning = tune(model, library, options, budget, tell, self.backends)
        return _tuned(options, tuning)

    def known(self, model: Path, options: Options) -> Options:
        """The options for a model from the file. Raises UsageError if it has no entry for it."""
        if self.tune or self.file is None:
            return options
        name = name_for(model, self.kept)
        if name is None:
            hint = "measure with --tune --tuned FILE, for all models at once"
            raise UsageError(f"{self.file}: it has no entry for {model}", hint=hint)
        tuning = self.kept[name]
        if self.target not in (None, tuning.target):
            hint = "leave --target out, or measure again with --tune"
            raise UsageError(f"{self.file} has what is best for the target {tuning.target}", hint=hint)
        if changed := tuning.other_machine:
            self.warn(f"Warning: {model}: what {self.file} says was measured elsewhere: {changed}; --tune measures again")
        return _tuned(options, tuning)

    def finish(self) -> None:
        """Writes the file, if something was measured for it."""
        if self.tune and self.file is not None:
            from onnx_subgraph.timing.tuning import write

            names = short_names(self.found)
            write(self.file, {names[model]: tuning for model, tuning in self.found.items()})


def _tuned(options: Options, tuning: Tuning) -> Options:
    from onnx_subgraph.options import in_this_way

    return replace(in_this_way(options, tuning), tuning=tuning)
