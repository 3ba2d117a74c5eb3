"""The page as users have it: a process of its own, talked to over HTTP, with its own folder for temporary files."""

import http.client
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from urllib.parse import urlencode, urlsplit

import numpy as np
import pandas as pd
import pytest

BOUNDARY = "----of-a-test"


def make_people(n=240, seed=0) -> pd.DataFrame:
    """Three groups by sex, one of them wider, with a score, an outcome and a column that tells the sex."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame({"person": [f"p{row:03}" for row in range(n)]})
    people["sex"] = rng.choice(["f", "m", "x"], n, p=[0.4, 0.35, 0.25])
    people["title"] = people["sex"].map({"f": "Ms", "m": "Mr", "x": "Mx"})
    people["age"] = rng.integers(20, 70, n)
    people["home"] = rng.choice(["own", "rent"], n)
    wide = np.where(people["sex"] == "f", 2.0, 1.0)
    people["income"] = (wide * rng.normal(size=n)).round(3)
    people["debt"] = (wide * rng.normal(size=n)).round(3)
    people["fraud"] = (np.abs(people["income"]) > 1.8).astype(int)
    people["risk"] = (people[["income", "debt"]].abs().sum(axis=1) + rng.exponential(size=n)).round(4)
    return people


@pytest.fixture(scope="session")
def people(tmp_path_factory):
    """A folder with people.csv."""
    folder = tmp_path_factory.mktemp("people")
    make_people().to_csv(folder / "people.csv", index=False)
    return folder


class Client:
    """Requests to a page, with all that a browser sends with them."""

    def __init__(self, address):
        parts = urlsplit(address)
        self.host, self.port, self.root = parts.hostname, parts.port, "/" + parts.path.split("/")[1]
        self.address, self.origin = address, f"http://{self.host}:{self.port}"

    def ask(self, path, body=None, *, root=None, method=None, timeout=30, **headers):
        """Status, headers and text; headers are given as ``x_y=value``, None for none."""
        status, headers, content = self.raw(path, body, root=root, method=method, timeout=timeout, **headers)
        return status, headers, content.decode(errors="replace")

    def raw(self, path, body=None, *, root=None, method=None, timeout=30, **headers):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        sent = {} if body is None else {"Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in sent.items() if value is not None}
        try:
            data = urlencode(body) if isinstance(body, dict) else body
            connection.request(
                method or ("GET" if body is None else "POST"), (self.root if root is None else root) + path, data, sent
            )
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def upload(self, name, content, field="file", path="/table", **headers):
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'
        body = head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
        return self.ask(path, body, **({"Content_Type": f"multipart/form-data; boundary={BOUNDARY}"} | headers))

    def bring(self, name, content):
        """Where a table that was brought is, after it was looked at, and what its page says."""
        status, headers, text = self.upload(name, content)
        assert status == 303, text
        place = headers["Location"].removeprefix(self.root)
        return place, self.settled(place)

    def settled(self, place, timeout=120):
        """The page at a place as soon as nothing runs there."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            text = self.ask(place)[2]
            if "data-events" not in text:
                return text
            time.sleep(0.1)
        raise AssertionError(f"{place} still runs")

    def run(self, place, way, **settings):
        """Run a way on a table; the place of the result and its page."""
        status, headers, text = self.ask(f"{place}/run", {"way": way, **settings})
        assert status == 303, text
        place = headers["Location"].removeprefix(self.root)
        return place, self.settled(place)


@contextmanager
def serving(folder, *arguments):
    """A page whose temporary files are in a folder; afterwards it is gone, and so are they."""
    environment = os.environ | {"TMPDIR": str(folder)}
    command = [sys.executable, "-m", "evenout", "app", "--no-browser", *map(str, arguments)]
    with subprocess.Popen(
        command, env=environment, cwd=folder.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        try:
            assert found, line + process.stderr.read()
            client = Client(found[0])
            client.process, client.folder = process, folder
            yield client
        finally:
            process.terminate()
            process.wait(timeout=20)
            client.complaints = process.stderr.read()
    assert "Traceback" not in client.complaints, client.complaints
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="package")
def page(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served"), "--max-size", 3) as client:
        yield client


@pytest.fixture(scope="session")
def serve():
    """Start a page with arguments of its own."""
    return serving
