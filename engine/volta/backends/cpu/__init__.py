"""The CPU: plans become C programs, run by one call over a persistent thread pool."""
