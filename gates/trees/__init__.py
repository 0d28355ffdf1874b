"""The seam to git and to disk: revisions, changed paths, exact checkouts, kernels compiled once."""
