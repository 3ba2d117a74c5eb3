"""Who is refused, and what is left behind: by sockets and requests against a page that runs."""

import signal
import socket
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from evenout.app.server import file_name
from evenout.cli import main


def refused(answer, status=403):
    assert answer[0] == status
    assert "Traceback" not in answer[2]
    return answer[2]


@pytest.mark.parametrize("root", ["", "/", "/wrong", "/" + "x" * 22, "/%2e%2e", "/%c3%a9%00"])
def test_without_the_token_nothing_is_told(page, root):
    for path in ("/", "/table", "/app.js", "/t/0", "/r/0/file/model.skops"):
        assert "lacks its secret" in refused(page.ask(path, root=root))


def test_the_token_is_all_of_it(page):
    refused(page.ask("/", root=page.root[:-1]))
    refused(page.ask("/", root=page.root + "x"))
    assert page.ask("/")[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "a/b", "[::1"])
def test_a_name_that_leads_here_is_refused(page, host):
    refused(page.ask("/", Host=host))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": None},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_origins_are_refused(page, headers):
    refused(page.ask("/table", {"bundled": "german"}, **headers))


def test_pages_let_nothing_in_or_out(page):
    for path in ("/", "/app.js", "/t/none"):
        headers = page.ask(path)[1]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in headers


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("../../../etc/passwd.csv", "passwd.csv"),
        ("/etc/cron.d/x.parquet", "x.parquet"),
        ("..\\..\\windows\\x.csv", "x.csv"),
        ("....csv", "table.csv"),
        (".csv", "table.csv"),
        ("a\0b.csv", "b.csv"),
        ("-rf.csv", "rf.csv"),
        ("x" * 500 + ".csv.gz", "x" * 60 + ".csv.gz"),
        ("model.skops.csv", "model_skops.csv"),
        ("$(id);`id`&|<>'\"*?[].csv", "id_id.csv"),
        ("Müller 2026.csv", "Müller_2026.csv"),
        ("a\u202eb\u2028.csv", "a_b.csv"),
    ],
)
def test_names_are_made_harmless(given, name):
    assert file_name(given) == name


def test_a_path_in_a_name_leads_nowhere_and_text_is_never_markup(page):
    nasty = "</script><img src=x onerror=alert(1)>"
    rows = "".join(f"<b>x</b>,{row},1,f,{row}\n" for row in range(60))
    place, text = page.bring("../../../stolen.csv", f'"{nasty}","new\nline","{{{{ 7*7 }}}}",sex,score\n{rows}'.encode())
    assert "Say what is what" in text
    assert "<b>stolen.csv</b>" in text
    assert "<img" not in text
    assert "<b>x" not in text
    assert "{{ 7*7 }}" in text
    assert not list(page.folder.parent.glob("stolen*"))
    private = [folder for folder in page.folder.iterdir() if folder.is_dir()]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in private] == [0o700]
    for path in ("/file/..%2f..%2flook.json", "/file/look.json", "/file/../look.json"):
        assert page.ask(place.replace("/t/", "/r/") + path)[0] == 404


def test_more_than_the_limit_is_refused_before_it_is_kept(page):
    before = sum(file.stat().st_size for file in page.folder.rglob("*") if file.is_file())
    text = refused(page.upload("big.csv", b"x" * 3_100_000), 413)
    assert "more than 3 MB" in text
    with socket.create_connection((page.host, page.port), 30) as connection:  # a body of no stated length
        head = f"POST {page.root}/table HTTP/1.1\r\nHost: {page.host}:{page.port}\r\nOrigin: {page.origin}\r\n"
        kind = "Content-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall((head + kind).encode())
        part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="big.csv"\r\n\r\n'
        connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        try:
            for _ in range(50):
                connection.sendall(b"%x\r\n%s\r\n" % (100_000, b"x" * 100_000))
        except OSError:
            pass  # it hung up, as it should
        try:
            answer = connection.recv(1000)
        except ConnectionResetError:
            answer = b""
    assert not answer or b"413" in answer.split(b"\r\n")[0]
    assert sum(file.stat().st_size for file in page.folder.rglob("*") if file.is_file()) <= before + 1000
    refused(page.ask("/table", "bundled=" + "x" * 2_100_000), 413)


