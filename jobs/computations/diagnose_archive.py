"""Embeddings to diagnose in an .npz archive, with the options before it: a diagnosis that can be stored."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from jobs.computations.computation import Computation, Outcome
from jobs.computations.diagnose import DiagnoseAnswer, DiagnoseOptions, answer
from jobs.computations.embedding_archive import read_embeddings
from jobs.computations.limits import Limits

SEPARATOR = b"\n"
"""Between the options, one line of JSON, and the archive."""


class ArchiveRequest(BaseModel):
    model_config = ConfigDict(frozen=True)

    options: DiagnoseOptions
    archive: bytes


@dataclass(frozen=True)
class ArchiveComputation(Computation):
    """A computation on these bytes: options, separator, archive."""

    def parse(self, body: bytes, limits: Limits) -> ArchiveRequest:
        options, _, archive = body.partition(SEPARATOR)
        return ArchiveRequest(options=DiagnoseOptions.model_validate_json(options), archive=archive)

    def canonical(self, body: bytes, limits: Limits) -> bytes:
        """As it came: the archive is checked where it is used."""
        return body


def run(request: ArchiveRequest, limits: Limits) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="anglewise-") as folder:
        path = Path(folder) / "archive"
        path.write_bytes(request.archive)
        embeddings, labels = read_embeddings(path, limits.max_upload_bytes)
        return answer(embeddings, labels, request.options, limits)


COMPUTATION = ArchiveComputation(
    name="diagnose_archive",
    request=DiagnoseOptions,
    answer=DiagnoseAnswer,
    run=run,
    shared=False,
)
