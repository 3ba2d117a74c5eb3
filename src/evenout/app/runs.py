"""Commands in processes of their own: started, followed by their stages, cancelled, and ended with the page."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenout.cli.messages import STAGES, one_line

_AT_ONCE = 2  # commands that compute at the same time; others wait
_GRACE = 3.0  # seconds in which a cancelled command may tidy up
_SAID = 100_000  # characters of what a command printed


@dataclass(eq=False)
class Run:
    """A command that waits, runs or has ended."""

    arguments: list[str]  # after ``python``
    folder: Path  # where it runs
    notes: Path  # private folder for what it says
    planned: Mapping[str, str]  # how the names of its stages begin, in their order, and what to call them
    state: str = "waiting"  # or "running", "done", "failed", "cancelled"
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    process: asyncio.subprocess.Process | None = None
    task: "asyncio.Task[None] | None" = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state in ("done", "failed", "cancelled")

    def said(self, stream: str = "stdout") -> str:
        """The end of what the command printed."""
        file = self.notes / stream
        return file.read_text(encoding="utf-8", errors="replace")[-_SAID:] if file.exists() else ""

    def told(self, mark: str) -> list[str]:
        """The lines of the error stream that begin with a mark, such as "Note: "."""
        lines = self.said("stderr").splitlines()
        return [one_line(line.removeprefix(mark)) for line in lines if line.startswith(mark)]

    def error(self) -> str:
        """The one line of a command that failed."""
        errors = self.told("Error: ")
        if errors:
            return errors[-1]
        code = None if self.process is None else self.process.returncode
        lost = "was ended from outside, maybe for want of memory" if code and code < 0 else f"ended with status {code}"
        return f"The command {lost}; the page is well, and you can try again with fewer rows or columns."

    def progress(self) -> dict[str, Any]:
        """Stages done of stages known, and what is being done."""
        stages, done, total, name = 0, 0, None, ""
        file = self.notes / "stages"
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            try:
                said = json.loads(line)
            except ValueError:  # still being written
                break
            if "done" in said:
                done += said["done"]
                continue
            name, total, done = said["stage"], said["total"], 0
            stages = max(stages, 0, *(place for place, start in enumerate(self.planned) if name.startswith(start)))
        return {
            "state": self.state, "stages": len(self.planned) if self.state == "done" else stages, "name": name,
            "part": {"done": done, "total": total} if total else None,
            "seconds": int(self.seconds if self.ended else time.monotonic() - self.started),
        }  # fmt: skip


class Runs:
    """All commands of a page."""

    def __init__(self) -> None:
        self._running: set[Run] = set()
        self._gate = asyncio.Semaphore(_AT_ONCE)

    def start(self, arguments: Sequence[str], folder: Path, notes: Path, planned: Mapping[str, str]) -> Run:
        """Begin a command as soon as fewer than two others run."""
        notes.mkdir()
        run = Run([*arguments], folder, notes, planned)
        self._running.add(run)
        run.task = asyncio.create_task(self._follow(run))
        return run

    async def cancel(self, run: Run) -> None:
        """End a command and everything that it has started; return when it is gone."""
        assert run.task is not None
        if run.state == "waiting":
            run.task.cancel()
        if not run.ended:
            run.state, run.seconds = "cancelled", time.monotonic() - run.started
            _signal(run.process, signal.SIGTERM)
        done, _ = await asyncio.wait([run.task], timeout=_GRACE)
        if not done:
            _signal(run.process, getattr(signal, "SIGKILL", signal.SIGTERM))
            await asyncio.wait([run.task])

    async def close(self) -> None:
        """End all commands."""
        await asyncio.gather(*(self.cancel(run) for run in [*self._running]))

    async def _follow(self, run: Run) -> None:
        try:
            async with self._gate:
                run.started, run.state = time.monotonic(), "running"
                with (run.notes / "stdout").open("wb") as out, (run.notes / "stderr").open("wb") as err:
                    run.process = await asyncio.create_subprocess_exec(
                        sys.executable, *run.arguments, cwd=run.folder, start_new_session=True,
                        stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err, env=os.environ
                        | {STAGES: str(run.notes / "stages"), "PYTHONUNBUFFERED": "1", "COLUMNS": "100"},
                    )  # fmt: skip
                if run.state == "cancelled":  # while it was being started
                    _signal(run.process, signal.SIGTERM)
                code = await run.process.wait()
            if run.state == "running":
                run.seconds, run.state = time.monotonic() - run.started, "failed" if code else "done"
        except (OSError, ValueError) as error:  # nothing could be started, such as a name that no command can take
            (run.notes / "stderr").write_text(f"Error: {error}\n", encoding="utf-8")
            run.state = "failed"
        finally:
            self._running.discard(run)


def _signal(process: asyncio.subprocess.Process | None, number: int) -> None:
    """To the command and all that it has started."""
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            getattr(os, "killpg", os.kill)(process.pid, number)