def test_a_slow_client_keeps_nobody_waiting(page):
    slow = [socket.create_connection((page.host, page.port), 30) for _ in range(20)]
    try:
        for number, connection in enumerate(slow):
            head = f"POST {page.root}/table HTTP/1.1\r\nHost: {page.host}:{page.port}\r\nOrigin: {page.origin}\r\n"
            whole = "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n--b\r\n"
            connection.sendall((head + (whole if number % 2 else "")).encode())
        start = time.monotonic()
        assert page.ask("/")[0] == 200
        assert time.monotonic() - start < 5
    finally:
        for connection in slow:
            connection.close()
    assert page.ask("/")[0] == 200


def test_fifty_at_once_are_all_answered(page):
    kinds = [
        lambda: page.ask("/")[0],
        lambda: page.ask("/", root="/wrong")[0],
        lambda: page.ask("/t/nothing")[0],
        lambda: page.ask("/table", b"\xff\xfe broken", Content_Type="multipart/form-data; boundary=b")[0],
        lambda: page.upload("x.exe", b"MZ")[0],
    ]
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(lambda kind: kind(), kinds * 10))
    assert found == [200, 403, 404, 400, 400] * 10


@pytest.mark.parametrize(
    "body", [b"", b"\0" * 100, b"--b", b"--b\r\nContent-Disposition: form-data\r\n\r\n", b"--b\r\n\r\n\r\n--b--"]
)
def test_broken_forms_end_in_one_line(page, body):
    answer = page.ask("/table", body, Content_Type="multipart/form-data; boundary=b")
    assert answer[0] == 400
    assert "Traceback" not in answer[2]


def test_other_methods_and_places_are_not_there(page):
    for method, path in (("PUT", "/"), ("DELETE", "/table"), ("GET", "/table"), ("POST", "/t/x/run"), ("TRACE", "/")):
        answer = page.ask(path, {} if method == "POST" else None, method=method, Origin=page.origin)
        assert answer[0] in (404, 405)


def test_a_signal_to_end_leaves_no_process_and_no_file(tmp_path, people, serve):
    folder = tmp_path / "own"
    folder.mkdir()
    with serve(folder, people / "people.csv") as client:
        place = "/" + client.address.split("/", 4)[4]
        assert "Say what is what" in client.settled(place)
        client.ask(f"{place}/run", {"way": "fit"})
        time.sleep(1.5)
        children = subprocess.run(
            ["pgrep", "-P", str(client.process.pid)], capture_output=True, text=True
        ).stdout.split()
        assert children
        client.process.send_signal(signal.SIGHUP)  # as when the terminal is closed; other tests end by SIGTERM
        client.process.wait(timeout=20)
        assert not [child for child in children if Path("/proc", child).exists()]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--host", "0.0.0.0"], 0, "0.0.0.0 can be reached from other machines"),
        (["--host", "::"], 0, ":: can be reached from other machines"),
        (["--host", "localhost"], 0, ""),
        (["none.csv"], 2, "none.csv does not exist"),
        (["x.exe"], 2, "x.exe is of no known kind; name it .csv"),
        (["--port", "1"], 2, "cannot be used"),
    ],
)
def test_what_is_asked_for_is_warned_of_or_refused_in_one_line(tmp_path, monkeypatch, arguments, status, said):
    (tmp_path / "x.exe").write_bytes(b"MZ")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    if arguments[0] == "--port":
        monkeypatch.setattr("socket.create_server", lambda *_, **__: (_ for _ in ()).throw(OSError(98, "in use")))
    done = CliRunner().invoke(main, ["app", "--no-browser", *arguments])
    assert done.exit_code == status
    assert said in done.stderr
    assert done.stderr.count("\n") == bool(said)
    assert done.stdout.startswith("Open http://") == (status == 0)
