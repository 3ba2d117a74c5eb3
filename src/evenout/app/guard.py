"""Access to the page: only with its secret, from its own pages, and by requests of a bearable size."""

import asyncio
import ipaddress
import re
import secrets
import sys
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SILENCE = 30.0  # seconds without a byte of a request that was begun
_FORM = 2_000_000  # bytes of a request that brings no file

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Refuse in one line, before anything is read; let nothing but one line out where something fails.

    The ``token`` is the first part of every path. Beside ``host``, addresses in numbers and ``localhost`` are taken: a
    foreign name that leads here is somebody else's page. ``refuse`` makes a response of a status and a text.
    """

    def __init__(
        self, app: ASGIApp, *, token: str, host: str, most_bytes: int, refuse: Callable[[int, str], ASGIApp]
    ) -> None:
        self.app, self.token, self.host, self.most_bytes, self.refuse = app, token, host, most_bytes, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def shut(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        async def answer(status: int, text: str) -> None:
            if not begun:
                await self.refuse(status, text)(scope, receive, shut)

        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        limit = self.most_bytes if headers.get("content-type", "").startswith("multipart/form-data") else _FORM
        try:
            if refusal:
                await answer(403, refusal)
            elif int(headers.get("content-length") or 0) > limit:
                await answer(413, _too_large(limit))
            else:
                await self.app(scope, _limited(receive, limit), shut)
        except ClientDisconnect:
            pass
        except Exception as error:  # the page lives on, and says no more than this
            sys.stderr.write(f"Error: the page failed on a request: {type(error).__name__}\n")
            await answer(500, "Something failed that should not have; go back and try again")

    def _refusal(self, scope: Scope, headers: Headers) -> str:
        host = headers.get("host", "")
        if not self._known(host):
            return "This page is not served under that name"
        if not secrets.compare_digest(scope["path"].split("/")[1].encode(), self.token.encode()):
            return "The address lacks its secret; use the one that evenout app has printed"
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin not in (None, f"http://{host}") or site not in ("none", "same-origin"):
            return "Requests from other pages are refused"
        outside = scope["method"] not in ("GET", "HEAD") and origin is None
        return "Requests from outside of the page are refused" if outside else ""

    def _known(self, host: str) -> bool:
        name = re.sub(r":\d+$", "", host)
        if name in ("localhost", self.host):
            return True
        try:
            return bool(ipaddress.ip_address(name.removeprefix("[").removesuffix("]")))
        except ValueError:
            return False


def _too_large(most: int) -> str:
    return f"This is more than {most / 1e6:,.0f} MB, the most that is taken in; start the page with a larger --max-size"


def _limited(receive: Receive, most: int) -> Receive:
    """Count the bytes of a request, and wait for none of them for ever."""
    size, whole = 0, False

    async def count() -> Message:
        nonlocal size, whole
        if whole:  # nothing but the end of the connection can come
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), _SILENCE)
        except TimeoutError:
            raise HTTPException(408, "The rest of the request did not come; send it again") from None
        size += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if size > most:
            raise HTTPException(413, _too_large(most))
        return message

    return count
