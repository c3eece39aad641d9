"""Find matches of patterns in a graph, modulo a set of equalities, and explain near misses."""
