"""The address the server listens on."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address

from megalabel.errors import SettingError

__all__ = ["bind", "is_loopback"]


def bind(host: str, port: int) -> socket.socket:
    """Take a port of an address, so that another server in its place is known before a model is read.

    Connections are refused until :func:`~megalabel.serve.run_server.run_server`. Port 0 is any free one.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingError(
            f"cannot listen on {host} port {port}: {reason.lower()}", remedy="choose another --port, 0 is any free one"
        ) from error
    return found


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host.lower() == "localhost"
