"""The types of options that are a number."""

from __future__ import annotations

from math import isfinite, isnan
from typing import Any

import click


class Finite(click.FloatRange):
    """A number in a range, neither NaN nor infinite. click's own range lets NaN pass: it is not below the least number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Reports a usage error for any other text."""
        number: float = super().convert(value, param, ctx)
        return number if isfinite(number) else self.fail(f"{value} is not a finite number.", param, ctx)


class NotNan(click.FloatRange):
    """A number in a range, or infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Reports a usage error for any other text."""
        number: float = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number.", param, ctx) if isnan(number) else number
