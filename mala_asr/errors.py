"""The errors that a user can expect to meet, and how commands end with them."""

import os
import sys
from collections.abc import Callable


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


def exit_status(
    program: str, work: Callable[[], int], interrupted: str = "interrupted"
) -> int:
    """Do a command's work; what goes wrong is one line on standard error.

    Arguments
    ---------
    program : str
        What the line begins with.
    work : callable
        Gives the exit status where nothing is raised.
    interrupted : str
        What is said after Ctrl-C.

    Returns
    -------
    int
        That of ``work``; 1 something failed, 2 wrong usage, 130 interrupted.

    Example
    -------
    >>> def work():
    ...     raise UsageError("--left and --right do not go together")
    >>> exit_status("turn", work)
    2
    """

    def fail(message: str) -> int:
        line = message.replace("\n", " ")
        print(f"{program}: error: {line}", file=sys.stderr)
        return 1

    try:
        return work()
    except UsageError as error:
        fail(str(error))
        return 2
    except MalaError as error:
        return fail(str(error))
    except BrokenPipeError:
        # Whoever read our output has closed it, as `head` does. What is
        # still buffered must not raise once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return fail(os_error_text(error))
    except KeyboardInterrupt:
        print(f"{program}: {interrupted}", file=sys.stderr)
        return 130
