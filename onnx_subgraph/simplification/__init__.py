"""Simplify models exactly, whatever the patterns are: what depends only on constants and known sizes is computed or left out."""
