"""32 threads through one directory of Claude's memory tool and one memory with mem0's verbs, while
the service and its database are killed and started again: nothing is lost, and nothing doubled."""

import threading
from concurrent.futures import ThreadPoolExecutor

from strandline import Strandline
from strandline.adapters.mem0 import Memory
from strandline.adapters.memory_files import MemoryFiles
from strandline.client.retries import Retry
from tests.strandline.adapters.conftest import Service, Users

WRITERS = 32


def test_memory_file_outage_loses_and_doubles_nothing(service: Service, users: Users) -> None:
    """Each thread makes a file of its own, adds a line to one that all edit, and a memory."""
    are_made = threading.Event()
    all_of_them = "/memories/all"
    with Strandline(service.url, service.key, retry=Retry(seconds=120)) as client:
        files = MemoryFiles(user=users.alice, agent="helper", client=client)
        files.execute({"command": "create", "path": all_of_them, "file_text": ""})
        memory = Memory(client=client)

        def write(writer: int) -> None:
            path = f"/memories/own/{writer}"
            files.execute({"command": "create", "path": path, "file_text": f"words {writer}"})
            are_made.set()
            memory.add(f"words {writer}", user_id=users.bob)
            insert = {"command": "insert", "insert_line": 0, "insert_text": f"line {writer}."}
            files.execute({**insert, "path": all_of_them})

        with ThreadPoolExecutor(WRITERS) as pool:
            writing = [pool.submit(write, writer) for writer in range(WRITERS)]
            assert are_made.wait(60)
            service.restart()
            for one in writing:
                one.result()
        listed = memory.get_all(filters={"user_id": users.bob}, top_k=100)["results"]
        texts = sorted(item["memory"] for item in listed)
        assert texts == sorted(f"words {writer}" for writer in range(WRITERS))
        view = files.execute({"command": "view", "path": all_of_them})
        lines = [line.partition("\t")[2] for line in view.split("\n")[1:-1]]
        assert sorted(lines) == sorted(f"line {writer}." for writer in range(WRITERS))
        directory = files.execute({"command": "view", "path": "/memories/own"})
        assert directory.count("/memories/own/") == WRITERS
        kinds = [event.type for event in client.get_all(user=users.alice, agent="helper")]
        assert kinds == ["statement"] * (2 + 2 * WRITERS), "a topic, a file, its edits, the others"
