"""Readings asked for by somebody who waits: how a server hands them to a worker, and what comes back."""
