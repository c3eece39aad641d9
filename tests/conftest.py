"""Settings of the whole suite.

Property tests have no deadline, because a slow machine does not break a law. Terminals are wide enough for the path of a
temporary folder. Garbage is collected after each test that leaves much, while it is in the processor's cache, and where the tool
itself asks for it. Workers and the processes that tests start share compiled modules, even where the shell disables them: to
compile takes each a second for the package, and four for the tests, whose assertions pytest rewrites.

`--thorough` (`make test-thorough`) draws more examples and runs the slow tests: proofs of patterns with every pair of
alternatives, and tests marked `thorough`. Without it, each law is still tested, on fewer models.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

GARBAGE = 10_000
"""New objects that make a collection worth while. What is collected late, all at once, takes three times as long."""

for name, examples in (("quick", 30), ("thorough", 200)):
    settings.register_profile(name, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")
gc.disable()
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background start with interrupts ignored
os.environ["COLUMNS"] = "200"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="draw more, and run what takes long")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thorough: runs with --thorough only")
    if config.getoption("--thorough"):
        settings.load_profile("thorough")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--thorough"):
        for item in items:
            if item.get_closest_marker("thorough") is not None:
                item.add_marker(pytest.mark.skip(reason="it takes long: --thorough runs it"))


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Collect the garbage of a test, and keep what it leaves in caches out of later collections, which would traverse it."""
    if nextitem is None or gc.get_count()[0] > GARBAGE:
        gc.collect()
        gc.freeze()


@pytest.fixture
def forked_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of sessions run in forks of one process, to save the time of imports."""
    from onnx_subgraph.session import commands
    from tests.forked import SUBPROCESS

    monkeypatch.setattr(commands, "subprocess", SUBPROCESS)


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether slow tests are asked for."""
    return bool(request.config.getoption("--thorough"))


@pytest.fixture(scope="session")
def draw() -> Callable[..., np.ndarray]:
    """Random numbers of a shape, the same in each run."""

    def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
        return np.random.default_rng(0).standard_normal(shape).astype(dtype)

    return numbers
