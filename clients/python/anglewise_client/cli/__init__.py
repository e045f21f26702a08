"""The command line ``anglewise``."""

from anglewise_client.cli.app import main, run

__all__ = ["main", "run"]
