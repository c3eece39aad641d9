"""Mining: subgraphs that models repeat and no pattern covers, found by merging what always stands side by side."""
