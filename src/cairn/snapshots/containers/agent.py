"""Process 1 of a container: starts a browser, passes its DevTools messages to one client at a time, serves pages.

Runs on the container's own Python and imports the standard library alone. The client comes through a unix socket and
gets whole messages only, each ended by a zero byte; while there is none, nothing is read from the browser, so that a
container that is frozen then holds no half of a message in anyone's hands.

    agent.py SOCKET SITE USER -- BROWSER ARGUMENT…      the browser reads descriptor 3 and writes descriptor 4

Ends when the browser does, and with it the container.
"""

import ctypes
import functools
import http.server
import os
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

PORT = 8000
DOWNLOADS = Path("/tmp/files")
_SLOWEST_MS = 10_000
_LAST_CAPABILITY = 40
_CHUNK = 1 << 20
# inotify_init, inotify_init1, fanotify_init, io_uring_setup: what criu cannot save and Chromium can do without; clone3,
# whose flags no filter can read: without it clone is used
_UNKNOWN = (253, 294, 300, 425, 435)
# mount, umount2, pivot_root, chroot, fsopen, fsconfig, fsmount, fspick, open_tree, move_mount, mount_setattr, ptrace,
# process_vm_readv, process_vm_writev, pidfd_getfd, open_by_handle_at, kexec_load, kexec_file_load, init_module,
# finit_module, delete_module, bpf, userfaultfd, perf_event_open, setns, unshare, keyctl, add_key, request_key, reboot,
# swapon: what no page needs
_REFUSED = (
    165, 166, 155, 161, 430, 431, 432, 433, 428, 429, 442, 101,
    310, 311, 438, 304, 246, 320, 175,
    313, 176, 321, 323, 298, 308, 272, 250, 248, 249, 169,
    167,
)  # fmt: skip
_CLONE, _NEW_USER = 56, 0x10000000
_X86_64, _X32 = 0xC000003E, 0x40000000
_ENOSYS, _EPERM = 38, 1


class _Pages(http.server.SimpleHTTPRequestHandler):
    """The site, with what was downloaded under /files/; a file that is asked for with ?slow=MS comes after so long."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, wait = self.path.partition("?slow=")
        if wait.isdigit():
            time.sleep(min(int(wait), _SLOWEST_MS) / 1000)
            self.path = path
        super().do_GET()

    def translate_path(self, path: str) -> str:
        if path.startswith("/files/"):
            return str(DOWNLOADS / Path(path).name)
        return super().translate_path(path)

    def log_message(self, format: str, *_arguments: object) -> None:  # noqa: A002 - the base class's name
        del format


def restrict(user: int) -> None:
    """Give up every right that a page has no use for, and those system calls.

    A user of its own is better, but criu can save another user's processes only where its host has CAP_SYS_RESOURCE.
    Root without capabilities, over a read-only /proc, is what remains elsewhere.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the host's collector of dumps is outside
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
    os.setgroups([])
    if user:
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    if libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "capabilities could not be dropped")
    program = _filter()
    code = ctypes.create_string_buffer(b"".join(program))

    class Program(ctypes.Structure):
        _fields_: ClassVar = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    described = Program(len(program), ctypes.addressof(code))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(described), 0, 0):
        raise OSError(ctypes.get_errno(), "the filter of system calls was refused")


