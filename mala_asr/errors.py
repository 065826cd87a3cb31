"""The base of every error a user can expect to meet."""


def os_error_text(error: OSError) -> str:
    """Say in one line which file the system refused, and why.

    Arguments
    ---------
    error : OSError
        Such as of a full disk or a folder without permission.

    Returns
    -------
    str
        The line.

    Example
    -------
    >>> os_error_text(FileExistsError(17, "File exists", "run"))
    'run: File exists; name another place'
    """
    place = "" if error.filename is None else f"{error.filename}: "
    advice = {
        FileExistsError: "; name another place",
        NotADirectoryError: "; name another place",
        PermissionError: "; change its mode or name another place",
    }.get(type(error), "")
    return f"{place}{error.strerror or error}{advice}"


class MalaError(Exception):
    """An expected failure; its text is one line meant for the user.

    The command line prints that line and exits with a non-zero status.

    Example
    -------
    >>> str(MalaError("no such folder: x; give one that exists"))
    'no such folder: x; give one that exists'
    """


class UsageError(MalaError):
    """Arguments of a command that do not go together.

    The command line exits with the status of wrong usage, 2.
    """
