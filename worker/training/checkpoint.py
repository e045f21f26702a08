"""Checkpoints: tensors as safetensors, everything else as JSON in its header. No pickle."""

from __future__ import annotations

import json
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

FORMAT = 1


class Unreadable(Exception):
    """Not a checkpoint of this format."""


def pack(state: Any) -> bytes:
    """A tree of dicts, lists, tensors and JSON values as bytes."""
    tensors: dict[str, Tensor] = {}
    tree = _detach(state, tensors, ())
    document = json.dumps({"format": FORMAT, "tree": tree}, allow_nan=False)
    return safetensors.torch.save(tensors, metadata={"anglewise": document})


def unpack(data: bytes) -> Any:
    """What `pack` packed; tensors are on the CPU.

    Raises:
        Unreadable: damaged, or not from `pack`.
    """
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        document = json.loads(header["__metadata__"]["anglewise"])
        if document["format"] != FORMAT:
            raise Unreadable(f"the checkpoint has format {document['format']}, not {FORMAT}")
        return _attach(document["tree"], tensors)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"the checkpoint cannot be read: {error}") from error


def _detach(node: Any, tensors: dict[str, Tensor], path: tuple[object, ...]) -> Any:
    """Tensors are named by where they were, such as encoder.network.0.weight."""
    if isinstance(node, Tensor):
        name = ".".join(map(str, path)) or "tensor"
        while name in tensors:
            name += "'"
        tensors[name] = node.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(node, dict):  # keys may be integers, which JSON objects cannot have
        return {"dict": [[key, _detach(value, tensors, (*path, key))] for key, value in node.items()]}
    if isinstance(node, (list, tuple)):
        return {"list": [_detach(value, tensors, (*path, i)) for i, value in enumerate(node)]}
    return node


def _attach(node: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(node, dict):
        return node
    if "tensor" in node:
        return tensors[node["tensor"]]
    if "dict" in node:
        return {key: _attach(value, tensors) for key, value in node["dict"]}
    return [_attach(value, tensors) for value in node["list"]]
