"""Inference: the key/value cache, sampling settings, batched generation."""
