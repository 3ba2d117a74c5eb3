"""The pages: a table comes in, its columns get roles, a way is chosen, a command runs, its results are shown."""

import asyncio
import csv
import json
import os
import re
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request as WebRequest
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from evenout.app.guard import Guard
from evenout.app.look import MOST_COLUMNS
from evenout.app.runs import Run, Runs
from evenout.app.ways import MEASURES, MODEL, RESULTS, ROLES, SETTINGS, WAYS, Request, Setting, UnfitError, checked
from evenout.pages import static, style, template
from evenout.tables.files import SUFFIXES, require_file

_BEAT = 0.25  # seconds between two looks at a command
_LISTED = 50  # people on the page of results
_LOOKED = {"Reading": "Reading the table", "Looking at": "Looking at its columns"}
_EXAMPLES = {
    "german": "1,000 people who took a credit, by status and sex",
    "credit": "30,000 card clients, by education, age, sex and marriage",
    "communities": "1,994 communities, by largest ethnic group",
}
_SANDBOX = {"content-security-policy": "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"}


@dataclass(eq=False)
class BroughtTable:
    """A table that was brought, in a folder of its own."""

    id: str
    folder: Path
    file: str
    bundled: str = ""
    roles: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    look: Run | None = None

    def seen(self) -> dict[str, Any]:
        """The findings of `evenout.app.look`."""
        return json.loads((self.folder / "look.json").read_text(encoding="utf-8"))

    def request(self, way: str, settings: Mapping[str, str]) -> Request:
        """The command that would run."""
        return Request(way, self.file, self.seen()["columns"], self.roles, settings, (self.folder / MODEL).exists())


@dataclass(eq=False)
class Result:
    """A command that was run on a table."""

    id: str
    table: BroughtTable
    request: Request
    run: Run

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return self.run.folder / RESULTS

    def files(self) -> dict[str, str]:
        """Results that are there, and what they are."""
        return {name: words for name, words in WAYS[self.request.way].results.items() if (self.folder / name).exists()}

    @property
    def page(self) -> str:
        """The file to be shown."""
        return next((name for name in self.files() if name.endswith(".html")), "")

    @property
    def explained(self) -> bool:
        """Whether a person's reasons can be had: from a model of ``evenout fit``."""
        return self.run.state == "done" and self.request.way in ("fit", "score", "plan")


