"""Settings, read from ``ANGLEWISE_*`` environment variables; the limits of computations are among them."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from jobs.computations.limits import MIB, Limits
from jobs.job_limits import job_limits
from jobs.settings import JobOptions


class Settings(Limits, JobOptions, BaseSettings):
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
    requests_per_minute: int = Field(default=6_000, ge=0, description="of one API key; 0: no bound")
    concurrent_requests: int = Field(
        default=64, ge=0, description="POST requests of one API key answered at a time; 0: no bound"
    )
    max_streams: int = Field(default=1_000, ge=1, description="event streams at a time")
    max_job_spec_bytes: int = Field(
        default=256 * MIB, gt=0, description="what a job is to be computed from, stored with it"
    )
    signed_downloads: bool = Field(
        default=True, description="send downloads to the object store, where it has signed addresses"
    )

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
    def job_limits(self) -> Limits:
        """What a computation may cost as a job."""
        return job_limits(self.limits, self.computation_job_seconds)

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
