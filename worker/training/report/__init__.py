"""The report of a training: measured beside predicted, as a page, a picture and data."""

from worker.training.report.files import report_files

__all__ = ["report_files"]
