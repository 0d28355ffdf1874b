"""Training: text, batches, schedules, checkpoints and the loop."""
