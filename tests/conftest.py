"""Settings of the whole suite.

Property tests are not timed, because a slow machine is not a failing law. Lines have room for the path of a temporary folder.
Processes that tests start share compiled modules, also where the shell asks for none: to compile ours takes each a second.

`--thorough` (`make test-thorough`) draws more, and runs what takes long: the proofs of patterns with every pair of alternatives,
and tests that are marked `thorough`. Without it each law is still held, by fewer models.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

for name, examples in (("quick", 30), ("thorough", 200)):
    settings.register_profile(name, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")
os.environ["COLUMNS"] = "200"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


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


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether what takes long is asked for."""
    return bool(request.config.getoption("--thorough"))
