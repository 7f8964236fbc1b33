"""Network namespaces with nothing but a loopback interface, each known by a descriptor alone."""

import ctypes
import fcntl
import os
import socket
import struct
import threading

from cairn.errors import SetupError

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_SET_FLAGS = 0x8914  # SIOCSIFFLAGS
_UP = 0x1  # IFF_UP


def new_network() -> int:
    """A descriptor of a new namespace, which ends with its last descriptor and process."""
    found: list[int | OSError] = []

    def make() -> None:  # a thread has a namespace of its own, and this one ends at once
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(_NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "unshare")  # noqa: TRY301 - for the caller's thread
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP))
            found.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=make, name="network")
    thread.start()
    thread.join()
    result = found[0]
    if isinstance(result, OSError):
        raise SetupError(f"no network namespace could be made ({result.strerror}): containers need root") from result
    return result
