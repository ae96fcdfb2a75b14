"""Pages in, structured text out. Knows nothing of folders, queues or retries."""
