"""Agents: commands that others wrote, run under limits, in a sandbox, with an environment that is listed."""
