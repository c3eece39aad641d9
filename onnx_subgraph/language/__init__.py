"""The pattern language: YAML files → `Pattern`, with the place of every mistake.

`source` reads YAML, `syntax` the blocks, `sentence` the conditions, `reading` a file, `check` holds it against the operators,
`library` finds the files. Nothing here looks at a graph.
"""
