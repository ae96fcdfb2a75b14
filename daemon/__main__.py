"""`python -m daemon`: the `ocrd` command by the interpreter's path, for service managers that know no PATH."""

from daemon.cli import main

if __name__ == "__main__":
    main()
