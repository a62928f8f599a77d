"""What a program does with the client and the command line, on any Python that they are for. It is
run with nothing but the installed wheel: client_program.py ADDRESS KEY FOLDER."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from strandline import AsyncStrandline, Strandline
from strandline.client import answers, errors
from strandline.commands.main import main


def use_client(url: str, key: str, folder: Path) -> None:
    """Append, read back, state, upload, export; and what is refused."""
    who: dict[str, Any] = {"user": "ada", "agent": "helper"}
    with Strandline(url, key) as client:
        moment = datetime(2026, 5, 8, 13, 56, tzinfo=timezone.utc)
        receipt = client.add("The buoy goes out on Friday.", occurred_at=moment, **who)
        event = client.get(receipt.event_id, user="ada")
        assert isinstance(event, answers.EventOut)
        assert event.occurred_at == moment
        client.add("It is red.", occurred_at="2026-05-08T13:56:00.5Z", **who)
        assert client.recall("When does the buoy go out?", user="ada").hits
        with client.session("dock", **who) as session:
            session.add_turn("Is the Petrel free?", "From nine to three.")
            assert "Petrel" in session.context("the Petrel").text
        assert len([*client.get_all(user="ada", page_size=2)]) == 4
        assert len([*client.events(receipt.scope_id, user="ada", page_size=1)]) == 4
        node = {"type": "entity", "name": "Nils Berg", "kind": "person"}
        client.graph.add([node], **who)
        assert [n.name for n in client.graph.nodes(user="ada")] == ["Nils Berg"]
        client.graph.export_file(folder / "graph.jsonl", user="ada")
        note = folder / "note.txt"
        note.write_text("Ines keeps the keys.")
        blob = client.upload(note, **who).blob
        assert blob is not None
        assert client.block(blob.cid, user="ada") == note.read_bytes()
        with client.writer() as writer:
            for number in range(20):
                writer.add(f"Reading {number}.", **who)
        with contextlib.suppress(errors.InvalidFieldError):
            client.recall("the buoy")
            raise AssertionError("a read without participants was answered")


async def use_async_client(url: str, key: str) -> None:
    """The same verbs, awaited."""
    async with AsyncStrandline(url, key) as client:
        await client.add("The crane leans.", user="bo")
        assert (await client.recall("crane", user="bo")).hits
        async with client.writer() as writer:
            for number in range(20):
                await writer.add(f"Crane {number}.", user="bo")
        async with client.session("yard", user="bo") as session:
            await session.add("Hello.")
        assert len([event async for event in client.get_all(user="bo")]) == 22


def run(*arguments: str) -> str:
    """What a command prints; it succeeds."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main(arguments)
    assert code == 0, (arguments, code)
    return output.getvalue()


def use_commands(url: str, key: str, folder: Path) -> None:
    """Store, ask, export, import, check, and serve MCP over lines."""
    service = ("--url", url, "--key", key)
    run(*service, "add", "The tide is low.", "--user", "cleo")
    assert "The tide is low." in run(*service, "recall", "tide", "--user", "cleo")
    assert json.loads(run(*service, "--json", "recall", "tide", "--user", "cleo"))["hits"]
    assert "<memory-" in run(*service, "context", "tide", "--user", "cleo")
    file = folder / "out.jsonl"
    run(*service, "export", "--user", "cleo", "--out", str(file))
    talk = {"participants": ["user:cleo"], "role": "user", "content": "It rose at six."}
    file.write_text(
        json.dumps({**talk, "source_event_key": "k", "occurred_at": "2026-05-08T06:00Z"})
    )
    run(*service, "import", str(file))
    assert "6 of 6 checks passed" in run(*service, "verify", "--user", "cleo")
    assert run(*service, "status")
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    command = ["-m", "strandline.commands.main", *service, "mcp", "--user", "cleo"]
    lines = subprocess.run(
        [sys.executable, "-I", *command],
        input=json.dumps(request) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert "memory_recall" in {tool["name"] for tool in json.loads(lines)["result"]["tools"]}


if __name__ == "__main__":
    address, own_key, place = sys.argv[1:]
    use_client(address, own_key, Path(place))
    asyncio.run(use_async_client(address, own_key))
    use_commands(address, own_key, Path(place))
    print("all of it works")
