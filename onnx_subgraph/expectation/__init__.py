"""Expectation files: what a run of `fuse` must give, as YAML. Read, check against a result, and write."""
