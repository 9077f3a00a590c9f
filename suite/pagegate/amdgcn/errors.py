"""What can go wrong before a kernel runs."""


class AssemblyError(Exception):
    """The text says something that this interpreter does not know; names the line and what to do."""


class LaunchError(Exception):
    """A launch cannot be carried out as asked; says what was required and what was found."""