class Pages:
    """All that the page knows."""

    def __init__(self, home: Path, token: str, most_bytes: int) -> None:
        self.home, self.root, self.most_bytes = home, f"/{token}", most_bytes
        self.tables: dict[str, BroughtTable] = {}
        self.results: dict[str, Result] = {}
        self.runs = Runs()
        self.closing: Callable[[], bool] = lambda: False

    def routes(self) -> list[Route]:
        """Below the secret."""
        post: dict[str, Any] = {"methods": ["POST"]}
        return [
            Route("/", self._start),
            Route("/app.css", lambda _: Response(style() + static("evenout.app", "app.css"), media_type="text/css")),
            Route("/app.js", lambda _: Response(static("evenout.app", "app.js"), media_type="text/javascript")),
            Route("/table", self._bring, **post),
            Route("/t/{table}", self._columns),
            Route("/t/{table}/columns", self._assign, **post),
            Route("/t/{table}/model", self._bring_model, **post),
            Route("/t/{table}/task", self._task),
            Route("/t/{table}/command", self._command, **post),
            Route("/t/{table}/run", self._go, **post),
            Route("/t/{table}/events", self._events),
            Route("/t/{table}/cancel", self._cancel, **post),
            Route("/r/{result}", self._result),
            Route("/r/{result}/events", self._events),
            Route("/r/{result}/cancel", self._cancel, **post),
            Route("/r/{result}/page", self._page),
            Route("/r/{result}/file/{name}", self._download),
            Route("/r/{result}/why", self._why, **post),
            Route("/r/{result}/audit", self._audit_scores, **post),
        ]

    def shown(self, name: str, status: int = 200, **fields: Any) -> Response:
        """Fill a template in."""
        return HTMLResponse(template("evenout.app", f"{name}.html.j2").render(root=self.root, **fields), status)

    def refused(self, status: int, text: str) -> Response:
        """A page with one line."""
        return self.shown("refused", status, text=text)

    def new_table(self, name: str, **fields: Any) -> BroughtTable:
        """Make a folder for a table."""
        table = BroughtTable(secrets.token_hex(8), self.home / f"t-{len(self.tables)}", name, **fields)
        table.folder.mkdir()
        self.tables[table.id] = table
        return table

    def look_at(self, table: BroughtTable) -> None:
        """Find out what the columns are, in a process of its own."""
        bundled = ["--bundled", table.bundled] if table.bundled else []
        planned = ({"Unpacking": "Unpacking the example"} if bundled else {}) | _LOOKED
        arguments = ["-m", "evenout.app.look", table.file, "look.json", *bundled]
        table.look = self.runs.start(arguments, table.folder, table.folder / "notes", planned)

    def _go_to(self, path: str) -> Response:
        """Look elsewhere, so that a reload sends nothing twice."""
        return RedirectResponse(self.root + path, 303)

    async def _start(self, web: WebRequest, error: str = "", status: int = 200) -> Response:
        model = web.query_params.get("model", "")
        return self.shown(
            "start", status, error=error, examples=_EXAMPLES, suffixes=SUFFIXES, most=self.most_bytes,
            model=model if model in self.results else "",
        )  # fmt: skip

    async def _bring(self, web: WebRequest) -> Response:
        async with web.form(max_files=1, max_fields=4) as form:
            bundled, file, model = form.get("bundled"), form.get("file"), form.get("model")
            if isinstance(bundled, str) and bundled in _EXAMPLES:
                table = self.new_table(f"{bundled}.csv", bundled=bundled)
            elif isinstance(file, UploadFile) and file.filename:
                try:
                    table = self.new_table(file_name(file.filename))
                except ValueError as error:
                    return await self._start(web, str(error), 400)
                await asyncio.to_thread(_save, file, table.folder / table.file)
            else:
                return await self._start(web, "Choose a file, or take one of the examples", 400)
        if isinstance(model, str) and model in self.results and MODEL in self.results[model].files():
            _link(self.results[model].folder / MODEL, table.folder / MODEL)
        self.look_at(table)
        return self._go_to(f"/t/{table.id}")

    async def _columns(self, web: WebRequest) -> Response:
        table, look = self._table(web), self._run(web)
        if not look.ended:
            return self._waiting(1, f"Reading {table.file}", look, f"/t/{table.id}")
        if look.state != "done":
            return await self._start(web, look.error() if look.state == "failed" else "")
        seen = await asyncio.to_thread(table.seen)
        roles = {column["name"]: table.roles.get(column["name"], column["role"]) for column in seen["columns"]}
        groups = [name for name, role in roles.items() if role == "group"]
        for place, column in enumerate(seen["columns"]):
            column |= {
                "place": place,
                "values": [row[place] for row in seen["first"] if row[place]][:3],
                "told": [name for name in groups if column["name"] in seen["tells"].get(name, {})],
            }
        seen["columns"].sort(key=lambda column: roles[column["name"]] in ("feature", "out"))  # what matters first
        return self.shown("columns", table=table, seen=seen, roles=roles, words=ROLES)

    async def _assign(self, web: WebRequest) -> Response:
        table = self._ready(web)
        form = await web.form(max_fields=MOST_COLUMNS + 10)
        for place, column in enumerate(table.seen()["columns"]):
            role = form.get(f"role-{place}")
            table.roles[column["name"]] = role if isinstance(role, str) and role in ROLES else column["role"]
        return self._go_to(f"/t/{table.id}/task")

    async def _task(self, web: WebRequest, error: str = "") -> Response:
        table, way = self._ready(web), web.query_params.get("way", "")
        fields: dict[str, Any] = {
            "table": table, "rows": table.seen()["rows"], "ways": WAYS,
            "cards": {name: _composed(table.request(name, {})).get("missing", "") for name in WAYS},
        }  # fmt: skip
        if way in WAYS:
            request = table.request(way, table.settings)
            settings = {name: SETTINGS[name] for name in WAYS[way].settings}
            fields |= {
                "request": request, "measures": MEASURES, "command": _composed(request).get("command", ""),
                "sliders": {name: setting for name, setting in settings.items() if setting.slider},
                "more": {name: setting for name, setting in settings.items() if _useful(request, setting)},
            }  # fmt: skip
        return self.shown("task", way=way if way in WAYS else "", error=error, **fields)

    async def _bring_model(self, web: WebRequest) -> Response:
        """Take a model file; the command that loads it is what checks it."""
        table, way = self._ready(web), web.query_params.get("way", "")
        async with web.form(max_files=1, max_fields=2) as form:
            file = form.get("model")
            if isinstance(file, UploadFile) and file.filename:
                (table.folder / MODEL).unlink(missing_ok=True)  # others may hold the one that was there
                await asyncio.to_thread(_save, file, table.folder / MODEL)
        return self._go_to(f"/t/{table.id}/task?way={way if way in WAYS else ''}#settings")

    async def _asked(self, web: WebRequest) -> Request:
        table = self._ready(web)
        form = {name: str(value) for name, value in (await web.form(max_fields=50)).items()}
        if form.get("way") not in WAYS:
            raise HTTPException(400, "Choose what to do")
        return table.request(form["way"], checked(form))

    async def _command(self, web: WebRequest) -> Response:
        try:
            return JSONResponse(_composed(await self._asked(web)))
        except UnfitError as wrong:
            return JSONResponse({"missing": str(wrong)})

    async def _go(self, web: WebRequest) -> Response:
        try:
            request = await self._asked(web)
            arguments = request.arguments()
        except UnfitError as wrong:
            return await self._task(web, str(wrong))
        table, folder = self._ready(web), self.home / f"r-{len(self.results)}"
        table.settings = dict(request.settings)
        folder.mkdir()
        for name in (table.file, *([MODEL] if request.model else [])):
            _link(table.folder / name, folder / name)
        notes = folder.with_name(f"{folder.name}-notes")
        name = secrets.token_hex(8)
        run = self.runs.start(["-m", "evenout", *arguments], folder, notes, request.stages())
        self.results[name] = Result(name, table, request, run)
        return self._go_to(f"/r/{name}")

    def _waiting(self, step: int, title: str, run: Run, path: str, command: str = "") -> Response:
        return self.shown("running", step=step, title=title, run=run, now=run.progress(), path=path, command=command)

    async def _events(self, web: WebRequest) -> Response:
        run = self._run(web)

        async def told() -> AsyncIterator[str]:
            last: dict[str, Any] = {}
            while not self.closing():
                now = await asyncio.to_thread(run.progress)
                if now != last:
                    yield f"data: {json.dumps(now)}\n\n"
                    last = now
                if now["state"] in ("done", "failed", "cancelled"):
                    return
                await asyncio.sleep(_BEAT)

        return StreamingResponse(told(), media_type="text/event-stream")

    async def _cancel(self, web: WebRequest) -> Response:
        await self.runs.cancel(self._run(web))
        result = self.results.get(web.path_params.get("result", ""))
        return self._go_to(f"/t/{result.table.id}/task?way={result.request.way}#settings" if result else "/")

    async def _result(self, web: WebRequest) -> Response:
        result, find = self._found(web), web.query_params.get("find", "")
        way, files = WAYS[result.request.way], result.files()
        if not result.run.ended:
            return self._waiting(4, way.title, result.run, f"/r/{result.id}", result.request.command())
        lists = [result.folder / name for name in ("scores.csv", "plan.csv") if name in files]
        people = await asyncio.to_thread(_people, lists[0], find) if lists else []
        return self.shown("result", result=result, way=way, files=files, people=people, find=find, listed=_LISTED)

    async def _page(self, web: WebRequest) -> Response:
        """The report or audit: a page of its own that can reach nothing of this one."""
        result = self._found(web)
        if not result.page:
            raise HTTPException(404, "There is no page yet")
        return FileResponse(result.folder / result.page, headers=_SANDBOX)

    async def _download(self, web: WebRequest) -> Response:
        result, name = self._found(web), web.path_params["name"]
        words = {"command.sh": lambda: f"{result.request.command()}\n", "command.py": result.request.code}
        if name in words:
            return Response(
                words[name](), media_type="text/plain; charset=utf-8",
                headers={"content-disposition": f'attachment; filename="{name}"'},
            )  # fmt: skip
        if name == "table" and result.table.bundled:
            return FileResponse(result.table.folder / result.table.file, filename=result.table.file)
        if name in result.files():
            return FileResponse(result.folder / name, filename=name, media_type="application/octet-stream")
        raise HTTPException(404, "There is no such file")

    async def _why(self, web: WebRequest) -> Response:
        """Why a person stands out, by ``evenout explain``."""
        result = self._found(web)
        person = str((await web.form(max_fields=2)).get("person", ""))[:1000]
        if not result.explained or not person:
            raise HTTPException(400, "There is nobody to explain")
        arguments = [
            "-m", "evenout", "explain", f"{RESULTS}/{MODEL}" if MODEL in result.files() else MODEL,
            result.request.file, f"--person={person}", *(f"--id={name}" for name in result.request.named("id")),
        ]  # fmt: skip
        run = self.runs.start(arguments, result.run.folder, Path(tempfile.mkdtemp(dir=self.home)) / "notes", {})
        assert run.task is not None
        await asyncio.wait([run.task])
        return JSONResponse({"text": run.said()} if run.state == "done" else {"error": run.error()})

    async def _audit_scores(self, web: WebRequest) -> Response:
        """Take the scores that were made as a table of their own, to be audited."""
        scores = self._found(web).folder / "scores.csv"
        if not scores.exists():
            raise HTTPException(400, "There are no scores to audit")
        roles = {"id": "id", "group": "group", "fair_score": "score", "flagged": "flagged"}
        roles |= dict.fromkeys(("base_score", "base_rank", "fair_rank"), "out")
        table = self.new_table(scores.name, roles=roles)
        _link(scores, table.folder / scores.name)
        self.look_at(table)
        return self._go_to(f"/t/{table.id}")

    def _table(self, web: WebRequest) -> BroughtTable:
        if web.path_params["table"] not in self.tables:
            raise HTTPException(404, "There is no such table; bring it again")
        return self.tables[web.path_params["table"]]

    def _ready(self, web: WebRequest) -> BroughtTable:
        """A table that was read."""
        table = self._table(web)
        if table.look is None or table.look.state != "done":
            raise HTTPException(409, "The table has not been read; go back to it")
        table.roles = table.roles or {column["name"]: column["role"] for column in table.seen()["columns"]}
        return table

    def _found(self, web: WebRequest) -> Result:
        if web.path_params["result"] not in self.results:
            raise HTTPException(404, "There is no such result; run it again")
        return self.results[web.path_params["result"]]

    def _run(self, web: WebRequest) -> Run:
        """The command that the address is about."""
        run = self._found(web).run if "result" in web.path_params else self._table(web).look
        if run is None:
            raise HTTPException(404, "Nothing runs")
        return run


