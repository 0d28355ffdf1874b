"""The judges judged: seeded bad patches that a gate must reject by name, and good ones that it must pass."""
