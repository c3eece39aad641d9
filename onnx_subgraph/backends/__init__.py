"""Backends, which run regions of a model: their protocol, the registry, and those that come with the package."""
