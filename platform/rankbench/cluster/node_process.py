"""The process that starts the Ray node of a local cluster and runs it until standard input ends; see `local_node`.

Run as `python -m rankbench.cluster.node_process OPTIONS`, where OPTIONS is a JSON object: `patience` in seconds, and arguments
of `ray.init`. It prints the address of the node once a driver can join it.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys

from rankbench.cluster.ray_internals import wait_for_slow_nodes, without_monitors


def main() -> None:
    options = json.loads(sys.argv[1])
    patience = options.pop("patience")
    # Ray's C++ code may hang while it holds Python's lock. This timer then ends the process even if its owner no longer exists.
    faulthandler.dump_traceback_later(2 * patience, exit=True)
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever Ray prints goes to the log
    import ray

    wait_for_slow_nodes(patience)
    without_monitors()
    # This process also joins as a driver, because a node is usable only if a driver can join it.
    context = ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **options)
    faulthandler.cancel_dump_traceback_later()
    os.write(answer, context.address_info["gcs_address"].encode())
    os.close(answer)
    sys.stdin.read()
    # Reached when the owner was killed; otherwise the owner ends this process. Ray's own shutdown may hang here, and Ray ends
    # this process when its node ends, so a program without Ray cleans up instead.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "rankbench.cluster.private_folder"])


if __name__ == "__main__":
    main()
