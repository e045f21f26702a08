"""The experiments of both papers, each one command: ``python -m examples.reproductions NAME``."""
