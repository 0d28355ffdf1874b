"""From a verified graph to a flat list of steps over planned memory."""
