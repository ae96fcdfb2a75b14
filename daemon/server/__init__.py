"""The HTTP server: OpenAI-compatible endpoint, library API and pages. FastAPI is imported here and nowhere else."""
