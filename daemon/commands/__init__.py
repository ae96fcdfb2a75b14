"""The commands of `ocrd`, by topic. Nothing heavy is imported before a command runs."""
