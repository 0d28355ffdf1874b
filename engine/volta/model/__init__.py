"""Models: parameters declared by name, layers, the transformer."""
