"""`ocrd mcp`: the library as tools for a language model."""
