"""The port of something else: an HTTP server, an SSH server, Kafka's TLS listener. Each is named.

Prints:
    HTTP: says so: True
    SSH: says so: True
    TLS: says so: True
"""

from __future__ import annotations

import http.server
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable

from kohort import AdminClient, KohortError


class Ssh(socketserver.BaseRequestHandler):
    """Greets as OpenSSH does."""

    def handle(self) -> None:
        self.request.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
        self.request.recv(1_000)


class Tls(socketserver.BaseRequestHandler):
    """Answers as OpenSSL does to a client that does not speak TLS."""

    def handle(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        incoming.write(self.request.recv(1_000))
        try:
            context.wrap_bio(incoming, outgoing, server_side=True).do_handshake()
        except ssl.SSLError:
            self.request.sendall(outgoing.read())


class Web(http.server.BaseHTTPRequestHandler):
    """Any web server."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


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
    main(*sys.argv[1:])
