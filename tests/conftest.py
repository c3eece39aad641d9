"""Settings of the whole suite.

Property tests are not timed, because a slow machine is not a failing law. Lines have room for the path of a temporary folder.
Processes that tests start share compiled modules, also where the shell asks for none: to compile ours takes each a second.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")
os.environ["COLUMNS"] = "200"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
