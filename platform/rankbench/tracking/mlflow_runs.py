"""Write messages to MLflow as runs. What an earlier delivery has sent is recognised, and nothing is sent twice."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rankbench.core.errors import DataError
from rankbench.core.markdown import without_tags
from rankbench.tracking.mlflow_internals import KIND, TRAINING
from rankbench.tracking.record import RunRecord, read_record
from rankbench.tracking.run_fields import dataset_inputs, metric_key, record_metrics, record_params, record_tags, run_name
from rankbench.tracking.saved_views import view_links
from rankbench.tracking.spool import (
    ArmMessage,
    CurveMessage,
    EntryMessage,
    ExperimentMessage,
    Message,
    Placed,
    RunMessage,
    Shown,
    SweepEnd,
    SweepStart,
    milliseconds,
)

PARENT = "mlflow.parentRunId"
SWEEP, OF_SWEEP = "rankbench.sweep", "rankbench.of_sweep"  # tags of the run of a sweep, and of the runs that it made
NOTE = "mlflow.note.content"  # the description of an experiment or run, in Markdown
ENTRY = "rankbench.entry"  # what an attempt at an entry of a leaderboard is about; each attempt has an id of its own
BEGUN = "rankbench.begun"  # which start of a sweep its run shows
LONGEST_NOTE = 8000  # characters that MLflow keeps of it
RUN = "rankbench.run"  # the tag with the id of what was measured
CONTENT = "rankbench.content"  # the tag of an arm with a hash of what was sent of it
MEASURED = "rankbench.started_at"  # the tag with the time at which its record began
ORIGIN = "rankbench.origin"  # the tag with the results that a run is of; runs of version 0.2 have none
LIVE = "rankbench.live"  # the tag of a run whose fit has no record yet: it runs, or was interrupted
FAILED, KILLED = "FAILED", "KILLED"
POINTS = 1000  # the most that MLflow takes in a request
STATUS = {"finished": "FINISHED", "stopped": "KILLED"}  # status of a record → of a run; any other is FAILED


class MlflowRuns:
    """Writes messages to the store of `client`. Records and reports are read from the results folder `root`.

    `artifacts`: folder for the files of new experiments; None if the server chooses it.
    """

    def __init__(self, client: Any, root: Path, artifacts: Path | None):
        self.client, self.root, self.artifacts = client, root, artifacts
        self._origin = ""  # of the message that is taken
        self._experiments: dict[str, str] = {}
        self._parents: dict[str, str | None] = {}  # runs that users chose → their experiment, None if there is no such run
        self._sweeps: dict[tuple[str, str], Any] = {}
        self._live: dict[tuple[str, str, int], str] = {}  # experiment, id and start of a fit that runs → its run

    def take(self, message: Message) -> None:
        """Write the message to the store. Raises DataError if its record is missing or damaged, and errors of MLflow."""
        self._origin = message.origin
        match message:
            case RunMessage():
                folder = self._inside(message.record)
                self._run(message, read_record(folder), folder)
            case SweepStart():
                self._start(message)
            case SweepEnd():
                self._end(message)
            case EntryMessage():
                self._entry(message)
            case ArmMessage():
                self._arm(message)
            case CurveMessage():
                self._points(message)
            case ExperimentMessage():
                self._describe(message)

    def _describe(self, message: ExperimentMessage) -> None:
        experiment, _ = self.place(message)
        note = f"{message.description}\n\n{view_links(experiment, message.tags)}"
        there = self.client.get_experiment(experiment).tags
        for key, value in (message.tags | {NOTE: note}).items():
            if key not in there:
                self.client.set_experiment_tag(experiment, key, value)

    def _points(self, message: CurveMessage) -> None:
        """Log points of a fit that runs. A run shows one attempt at a fit: an earlier one, which was interrupted or lost its
        worker, is deleted, because its points may come again at other times.
        """
        experiment, chosen = self.place(message)
        key = experiment, message.id, message.started
        if key not in self._live:
            sweep, parent = self._above(message, message.stage, chosen)
            runs = self._found(experiment, message.id, message.sweep, sweep, parent)
            live, over = _parted(runs)
            if any(_begun(run) >= message.started for run in over) or any(_begun(run) > message.started for run in live):
                return  # it is over, or a later attempt runs
            run = self._only(run for run in live if _begun(run) == message.started)
            if run is None and message.ended:
                return
            self._delete(each for each in live if _begun(each) < message.started)
            self._delete_attempts(experiment, message)
            if run is None:
                own = {RUN: message.id, LIVE: "true"} | ({OF_SWEEP: message.sweep} if message.sweep else {})
                run = self._new(experiment, parent, message.started, message.name, message.tags | own)
                self.log(run.info.run_id, {}, message.params, message.started)
            self._live[key] = run.info.run_id
        self._log_curve(self._live[key], message.rows, message.started)
        if message.ended:
            run = self.client.get_run(self._live.pop(key))
            # The message of a process that was killed was written when the fit began.
            last = message.started + int(1000 * run.data.metrics.get(metric_key("curve", "seconds"), 0))
            if message.reason:
                self.client.set_tag(run.info.run_id, "rankbench.error", message.reason[:LONGEST_NOTE])
            self.client.set_terminated(run.info.run_id, FAILED if message.reason else KILLED, end_time=max(last, message.time))

    def _entry(self, message: EntryMessage) -> None:
        experiment, parent = self.place(message)
        run = self._only(self._tagged(experiment, RUN, message.id))
        ended, status, error = _end_of(message)
        if run is not None and run.info.status == status:
            return
        tags = message.tags | {RUN: message.id} | error
        rows = message.rows
        if run is None:
            run = self._new(experiment, parent, message.started, message.name, tags)
        elif LIVE in run.data.tags:
            rows = self._missing(run, rows)
            self._complete(run, message.name, tags)
        self._delete_attempts(experiment, message)
        self.log(run.info.run_id, message.metrics, message.params, ended)
        self._log_curve(run.info.run_id, rows, message.started)
        self.client.set_terminated(run.info.run_id, status, end_time=ended)

    def _delete_attempts(self, experiment: str, message: Shown) -> None:
        """Delete the runs of earlier attempts at an entry of a leaderboard, which lost their worker or were interrupted."""
        if entry := message.tags.get(ENTRY):
            live, _ = _parted(self._tagged(experiment, ENTRY, entry))
            earlier = [each for each in live if _begun(each) < message.started]
            self._delete(earlier)
            gone = {each.info.run_id for each in earlier}  # of which a last message may still come
            self._live = {key: run_id for key, run_id in self._live.items() if run_id not in gone}

    def _arm(self, message: ArmMessage) -> None:
        """Write the run of an arm, and make those of its seeds its children. What was sent of it before is deleted: a resumed
        sweep may have other means, and MLflow would show both.
        """
        id = message.id.replace("'", "’")  # an arm's label may have one, which no value of MLflow's filters can
        content = hashlib.sha256(json.dumps(asdict(replace(message, time=0)), sort_keys=True).encode()).hexdigest()[:16]
        experiment, parent = self.place(message)
        sent = self._tagged(experiment, RUN, id)
        run = self._only(each for each in sent if each.data.tags.get(CONTENT) == content)
        ended, status, error = _end_of(message)
        if run is not None and run.info.status == status:
            return
        if run is None:
            own = {RUN: id, CONTENT: content, OF_SWEEP: message.sweep} | error
            run = self._new(experiment, parent, message.started, message.name, message.tags | own)
        run_id = run.info.run_id
        self.log(run_id, message.metrics, message.params, ended)
        self._log_curve(run_id, message.curve, message.started)
        for record in message.seeds:
            for seed in self._tagged(experiment, RUN, record):
                if seed.data.tags.get(OF_SWEEP) == message.sweep:
                    self.client.set_tag(seed.info.run_id, PARENT, run_id)
        self._delete(earlier for earlier in sent if earlier.data.tags.get(CONTENT) != content)
        self.client.set_terminated(run_id, status, end_time=ended)

    def _run(self, message: RunMessage, record: RunRecord, folder: Path) -> None:
        experiment, chosen = self.place(message)
        sweep, parent = self._above(message, record.stage, chosen)
        # The time of the run, not of its delivery, so that a metric sent twice is the same metric.
        begun = milliseconds(record.started_at) if record.started_at else message.time
        curve = record.curve[-1]["seconds"] if record.curve else 0
        spent = int(1000 * (sum(record.seconds.values()) or curve))
        # The record of a fit that failed or was stopped is made at its end.
        started, ended = (begun, begun + spent) if record.finished else (begun - spent, begun)
        status = STATUS.get(record.status, FAILED)
        live, over = _parted(self._found(experiment, record.id, message.sweep, sweep, parent))
        run = self._only(over)
        # A record of version 0.1 may not say when it began; then another status tells an earlier one.
        if run and (_begun(run) != begun if record.started_at else run.info.status not in (status, "RUNNING")):
            self._delete([run])  # of an earlier record; the time at which a run began cannot be changed
            run = None
        if run is not None and run.info.status == status:
            self._delete(live)
            return
        # A finished fit has all points in its record; of another one those stay that have arrived.
        own = [each for each in live if not record.finished or _begun(each) == begun][-1:]
        self._delete([each for each in live if each not in own])
        tags = record_tags(record, folder) | message.tags | ({OF_SWEEP: message.sweep} if message.sweep else {})
        name, rows = message.name or run_name(record, record.params), record.curve
        if own:
            self._delete([run] if run is not None else [])
            (run,) = own
            ended = ended if record.finished else message.time
            rows = self._missing(run, rows)
            self._complete(run, name, tags)
        elif run is None:
            run = self._new(experiment, parent, started, name, tags)
        started = started if record.finished else run.info.start_time
        run_id = run.info.run_id
        self.log(run_id, record_metrics(record, message.first), record_params(record, message.params), ended)
        self._log_curve(run_id, rows, started)
        if inputs := dataset_inputs(record):
            self.client.log_inputs(run_id, datasets=inputs)
        for path in sorted(folder.glob("*")):
            # A search has many runs, so their per-user metrics are not sent.
            wanted = path.suffix == ".json" or record.stage != "search"
            if wanted and path.is_file() and not path.is_symlink():  # a link may lead to a file that is no result
                self.client.log_artifact(run_id, str(path))
        self.client.set_terminated(run_id, status, end_time=ended)
        # A slow server may have carried out a request after its timeout: `_only` deletes such duplicates.
        self._only(self._found(experiment, record.id, message.sweep, sweep, parent))

    def _above(self, message: RunMessage | CurveMessage, stage: str, chosen: str | None) -> tuple[str | None, str | None]:
        """Return the run of the sweep of a message, and the parent of its own run."""
        sweep = self._sweep(message).info.run_id if message.sweep else None
        # Final runs lie beside each other until the sweep ends, because MLflow's table and charts leave out the children of a
        # collapsed parent.
        return sweep, chosen if stage == "final" else sweep or chosen

    def _new(self, experiment: str, parent: str | None, started: int, name: str, tags: dict[str, str]) -> Any:
        own = ({PARENT: parent} if parent else {}) | ({ORIGIN: self._origin} if self._origin else {})
        return self.client.create_run(experiment, start_time=started, run_name=name, tags=tags | own)

    def _complete(self, run: Any, name: str, tags: dict[str, str]) -> None:
        """Give a run that was made before its fit ended what is known at the end."""
        from mlflow.entities import RunTag

        run_id = run.info.run_id
        if name != run.info.run_name:
            self.client.update_run(run_id, name=name)
        self.client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])
        for key in ({LIVE, "rankbench.error"} - set(tags)) & set(run.data.tags):
            self.client.delete_tag(run_id, key)

    def _missing(self, run: Any, rows: list[Any]) -> list[Any]:
        """Return the rows of a curve that have not arrived, and the last one that has: its metric on valid may come later."""
        there = {point.step for point in self.client.get_metric_history(run.info.run_id, metric_key("curve", "seconds"))}
        there -= {max(there, default=0)}
        return [row for row in rows if row["iteration"] not in there]

    def _delete(self, runs: Iterable[Any]) -> None:
        for run in runs:
            self.client.delete_run(run.info.run_id)

    def _log_curve(self, run_id: str, rows: Iterable[Mapping[str, float]], started: int) -> None:
        """Log one point per iteration. Its training seconds, without evaluation, are a metric, and its time after the start."""
        from mlflow.entities import Metric

        batch: list[Metric] = []
        for row in rows:
            at, step = started + int(1000 * row["seconds"]), int(row["iteration"])
            points = [
                Metric(metric_key("curve", name), value, at, step)
                for name, value in row.items()
                if name != "iteration" and math.isfinite(value)
            ]
            if len(batch) + len(points) > POINTS:  # rows stay whole
                self.client.log_batch(run_id, metrics=batch)
                batch = []
            batch += points
        if batch:
            self.client.log_batch(run_id, metrics=batch)

    def _start(self, message: SweepStart) -> None:
        from mlflow.entities import RunTag

        run = self._sweep(message, message.tags, message.name)
        self.client.update_run(run.info.run_id, status="RUNNING")
        # A start after the first one may have other tags, as of an interrupted sweep that found more data.
        tags = message.tags | ({BEGUN: message.begun} if message.begun else {})
        self.client.log_batch(run.info.run_id, tags=[RunTag(key, value) for key, value in tags.items()])
        about = dict(message.experiment_tags)
        if question := message.tags.get("rankbench.question"):
            # The list of experiments shows the question beside the name, and the page of the experiment also the links.
            about[NOTE] = f"{without_tags(question)}\n\n{view_links(run.info.experiment_id, about)}".strip()
        for key, value in about.items():
            self.client.set_experiment_tag(run.info.experiment_id, key, value)
        if not run.data.params:
            self.log(run.info.run_id, {}, message.params, message.time)

    def _end(self, message: SweepEnd) -> None:
        run_id = self._sweep(message).info.run_id
        if message.begun and self.client.get_run(run_id).data.tags.get(BEGUN, message.begun) != message.begun:
            return  # another process has started it again since
        if message.note:
            self.client.set_tag(run_id, NOTE, _fitting(message.note))
        for path in map(self._inside, message.files):
            if path.is_file() and not path.is_symlink():
                self.client.log_artifact(run_id, str(path), "report")
        status = KILLED if message.interrupted else "FINISHED" if message.ok else FAILED
        self.client.set_terminated(run_id, status, end_time=message.time)

    def _inside(self, name: str) -> Path:
        """The path of `name` in the results folder. Raises DataError if it leaves it: a results folder may be another
        person's, and its messages must not send other files of this machine.
        """
        path = Path(os.path.normpath(self.root / name))
        if not path.is_relative_to(os.path.normpath(self.root)):
            raise DataError(f"{name}: not in the results folder {self.root}")
        return path

    def _sweep(self, message: Message, tags: dict[str, str] | None = None, name: str = "") -> Any:
        """Return the parent run of a sweep, created if the message of its start was lost."""
        experiment, parent = self.place(message)
        key = (experiment, message.sweep)
        if key not in self._sweeps:
            run = self._only(self._tagged(experiment, SWEEP, message.sweep))
            own = (tags or {}) | {SWEEP: message.sweep}
            self._sweeps[key] = run or self._new(experiment, parent, message.time, name or message.sweep, own)
        return self._sweeps[key]

    def place(self, message: Placed) -> tuple[str, str | None]:
        """Return the ids of the experiment of a message's run and of the parent that the user chose for it, if it exists."""
        from mlflow.exceptions import MlflowException

        if message.parent is not None and message.parent not in self._parents:
            try:
                self._parents[message.parent] = self.client.get_run(message.parent).info.experiment_id
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                # A run of another store, or none. The results are shown all the same, without a parent.
                self._parents[message.parent] = None
        if message.parent is not None and (experiment := self._parents[message.parent]):
            return experiment, message.parent
        if message.experiment_id is not None:
            try:
                return self.client.get_experiment(message.experiment_id).experiment_id, None
            except MlflowException as error:  # an experiment of another store, or none, as with a parent
                if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                    raise
        return self._experiment(message.experiment), None

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            existing = self.client.get_experiment_by_name(name)
            self._experiments[name] = existing.experiment_id if existing is not None else self._new_experiment(name)
            if existing is not None and KIND not in existing.tags:
                self.client.set_experiment_tag(existing.experiment_id, KIND, TRAINING)
        return self._experiments[name]

    def _new_experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        location = _folder_of(self.artifacts, name).as_uri() if self.artifacts is not None else None
        try:
            return self.client.create_experiment(name, artifact_location=location, tags={KIND: TRAINING})
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        # The uploader of another results folder was faster.
        return self.client.get_experiment_by_name(name).experiment_id

    def _found(self, experiment: str, id: str, sweep_id: str | None, sweep: str | None, parent: str | None) -> list[Any]:
        """Return the runs of a record under `parent`, or of the sweep, whose final runs become children of their arm. Version
        0.1 made all of them children of `sweep`.
        """
        found = []
        for run in self._tagged(experiment, RUN, id):
            above, of = run.data.tags.get(PARENT), run.data.tags.get(OF_SWEEP)
            if (of == sweep_id and (sweep_id is not None or above == parent)) or (sweep is not None and above == sweep):
                found.append(run)
        return found

    def _tagged(self, experiment: str, tag: str, value: str) -> list[Any]:
        """Return the runs with a tag, without those of other people's results, which may have the same ids."""
        runs = self.client.search_runs([experiment], filter_string=f"tags.`{tag}` = '{value}'")
        return [run for run in runs if run.data.tags.get(ORIGIN, self._origin) == self._origin]

    def _only(self, found: Iterable[Any]) -> Any:
        """Return the most complete of these runs, None if there is none, and delete the others."""
        runs = sorted(found, key=lambda run: (run.info.status != "RUNNING", len(run.data.params), len(run.data.metrics)))
        self._delete(runs[:-1])
        return runs[-1] if runs else None

    def log(self, run_id: str, metrics: dict[str, float], params: dict[str, Any], time: int) -> None:
        """Log metrics at step 0 and parameters in one request."""
        from mlflow.entities import Metric, Param

        # An infinite value would be stored as 1.8e308 and ruin every plot.
        batch = [Metric(name, value, time, 0) for name, value in metrics.items() if math.isfinite(value)]
        words = [Param(name, str(value)[:6000]) for name, value in params.items() if value is not None]
        self.client.log_batch(run_id, metrics=batch, params=words)


