"""The pattern language: read YAML files as `Pattern`, with the place of every mistake.

`source` reads YAML, `syntax` the blocks, `sentence` the conditions, and `reading` a file. `check` compares a pattern with the
operator schemas. `library` finds the files. Nothing here reads a graph.
"""
