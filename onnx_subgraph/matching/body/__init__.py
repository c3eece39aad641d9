"""Find regions of a graph that compute the function body of a standard operator.

`calls` lists the ways to call an operator. `align` guesses the arguments of a call from the graph. `congruent` compares the body
of this call with the graph, value by value. Only this comparison decides; the others only guess.
"""