def _end_of(message: EntryMessage | ArmMessage) -> tuple[int, str, dict[str, str]]:
    """Return when it ended, in ms since 1970, the status of its run, and the tag of its error, if there is one."""
    error = {"rankbench.error": message.reason} if message.reason else {}
    return message.started + int(1000 * message.seconds), FAILED if error else "FINISHED", error


def _begun(run: Any) -> int:
    """When the attempt began that a run shows, in ms since 1970: a run that failed first keeps its start."""
    measured = run.data.tags.get(MEASURED)  # entries of a leaderboard, and runs of version 0.1, have no such tag
    return milliseconds(measured) if measured else run.info.start_time


def _parted(runs: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Return the runs of fits without a record, the oldest first, and the others."""
    runs = sorted(runs, key=_begun)
    return [run for run in runs if LIVE in run.data.tags], [run for run in runs if LIVE not in run.data.tags]


def _fitting(note: str) -> str:
    """Return the note of a run; of one that is too long for MLflow, whole lines, and that the rest is missing."""
    if len(note) <= LONGEST_NOTE:
        return note
    cut = "\n\n**Cut here: the rest of the table and its notes are in report/report.md of the sweep.**"
    return note[: note.rfind("\n", 0, LONGEST_NOTE - len(cut))] + cut


def _folder_of(artifacts: Path, experiment: str) -> Path:
    """Return the folder for the artifacts of an experiment, inside `artifacts` whatever its name is, as in /Users/me/shop."""
    root = artifacts.resolve()
    folder = (root / experiment).resolve()
    if root in folder.parents:
        return folder
    plain = re.sub(r"[^\w-]+", "_", experiment)[:80]
    return root / f"{plain}-{hashlib.sha256(experiment.encode()).hexdigest()[:8]}"
