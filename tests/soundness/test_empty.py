"""A fused model runs with sizes of 0 where its original does, or the report says that it was not checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onnx_subgraph import load_patterns


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each model runs in a child process")
def test_sizes_of_zero_run_as_before_or_are_named_as_an_assumption(thorough: bool) -> None:
    command = [sys.executable, Path(__file__).with_name("empty.py"), *(() if thorough else ("--spellings", "1"))]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == [f"{sum(p.is_formula for p in load_patterns().patterns)} patterns"]
