"""What one computation may cost, whoever runs it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

MIB = 2**20
SOFT_SHARE = 0.6
"""Share of the deadline after which a solver is asked for its best answer so far; it then still has to finish
one evaluation, prove the gap and describe the geometry, which takes seconds for thousands of classes."""


class Limits(BaseModel):
    """What one computation may cost. Solver processes get these, and nothing secret."""

    model_config = ConfigDict(frozen=True)

    deadline_seconds: float = Field(default=30.0, gt=0, description="a computation is killed after this time")
    max_body_bytes: int = Field(default=64 * MIB, gt=0)
    max_classes: int = Field(default=20_000, gt=0)
    max_items: int = Field(default=3_000, gt=0, description="rows of a weight matrix")
    max_array_bytes: int = Field(default=128 * MIB, gt=0, description="an .npy body")
    max_upload_bytes: int = Field(
        default=1024 * MIB, gt=0, description="an uploaded file, and its arrays when decompressed"
    )
    max_embedding_numbers: int = Field(default=2_000_000, gt=0, description="embeddings in a JSON body")
    max_distinct_proportions: int = Field(default=2_000, gt=0)
    max_map_cells: int = Field(default=2_500, gt=0)
    max_inline_classes: int = Field(default=1_000, ge=0, description="larger matrices are given by groups")
    max_archive_bytes: int = Field(
        default=1024 * MIB, gt=0, description="uncompressed size of an .npz answer"
    )
    worker_memory_bytes: int = Field(
        default=4096 * MIB, ge=0, description="of one solver process; 0: no bound"
    )
    warm_up: bool = Field(
        default=True, description="load compiled code before a process is ready, not during its first answers"
    )

    @property
    def soft_deadline_seconds(self) -> float:
        """When a solver should stop and return its best answer, before the process is killed."""
        return SOFT_SHARE * self.deadline_seconds