def _filter() -> list[bytes]:
    """Instructions of a filter of system calls: load, compare and jump, return; see `man 2 seccomp`."""
    unknown, refused = struct.pack("HBBI", 6, 0, 0, 0x50000 | _ENOSYS), struct.pack("HBBI", 6, 0, 0, 0x50000 | _EPERM)
    program = [
        struct.pack("HBBI", 0x20, 0, 0, 4),  # load the architecture: the others have numbers of their own
        struct.pack("HBBI", 0x15, 1, 0, _X86_64),
        refused,
        struct.pack("HBBI", 0x20, 0, 0, 0),  # load the number
        struct.pack("HBBI", 0x35, 0, 1, _X32),
        unknown,
    ]
    for numbers, answer in ((_UNKNOWN, unknown), (_REFUSED, refused)):
        for number in numbers:
            program += [struct.pack("HBBI", 0x15, 0, 1, number), answer]
    return [
        *program,
        struct.pack("HBBI", 0x15, 0, 3, _CLONE),
        struct.pack("HBBI", 0x20, 0, 0, 16),  # load the flags: whoever is root in a new namespace of users may mount
        struct.pack("HBBI", 0x45, 0, 1, _NEW_USER),
        refused,
        struct.pack("HBBI", 6, 0, 0, 0x7FFF0000),
    ]


def start(arguments: list[str]) -> tuple[subprocess.Popen[bytes], int, int]:
    """The browser, and our ends of its two pipes."""
    browser_in, to_browser = os.pipe()
    from_browser, browser_out = os.pipe()

    def wire() -> None:
        first, second = os.dup(browser_in), os.dup(browser_out)
        first, second = os.dup2(first, 60), os.dup2(second, 61)
        os.dup2(first, 3)
        os.dup2(second, 4)
        os.closerange(5, 100)

    with Path("/tmp/browser.log").open("ab", buffering=0) as log:
        browser = subprocess.Popen(
            arguments, preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
        )
    os.close(browser_in)
    os.close(browser_out)
    return browser, to_browser, from_browser


class Relay:
    """Bytes between one client after another and the browser."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.to_browser = to_browser
        self.from_browser = from_browser
        self.partial = b""  # of a message that the browser has not ended yet
        self.unfinished = b""  # of a message that the client has not ended yet

    def serve(self, client: socket.socket) -> bool:
        """Until the client has no more to say; False once the browser is gone."""
        while True:
            ready, _, _ = select.select([client, self.from_browser], [], [])
            if self.from_browser in ready and not self.forward(client):
                return False
            if client in ready:
                said = client.recv(_CHUNK)
                if not said:
                    return True
                self.send(said)

    def forward(self, client: socket.socket) -> bool:
        """Whole messages to the client; False once the browser is gone."""
        heard = os.read(self.from_browser, _CHUNK)
        whole, end, rest = (self.partial + heard).rpartition(b"\0")
        self.partial = rest
        if end:
            client.sendall(whole + end)
        return bool(heard)

    def send(self, said: bytes) -> None:
        """Whole messages to the browser."""
        whole, end, self.unfinished = (self.unfinished + said).rpartition(b"\0")
        data = memoryview(whole + end)
        while data:
            data = data[os.write(self.to_browser, data) :]


def reap(browser: subprocess.Popen[bytes]) -> None:
    """Collect orphans, which are ours as process 1; end with the browser."""
    while True:
        try:
            pid, _ = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)
        if pid == browser.pid:
            os._exit(0)


def main() -> None:
    """Serve clients, one after the other, until the browser ends."""
    path, site, user = sys.argv[1:4]
    arguments = sys.argv[sys.argv.index("--") + 1 :]
    if os.getsid(0) != os.getpid():
        os.setsid()  # criu refuses a container whose session was begun outside
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    Path(path).chmod(0o666)
    restrict(int(user))
    os.environ["HOME"] = "/tmp"
    handler = functools.partial(_Pages, directory=site)
    pages = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), handler)
    threading.Thread(target=pages.serve_forever, args=(3600,), daemon=True).start()
    browser, to_browser, from_browser = start(arguments)
    threading.Thread(target=reap, args=(browser,), daemon=True).start()
    relay = Relay(to_browser, from_browser)
    listener.listen(1)
    while True:
        client, _ = listener.accept()
        with client:
            try:
                if not relay.serve(client):
                    return
            except (ConnectionError, BrokenPipeError):
                pass


if __name__ == "__main__":
    main()
