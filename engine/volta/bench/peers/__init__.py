"""The peers that Volta is measured beside. torch is the extra `peers`; only this package imports it."""
