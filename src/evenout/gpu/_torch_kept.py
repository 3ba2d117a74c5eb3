"""What a fitted part has sent to a device stays there for as long as the part lives: one row does not pay for it."""

from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch

T = TypeVar("T")

_KEPT: WeakKeyDictionary[Any, dict[torch.device, Any]] = WeakKeyDictionary()
_SENDING = Lock()


def kept(part: Any, device: torch.device | str, send: Callable[[Any, torch.device], T]) -> T:
    """``send(part, device)``, called once for each part and device, by one thread while others wait.

    Parts do not change after a fit, so that nothing kept is ever out of date; they are told apart by identity. What
    ``send`` returns must not hold the part: it is freed with it. It is neither copied, pickled nor saved.
    """
    where = _exactly(device)
    with _SENDING:
        sent = _KEPT.setdefault(part, {})
        if where not in sent:
            sent[where] = send(part, where)
        return sent[where]


def _exactly(device: torch.device | str) -> torch.device:
    """The device itself, where its name leaves open which of several it is."""
    found = torch.device(device)
    if found.type == "cuda" and found.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return found
