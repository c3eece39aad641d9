"""Rewriting: each match is planned and checked in full; a plan that passes is committed to the graph."""
