"""The one exception that stands for a mistake of the user or of the environment (exit code 2)."""


class UsageError(Exception):
    """Says what was required, what was found and what to do."""
