"""An object store on the switch that joins hosts: an S3 server that they alone reach, over the network.

As a program: serves at HOST PORT, with a new bucket, until its standard input ends; prints one line of JSON with the keys of
all objects at once, and again for each line that it reads.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hosts import NETWORK, Hosts, _ip

HOST, PORT, BUCKET, REGION = f"{NETWORK}.254", 9000, "bucket", "us-east-1"


@dataclass
class ObjectStore:
    """`environment` leads a command to the store; credentials are needed by each host, and are not in it."""

    environment: dict[str, str]
    process: subprocess.Popen

    def keys(self) -> list[str]:
        """The keys of all objects, sorted."""
        print(file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


@contextmanager
def object_store(made: Hosts) -> Iterator[ObjectStore]:
    """A store for the length of the block."""
    _ip("-n", made.switch, "address", "add", f"{HOST}/24", "dev", "bridge")
    command = ["ip", "netns", "exec", made.switch, sys.executable, __file__, HOST, str(PORT)]
    process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    places = {"RANKBENCH_RESULTS": f"s3://{BUCKET}/results", "RANKBENCH_DATA": f"s3://{BUCKET}/data"}
    try:
        assert json.loads(process.stdout.readline()) == [], "the store did not start"
        yield ObjectStore(places | {"AWS_ENDPOINT_URL": f"http://{HOST}:{PORT}", "AWS_REGION": REGION}, process)
    finally:
        process.stdin.close()
        process.wait(30)


def _serve(host: str, port: int) -> None:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    server = ThreadedMotoServer(ip_address=host, port=port, verbose=False)
    server.start()
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    backend.create_bucket(BUCKET, REGION)
    print("[]", flush=True)
    for _ in sys.stdin:
        print(json.dumps(sorted(backend.buckets[BUCKET].keys)), flush=True)
    server.stop()


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
