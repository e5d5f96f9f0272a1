"""Gradient steps by several workers: loss of each step, time per epoch, and bytes per step, against one worker.

    python benchmarks/workers.py amazon-beauty sl --workers 1 2 4 objective=catalogue tau=0.15

Every number of workers makes the same steps. The bytes that a worker sends are read from the sockets of its process (Linux),
and compared with the formula: 2 (W − 1)/W times the gradient of the items that a step touches, or with model=lightgcn and L
layers (2 L + 3) (W − 1)/W times the vectors of all users and items.
"""

import argparse
import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

SENT = 200  # offset of tcpi_bytes_sent in struct tcp_info (linux/tcp.h)


def bytes_sent(address: str) -> int:
    """By the TCP sockets of this process whose both ends are at `address`, without those of Ray."""
    total = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError, ValueError), socket.socket(fileno=os.dup(int(path.name))) as each:
            if each.type != socket.SOCK_STREAM or each.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            total += int.from_bytes(info[SENT : SENT + 8], "little")
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("method")
    parser.add_argument("params", nargs="*")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_intermixed_args()

    from rankbench.cluster.session import session
    from rankbench.core.config import assignments
    from rankbench.core.environment import Environment
    from rankbench.data.cards import load_card
    from rankbench.data.prepare import prepare
    from rankbench.experiment.job import configure

    environment = Environment.from_env()
    X = prepare(load_card(given.dataset, environment), environment).split.train
    params = configure(given.method, assignments(given.params)).params
    print(f"{given.dataset}: {X.shape[0]:,} users, {X.shape[1]:,} items, {X.nnz:,} interactions; load {os.getloadavg()[0]:.1f}")
    first = None
    with session(cpus=max(given.workers)):
        from rankbench.cluster.train_crew import TrainCrew
        from rankbench.training.crewed_trainer import Member

        class Timed(Member):
            def epoch(self, number: int) -> dict:
                sizes, losses = [], []
                read, step = type(self.learner).rows, type(self)._step

                def rows(users, items, *more):
                    sizes.append(X_ITEMS if items is None else len(items))
                    return read(self.learner, users, items, *more)

                def spied(batch, factor):
                    losses.append(step(self, batch, factor))
                    return losses[-1]

                self.learner.rows, self._step = rows, spied
                self.ready()  # all workers begin together
                wire, counted, began, busy = bytes_sent(""), self.exchange.sent, time.perf_counter(), time.process_time()
                super().epoch(number, 1.0)
                seconds, busy = time.perf_counter() - began, time.process_time() - busy
                wire, counted = bytes_sent("") - wire, self.exchange.sent - counted
                import torch

                total = torch.stack(losses)
                self.exchange.sum([total])
                return {
                    "losses": total.tolist(),
                    "seconds": seconds,
                    "busy": busy,
                    "wire": wire,
                    "counted": counted,
                    "rows": sum(sizes),
                }

        X_ITEMS = X.shape[1]
        for workers in given.workers:
            team = TrainCrew(workers).start(Timed, X, params, given.method, 0, "float32", "cpu")
            epochs = [team.call("epoch", number) for number in range(1, given.epochs + 1)]
            team.close()
            losses = np.concatenate([each["losses"] for each in epochs])
            first = losses if first is None else first
            n_steps, last = len(epochs[0]["losses"]), epochs[1:] or epochs
            width = (workers - 1) / workers * params.training.embedding_dim * 4
            rows = sum(each["rows"] for each in last) / len(last) / n_steps
            graph = params.training.model == "lightgcn"
            formula = (2 * params.encoder.n_layers + 3) * width * sum(X.shape) if graph else 2 * width * rows
            print(
                json.dumps(
                    {
                        "workers": workers,
                        "steps": len(losses),
                        "largest_difference": float(np.max(np.abs(losses - first) / np.abs(first))),
                        "epoch_seconds": round(min(each["seconds"] for each in last), 3),
                        "processor_seconds": round(min(each["busy"] for each in last), 3),
                        "mb_per_step_by_sockets": round(sum(each["wire"] for each in last) / len(last) / n_steps / 1e6, 4),
                        "mb_per_step_counted": round(sum(each["counted"] for each in last) / len(last) / n_steps / 1e6, 4),
                        "mb_per_step_by_formula": round(formula / 1e6, 4),
                        "load": round(os.getloadavg()[0], 1),
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
