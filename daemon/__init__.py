"""When and where: watcher, supervisor, workers, command line. Touches neither pixels nor tokens."""
