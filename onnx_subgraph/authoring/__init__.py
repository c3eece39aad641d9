"""Authoring: a pattern file written from places of a model, and proved at once."""
