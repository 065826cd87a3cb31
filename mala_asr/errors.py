"""The base of every error a user can expect to meet."""


class MalaError(Exception):
    """An expected failure; its text is one line meant for the user.

    The command line prints that line and exits with a non-zero status.

    Example
    -------
    >>> str(MalaError("no such folder: x; give one that exists"))
    'no such folder: x; give one that exists'
    """
