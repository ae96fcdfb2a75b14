"""The readers: one module each, all behind `base.Engine`, chosen by name in `registry`."""