def serve(
    file: Path | None, *, host: str, port: int, browser: bool, most_bytes: int, tell: Callable[[str], object]
) -> None:
    """Serve the page until it is interrupted; what was brought is deleted then."""
    name = ""
    if file is not None:
        require_file(file)
        name = file_name(file.name)
    private = tempfile.TemporaryDirectory(prefix="evenout-app-", ignore_cleanup_errors=True)
    with private as home, _listen(host, port) as door:
        token, given = secrets.token_urlsafe(16), None
        pages = Pages(Path(home), token, most_bytes)
        if file is not None:
            given = pages.new_table(name)
            _link(file.resolve(), given.folder / name)
        server = uvicorn.Server(
            uvicorn.Config(
                _application(pages, token, host, given), log_level="critical", access_log=False, server_header=False,
                timeout_graceful_shutdown=2, timeout_keep_alive=10, ws="none", lifespan="on",
            )
        )  # fmt: skip
        pages.closing = lambda: server.should_exit
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{door.getsockname()[1]}{pages.root}/{f't/{given.id}' if given else ''}"
        tell(f"Open {address} (Ctrl-C ends it and deletes what was brought)")
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        closed = getattr(signal, "SIGHUP", signal.SIGTERM)  # the terminal is closed
        before = signal.signal(closed, server.handle_exit)
        try:
            tempfile.tempdir = home  # for what is on its way in
            server.run(sockets=[door])
        finally:
            tempfile.tempdir = None
            signal.signal(closed, before)


