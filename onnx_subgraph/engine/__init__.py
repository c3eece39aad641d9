"""Engine operators at run time: one compiled region each, its cache and its fallback, and sessions of partitioned models."""
