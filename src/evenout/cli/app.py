"""``evenout app``: a local page that composes commands and runs them."""

import ipaddress
from pathlib import Path

import click

from evenout.cli.messages import plain_messages
from evenout.cli.options import NonEmptyPath


@click.command()
@click.argument("file", type=NonEmptyPath(), required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="NUMBER", help="[default: any that is free]")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--no-browser", is_flag=True, help="Print the address alone.")
@click.option(
    "--max-size", type=click.IntRange(1), default=1000, show_default=True, metavar="MB", help="Largest file to take in."
)
def app(file: Path | None, port: int, host: str, no_browser: bool, max_size: int) -> None:
    """Open a page on this machine, with FILE (.csv, .csv.gz or .parquet) in it if one is named.

    From a table to an audit, a fair score, a repaired score or scores of new rows by clicks. The page shows the command
    that it runs, and what it writes is what that command writes. It needs the extra app.

    Nothing leaves the machine: the page listens on 127.0.0.1, its address holds a secret, and its files are in a
    private folder that is deleted when it ends (Ctrl-C).
    """
    with plain_messages():
        try:
            from evenout.app.server import serve
        except ImportError as missing:
            raise ImportError(f"app needs the extra app: pip install 'evenout[app]' ({missing})") from None
        if not _is_loopback(host):
            click.echo(
                f"Note: {host} can be reached from other machines, without encryption; whoever has the address with "
                "its secret can read what you bring. Leave --host out unless you know that network",
                err=True,
            )
        serve(file, host=host, port=port, browser=not no_browser, most_bytes=max_size * 10**6, tell=click.echo)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
