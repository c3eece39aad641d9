"""The type of a region's inputs and outputs."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
"""A tensor at run time, of any type."""
