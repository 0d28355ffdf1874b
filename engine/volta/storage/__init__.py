"""Files that survive crashes, and tensors in them."""
