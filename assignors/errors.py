"""`SpecError`: input that an assignor refuses."""


class SpecError(ValueError):
    """A group, a table or an option that cannot be used.

    The message names the offending value and the remedy; the command prints it and exits with 2.
    """