def _application(pages: Pages, token: str, host: str, given: BroughtTable | None) -> ASGIApp:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if given is not None:
            pages.look_at(given)
        yield
        await pages.runs.close()

    async def refused(_: WebRequest, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            return pages.refused(500, "Something failed that should not have; go back and try again")
        lost = error.detail in ("Not Found", "Method Not Allowed")
        return pages.refused(error.status_code, "There is nothing here; go back to the start" if lost else error.detail)

    inner = Starlette(
        routes=[Mount(pages.root, routes=pages.routes())], lifespan=lifespan,
        exception_handlers={HTTPException: refused, Exception: refused},
    )  # fmt: skip
    return Guard(inner, token=token, host=host, most_bytes=pages.most_bytes, refuse=pages.refused)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ValueError(f"--host {host} --port {port} cannot be used ({error.strerror}); choose another") from None


def file_name(given: str) -> str:
    r"""A plain name of the letters of a name that somebody else has chosen, with the ending of a table.

    >>> [file_name(name) for name in (r"C:\data\May 2026.CSV", "../../etc/x.csv.gz", "-.parquet")]
    ['May_2026.csv', 'x.csv.gz', 'table.parquet']
    """
    last = re.split(r"[/\\\0]", given)[-1]
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if last.lower().endswith(suffix):
            stem = re.sub(r"[^\w-]+", "_", last[: -len(suffix)]).strip("_-")[:60]
            return f"{stem or 'table'}{suffix}"
    raise ValueError(f"{last[-80:]} is of no known kind; name it {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")


def _save(file: UploadFile, path: Path) -> None:
    with path.open("wb") as target:
        shutil.copyfileobj(file.file, target, 2**20)


def _link(source: Path, target: Path) -> None:
    """Have a file in another folder too; it stays there if the first is replaced."""
    try:
        os.link(source, target)
    except OSError:  # another disk, or somebody else's file
        shutil.copyfile(source, target)


def _composed(request: Request) -> dict[str, str]:
    try:
        return {"command": request.command()}
    except UnfitError as missing:
        return {"missing": str(missing)}


def _useful(request: Request, setting: Setting) -> bool:
    """Whether a setting belongs behind "More"."""
    several = len(request.named("group", "number")) > 1
    return not setting.slider and (
        several if setting.needs == "group" else not setting.needs or bool(request.named(setting.needs))
    )


def _people(scores: Path, find: str) -> list[dict[str, str]]:
    """The highest of those whose id holds the text that is looked for; a plan has its own order."""
    with scores.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if find.casefold() in row["id"].casefold()]
    if rows and "fair_score" in rows[0]:
        rows = sorted(rows, key=lambda row: -float(row["fair_score"]))
    return [row | {"id": re.sub(r"^'('*[=+\-@\t\r\n])", r"\1", row["id"])} for row in rows[:_LISTED]]  # as in the table
