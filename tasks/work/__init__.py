"""Where an agent works, for how long the place is its own, and what it may touch there."""
