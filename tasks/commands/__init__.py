"""The command `python -m tasks`, by what one wants: to look, to work, to write."""
