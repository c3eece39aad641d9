"""Engine operators at run time: a compiled region with its cache and fallback, and sessions of partitioned models."""
