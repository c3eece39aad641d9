"""Term × graph → match: equalities, layout, the matcher, near misses."""
