"""The version of the project; CHANGELOG.md names the same."""

__version__ = "0.1.0"
