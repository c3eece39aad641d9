"""Regions: connected, convex sets of nodes, grown by selectors or sentences, or marked by the user."""
