"""Settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test judges by the clock: how long an example takes depends on what else the machine does.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")
