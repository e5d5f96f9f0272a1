"""From raw files of the size of the Netflix Prize and of simplewiki to metrics, as a user runs it: seconds and memory a step.

    python benchmarks/scale.py netflix FOLDER     makes the dump (benchmarks/netflix_dump.py), prepares it, fits and measures
    python benchmarks/scale.py simplewiki FOLDER  the same of benchmarks/simplewiki_dump.py
    ... --limit 12                                fails when a step holds more than 12 GB at once
    ... ease "rg2 embedding_dim=128"              these methods, in place of the usual ones

Every step is a process of its own, whose peak the system counts. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
METHODS = {
    "msd": ("ease lam=500 --memory 4GB", "rg2 iterations=8"),
    "netflix": ("ease lam=500", "deql-l2 p=0.3 lam_prime=500 b=0.5", "ials iterations=8", "rg2 iterations=8"),
    "simplewiki": ("rg2 iterations=10", "rgx-paper iterations=10"),
}
SHOWN = {"msd": ("recall@20", "ndcg@100"), "netflix": ("recall@20", "ndcg@100"), "simplewiki": ("map@10", "mrr@10")}
METRICS = {
    "msd": "recall,ndcg --cutoffs 20,50,100",
    "netflix": "recall,ndcg --cutoffs 20,50,100",
    "simplewiki": "map,mrr,ndcg --cutoffs 10",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=METHODS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--limit", type=float, default=float("inf"), help="GB")
    given = parser.parse_intermixed_args()
    folder, name = given.folder.resolve(), given.dataset
    raw = folder / "mirror" / name
    environment = os.environ | {
        "RANKBENCH_MIRROR": str(folder / "mirror"),
        "RANKBENCH_DATA": str(folder / "data"),
        "RANKBENCH_RESULTS": str(folder / "results"),
        "RANKBENCH_OFFLINE": "1",
    }
    if not raw.is_dir():
        dump = [sys.executable, str(HERE / f"{name}_dump.py"), str(raw), "--scale", str(given.scale)]
        subprocess.run(dump, check=True)
    print("| step | seconds | of which | peak GB | result |\n|---|---|---|---|---|")
    seconds, peak, said = step(["data", "fetch", name, "--json"], environment)
    print(f"| raw files to prepared data | {seconds:.0f} | | {peak:.1f} | |", flush=True)
    peaks = [peak]
    for words in given.methods or METHODS[name]:
        command = ["run", name, *words.split(), "--metrics", *METRICS[name].split(), "--curve", "0", "--no-track", "--json"]
        seconds, peak, said = step(command, environment)
        peaks.append(peak)
        phases = ", ".join(f"{phase} {value:.1f}" for phase, value in said["seconds"].items())
        found = ", ".join(f"{metric} {said['metrics'][metric]['mean']:.4f}" for metric in SHOWN[name])
        print(
            f"| `{words}` | {seconds:.0f} | {phases} | {peak:.1f} | {found}, {said['users']['measured']:,} users |", flush=True
        )
    counts = said["dataset"]["counts"]
    print(f"\n{counts['users']:,} users, {counts['items']:,} items, {counts['interactions']:,} interactions")
    if max(peaks) > given.limit:
        sys.exit(f"a step held {max(peaks):.1f} GB, more than {given.limit} GB")


def step(words: list[str], environment: dict[str, str]) -> tuple[float, float, dict]:
    """Seconds, the most memory the process held at once in GB, and what it printed."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "rankbench", *words], env=environment, stdout=subprocess.PIPE, text=True)
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"rankbench {' '.join(words)} ended with {process.returncode}")
    return time.perf_counter() - began, used.ru_maxrss * 1024 / 1e9, json.loads(printed)


if __name__ == "__main__":
    main()
