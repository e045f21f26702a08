"""Settings, read from ``ANGLEWISE_*`` environment variables; every limit the service enforces is here."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

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


class Settings(Limits, BaseSettings):
    """Everything about one running service."""

    model_config = SettingsConfigDict(
        env_prefix="ANGLEWISE_", frozen=True, populate_by_name=True, extra="ignore"
    )

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535, validation_alias=AliasChoices("ANGLEWISE_PORT", "PORT"))
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    workers: int = Field(default=2, ge=1, le=64, description="solver processes")
    max_waiting: int = Field(default=64, ge=1, description="computations that may wait for a solver process")
    max_uploads: int = Field(default=4, ge=1, description="uploads received or computed on at a time")
    body_seconds: float = Field(
        default=120.0, gt=0, description="a JSON or .npy body has to arrive within this time"
    )
    upload_seconds: float = Field(default=900.0, gt=0, description="an upload has to arrive within this time")
    picture_bytes: int = Field(default=64 * MIB, ge=0, description="pictures kept in memory")
    cache_bytes: int = Field(default=256 * MIB, ge=0, description="answers kept in memory; 0 turns it off")
    api_keys: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="SHA-256 of each accepted API key, in hex, separated by commas"
    )
    allow_insecure: bool = Field(default=False, description="serve other machines without API keys")

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper_case(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split_keys(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip().lower() for part in value.split(",") if part.strip())
        return value

    @field_validator("api_keys")
    @classmethod
    def _require_digests(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(re.fullmatch(r"[0-9a-f]{64}", key) for key in value):
            raise ValueError(
                "each key must be given as the 64 hex digits of its SHA-256, never in plain text"
            )
        return value

    @property
    def limits(self) -> Limits:
        return Limits.model_validate(self.model_dump(include=set(Limits.model_fields)))

    @property
    def exposed(self) -> bool:
        """Whether other machines could reach this service without a key."""
        return not self.api_keys and not self.allow_insecure and not _is_loopback(self.host)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
