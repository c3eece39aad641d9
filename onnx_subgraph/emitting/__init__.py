"""Emitting: the nodes of a replacement, built beside the graph and only joined to it when every check has passed."""
