"""The port of another service: an HTTP server, an SSH server, Kafka's TLS listener. Each is named.

Prints:
    HTTP: says so: True
    SSH: says so: True
    TLS: says so: True
"""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable

from kohort import AdminClient, KohortError
from tests.usage.around import start


class Ssh(socketserver.BaseRequestHandler):
    """Greets like OpenSSH."""

    def handle(self) -> None:
        self.request.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
        self.request.recv(1_000)


class Tls(socketserver.BaseRequestHandler):
    """Answers a client without TLS like Java: with a fatal alert."""

    def handle(self) -> None:
        self.request.recv(1_000)
        self.request.sendall(bytes([0x15, 3, 3, 0, 2, 2, 80]))


class Web(socketserver.BaseRequestHandler):
    """Answers like nginx when a request is not HTTP."""

    def handle(self) -> None:
        self.request.recv(1_000)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def main(bootstrap: str) -> None:
    kinds: dict[str, Callable[..., socketserver.BaseRequestHandler]] = {
        "HTTP": Web,
        "SSH": Ssh,
        "TLS": Tls,
    }
    for name, handler in kinds.items():
        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"127.0.0.1:{server.server_address[1]}"
            with AdminClient(bootstrap_servers=address, default_api_timeout_ms=3_000) as admin:
                try:
                    admin.list_topics()
                except KohortError as error:
                    print(f"{name}: says so: {name in str(error)}")
            server.shutdown()


if __name__ == "__main__":
    start(main)
