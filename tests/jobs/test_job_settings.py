"""Settings that service and workers share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from jobs.settings import JobOptions, JobSettings
from jobs.store import ObjectStore


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANGLEWISE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("ANGLEWISE_BROKER_URL", "unix:///run/valkey.sock")
    monkeypatch.setenv("ANGLEWISE_DEVICES", "cuda:0, cuda:1")
    monkeypatch.setenv("ANGLEWISE_RETENTION_SECONDS", "")
    monkeypatch.setenv("ANGLEWISE_WEBHOOK_SECRET", "hidden")
    settings = JobSettings()
    assert settings.jobs_on
    assert settings.device_names(gpus=0) == ["cuda:0", "cuda:1"]
    assert settings.retention_seconds is None
    assert "hidden" not in repr(settings)


def test_without_a_broker_jobs_are_off() -> None:
    assert not JobOptions().jobs_on
    assert not JobOptions(broker_url="").jobs_on


def test_objects_are_in_the_data_folder_unless_said_otherwise(tmp_path: Path) -> None:
    options = JobOptions(data_dir=tmp_path / "with a space")
    ObjectStore(options.objects_url).put("a", b"x")
    assert (tmp_path / "with a space" / "objects" / "a").read_bytes() == b"x"
    assert JobOptions(store_url="s3://bucket/prefix").objects_url == "s3://bucket/prefix"


def test_devices_are_found_by_themselves() -> None:
    assert JobOptions().device_names(gpus=2) == ["cuda:0", "cuda:1"]
    assert JobOptions().device_names(gpus=0) == ["cpu"] * max(1, (os.cpu_count() or 1) // 2)
    assert JobOptions(devices="cpu,cpu").device_names(gpus=1) == ["cpu", "cpu"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"devices": "gpu"},
        {"devices": ""},
        {"devices": "auto,cpu"},
        {"broker_url": "amqp://x"},
        {"store_url": "data"},
        {"store_url": "file://data"},
        {"lease_seconds": 0},
        {"retention_seconds": -1},
        {"max_queued_jobs": 0},
        {"job_memory_bytes": -1},
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        JobOptions.model_validate(wrong)
    assert [error["loc"] for error in caught.value.errors()] == [tuple(wrong)]
