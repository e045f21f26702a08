"""The version of the client, always that of the service it belongs to."""

__version__ = "0.1.0"
