"""The peers that Volta is measured beside. torch is the optional extra `peers`; only this package imports it."""
