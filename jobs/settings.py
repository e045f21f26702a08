"""Settings of jobs, read from ``ANGLEWISE_*`` environment variables by service and workers alike."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 2**20
DEVICE = re.compile(r"cpu|cuda:\d+(\+\d+)*|mps")


class JobOptions(BaseModel):
    """Where jobs are kept and how they are run. Jobs are off without a broker."""

    model_config = ConfigDict(frozen=True)

    data_dir: Path = Field(default=Path("data"), description="folder of the embedded broker and store")
    store_url: str | None = Field(
        default=None,
        description="object store: file:///folder or s3://bucket/prefix; a folder in data_dir if not given",
    )
    broker_url: str | None = Field(
        default=None,
        description="Redis or Valkey: redis://host:port/db, rediss://… or unix:///path.sock; no jobs without",
    )
    training: bool = Field(default=True, description="take training jobs; workers then need torch")
    devices: str = Field(
        default="auto",
        description="one worker process each, separated by commas, as in cuda:0,cuda:1 or cpu,cpu; "
        "cuda:0+1 has two GPUs, which its trainings share; auto: every GPU, or else one for two cores",
    )
    lease_seconds: float = Field(
        default=6.0, gt=0, description="a worker that gives no sign of life for this time has lost its job"
    )
    heartbeat_seconds: float = Field(default=1.0, gt=0, description="between signs of life of a worker")
    job_seconds: float = Field(default=86_400.0, gt=0, description="a training may run this long")
    computation_job_seconds: float = Field(
        default=3_600.0, gt=0, description="a computation may run this long"
    )
    job_memory_bytes: int = Field(default=0, ge=0, description="memory of one running job; 0: no bound")
    max_queued_jobs: int = Field(default=10_000, ge=1, description="jobs that may wait")
    retention_seconds: float | None = Field(
        default=None, gt=0, description="ended jobs are deleted after this time; never if not given"
    )
    disk_reserve_bytes: int = Field(
        default=256 * MIB, ge=0, description="new jobs and uploads are refused below this much free space"
    )
    webhook_secret: SecretStr | None = Field(default=None, description="signs the calls of webhooks")
    webhook_allow_private: bool = Field(default=False, description="let webhooks call private addresses")

    @field_validator("broker_url", "store_url", "retention_seconds", "webhook_secret", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("broker_url")
    @classmethod
    def _known_broker(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must begin with redis://, rediss:// or unix://")
        return value

    @field_validator("store_url")
    @classmethod
    def _known_store(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("file:///", "s3://", "memory://")):
            raise ValueError("must begin with file:///, s3:// or memory://")
        return value

    @field_validator("devices")
    @classmethod
    def _known_devices(cls, value: str) -> str:
        names = [name.strip() for name in value.split(",")]
        if names != ["auto"] and not all(DEVICE.fullmatch(name) for name in names):
            raise ValueError("must be auto, or cpu, cuda:0, cuda:1+2, … separated by commas")
        return ",".join(names)

    @property
    def jobs_on(self) -> bool:
        """Whether this process takes, runs or shows jobs."""
        return self.broker_url is not None

    @property
    def objects_url(self) -> str:
        """Of the object store, whether it was named or is the one in ``data_dir``."""
        return self.store_url or (self.data_dir.absolute() / "objects").as_uri()

    def device_names(self, gpus: int) -> list[str]:
        """The device of each worker process, where ``gpus`` are there for "auto" to take.

        >>> JobOptions(devices="auto").device_names(gpus=2)
        ['cuda:0', 'cuda:1']
        """
        if self.devices != "auto":
            return self.devices.split(",")
        return [f"cuda:{index}" for index in range(gpus)] or ["cpu"] * max(1, (os.cpu_count() or 1) // 2)


class JobSettings(JobOptions, BaseSettings):
    """The settings of a process that is no service: a worker, or the one that starts the others."""

    model_config = SettingsConfigDict(
        env_prefix="ANGLEWISE_", frozen=True, populate_by_name=True, extra="ignore"
    )
