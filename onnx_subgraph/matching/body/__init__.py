"""Operators of the standard that are written out: regions of a graph that compute an operator's function body.

`calls` says in which ways an operator can be called, `align` reads from a graph what a call would have been, `congruent` holds
the body of that call against the graph, value by value. Only the last decides; the others guess.
"""
