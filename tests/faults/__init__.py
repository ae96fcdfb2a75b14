"""Faults injected into the whole of ocrd, and what must hold after each: see `python -m tests.faults --help`."""
