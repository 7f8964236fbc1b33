"""Connections over the loopback, saved with data that was not sent yet, go on in every copy, and lose nothing."""

from collections.abc import Iterator

import pytest

from cairn.snapshot_ports import Container, ContainerYard
from snapshots.confined import inside, podman_yard_of, yard_of

pytestmark = [pytest.mark.enable_socket, pytest.mark.timeout(240)]
ASKED = 10_000

# both ends of each connection; a cork holds what was written last back, whenever the container is saved
TALK = """
import socket, struct, sys, threading, time
server = socket.create_server(("127.0.0.1", 0))
pairs = []
for number in range(8):
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    pairs.append((client, accepted) if number % 2 else (accepted, client))
sys.heard = [0] * len(pairs)
sys.wrong = []
def talk():
    try:
        for count in range(10**9):
            for number, (sender, receiver) in enumerate(pairs):
                sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
                if count and struct.unpack("I", receiver.recv(4, socket.MSG_WAITALL)) != (count - 1,):
                    raise ValueError("out of order")
                sys.heard[number] = count
                sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
                sender.sendall(struct.pack("I", count))
            time.sleep(0.02)
    except Exception as error:
        sys.wrong.append(f"{type(error).__name__}: {error}")
sys.pairs = pairs
threading.Thread(target=talk, daemon=True).start()
"""


@pytest.fixture(params=[yard_of, podman_yard_of], ids=["criu", "podman"])
def yard(request: pytest.FixtureRequest) -> Iterator[ContainerYard]:
    with request.param() as made:
        yield made


async def heard(container: Container) -> list[int]:
    """How often each connection has carried something. Fails where one of them broke."""
    said = await inside(container, "import sys; said = [sys.wrong, sys.heard]")
    assert isinstance(said, list)
    wrong, counts = said
    assert wrong == []
    return counts


async def goes_on(container: Container) -> bool:
    before = await heard(container)
    for _ in range(ASKED):  # each takes a moment, and fails after a minute
        if all(now > then + 3 for now, then in zip(await heard(container), before, strict=True)):
            return True
    return False


async def test_what_was_not_sent_yet_arrives_in_every_copy(yard: ContainerYard) -> None:
    first = await yard.started()
    await inside(first, TALK)
    assert await goes_on(first)
    await first.freeze(yard.place("image"))
    assert await goes_on(first)
    for number in range(4):
        copy = await yard.thawed(yard.place("image"))
        assert await goes_on(copy)
        await copy.freeze(yard.place(f"again {number}"))
        await copy.end()
        again = await yard.thawed(yard.place(f"again {number}"))
        assert await goes_on(again)
        await again.end()
    await first.end()
