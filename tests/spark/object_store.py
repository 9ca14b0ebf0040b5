"""An S3 server on loopback, in a process of its own: moto's.

deltalake keeps Python's lock while it waits for an answer, so a server in the same process could
never give one.

python -m tests.spark.object_store
"""

from __future__ import annotations

import logging
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

BUCKET = "bucket"


@contextmanager
def running() -> Iterator[dict[str, str]]:
    """Run the server; yields deltalake's storage options for it."""
    command = [sys.executable, "-m", "tests.spark.object_store"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin
    assert process.stdout
    try:
        address = f"http://127.0.0.1:{int(process.stdout.readline())}"
        create = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")
        urllib.request.urlopen(create, timeout=60).close()
        yield {
            "aws_endpoint_url": address,
            "aws_allow_http": "true",
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
        }
    finally:
        process.stdin.close()  # the server ends with it
        process.wait(30)
        process.stdout.close()


def main() -> None:
    """Serve until standard input ends."""
    import os
    import threading

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel("ERROR")
    application = DomainDispatcherApplication(create_backend_app)
    # One request at a time: a conditional put looks and writes in two steps here.
    server = make_server("127.0.0.1", 0, application, threaded=False)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
