"""The command `muster`, as `python -m muster`."""

from coordinator.__main__ import main

if __name__ == "__main__":
    main()
