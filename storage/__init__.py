"""What is durable: database, queue, index, sidecars, settings. Knows nothing of pixels, models or when to work."""
