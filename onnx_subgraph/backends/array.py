"""What goes into a region and comes out of it."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
"""A tensor at run time, of any type."""
