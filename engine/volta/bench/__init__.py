"""Benchmarks: Volta beside its peers, alternating in one run, correctness checked in the same run."""
