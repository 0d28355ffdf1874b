"""The gateway: the one way from a graph to running code."""
