"""Governance read from its files: tiers, waivers, RFCs, owners, limits."""
