"""Searches for the blocks that make a matmul fastest here; none of them can change a bit."""
