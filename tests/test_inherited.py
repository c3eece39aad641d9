"""Processes that we start in a program have its implementation of protobuf, whatever a library names for later ones."""

from __future__ import annotations

import pytest
from google.protobuf.internal import api_implementation

from onnx_subgraph.inherited import PROTOBUF, environment
from onnx_subgraph.session import commands


@pytest.mark.parametrize("made", [environment, commands._environment])
def test_another_implementation_is_not_handed_on(made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    here = api_implementation.Type()
    for named in ("python", "upb"):
        monkeypatch.setenv(PROTOBUF, named)
        monkeypatch.setenv("KEPT", "1")
        found = made()
        assert found.get(PROTOBUF) == (named if named == here else None) and found["KEPT"] == "1"
