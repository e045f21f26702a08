"""Data sets of a `Client`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anglewise_client._methods import method
from anglewise_client.calls import jobs as calls

if TYPE_CHECKING:
    from anglewise_client.client import Client


class Datasets:
    """Data that one service keeps for trainings."""

    def __init__(self, client: Client) -> None:
        self.send = client.send

    create = method(calls.create_dataset)
    list = method(calls.list_datasets)
    get = method(calls.get_dataset)
    delete = method(calls.delete_dataset)
