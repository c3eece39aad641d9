"""From a match to a changed graph: what is planned is checked whole, and what passes is committed through one door."""
