"""Reports for people (`text`) and for programs (`json`). Nothing here prints; `cli` prints the reports."""
