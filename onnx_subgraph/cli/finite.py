"""The type of options that are a number."""

from __future__ import annotations

from math import isfinite
from typing import Any

import click


class Finite(click.FloatRange):
    """A number in a range that is neither NaN nor infinite; NaN is in no range, but passes every comparison."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Reports a usage error for any other text."""
        number: float = super().convert(value, param, ctx)
        return number if isfinite(number) else self.fail(f"{value} is not a finite number.", param, ctx)
