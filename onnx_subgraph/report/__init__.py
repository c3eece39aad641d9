"""Results for people (`text`) and for programs (`json`). Nothing here prints: it makes what `cli` prints."""
