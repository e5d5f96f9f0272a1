"""The schema of an experiment file: question, datasets, arms, their search, and the final runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from rankbench.core.config import Strict
from rankbench.core.errors import shown
from rankbench.core.names import DECLARED, Label, Name
from rankbench.core.patterns import FAMILY, WITHOUT
from rankbench.core.registry import nearest
from rankbench.core.wording import DEVICE
from rankbench.evaluation.metrics import DEFAULT_CUTOFFS, DEFAULT_METRICS
from rankbench.judge.printing import in_words
from rankbench.schema.datasets import Entry

Cause = Literal["part", "steps", "text", "misprint", "seconds", "above", "not found"]  # their meanings: reproduce/counts.py
Costs = dict[str, dict[Literal["minutes", "gigabytes"], Annotated[float, Field(gt=0)]]]  # dataset → of a fit in a paper
NO_FILE = "sweep"  # name of an experiment that the command line states without a file


class ArmSpec(Strict):
    """One row of the final table: a method that is searched separately from the others."""

    method: str
    name: Label | None = Field(None, description="label of the row; by default the name of the method")
    params: dict[str, Any] = {}
    ranges: Literal["registry"] | None = Field(
        None, description="registry: the ranges are those of the registry; the defaults are tried first, as one of the trials"
    )
    published: dict[str, dict[str, float]] = Field({}, description="dataset → metric → number in the paper")
    costs: Costs = Field(
        {}, description="dataset → time and memory of a fit in the paper, compared as ratios to those of `published.costs_of`"
    )
    chosen: dict[str, dict[str, Any]] = Field({}, description="dataset → parameters that an earlier search on valid chose")
    printed: dict[str, dict[str, Any]] = Field({}, description="dataset → parameters that paper or log prints as the optimum")
    unprinted: dict[str, Any] = Field({}, description="values that the printed optima lack, instead of those of the experiment")
    as_published: dict[str, dict[str, Any]] = Field(
        {}, description="dataset → parameters that reach the published numbers and were found on test, as the paper's were"
    )
    protocol: dict[str, Any] = Field(
        {}, description="parameter → value in the paper, where this arm differs from the others; null: the paper does not say"
    )
    variant_of: str | None = Field(None, description="the row of the table that this arm measures in another way")
    cause: Cause | None = Field(None, description="why its numbers differ from the published ones, in a word")
    account: str = Field("", description="why its numbers differ from the published ones, as far as experiments have shown")
    after_test: bool = Field(False, description="its ranges were changed after numbers on test were known")

    @model_validator(mode="after")
    def _ranges_of_one_kind(self, info: ValidationInfo) -> ArmSpec:
        if info.context is DECLARED and self.ranges and self.searched:  # a stored arm has the ranges of the registry
            raise ValueError(f"ranges: {self.ranges}: {', '.join(self.searched)} has a range here; leave one of them out")
        return self

    @property
    def label(self) -> str:
        return self.name or self.method

    @property
    def searched(self) -> list[str]:
        """The names of the parameters that have a range."""
        return [name for name, value in self.params.items() if isinstance(value, dict)]

    @property
    def fixed(self) -> dict[str, Any]:
        """The parameters with a value."""
        return {name: value for name, value in self.params.items() if not isinstance(value, dict)}


class MethodChoice(Strict):
    """Methods of an experiment by name, pattern or family, with parameters for those of them that have the parameter."""

    method: str | None = Field(None, description="a name, a pattern such as deql*, or all")
    family: str | None = None
    params: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _method_for_short(cls, given: Any) -> Any:
        return {"method": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _method_or_family(self) -> MethodChoice:
        if (self.method is None) == (self.family is None):
            raise ValueError("give method or family")
        if self.params and self.word.startswith(WITHOUT):
            raise ValueError(f"{self.word} leaves methods out, so params have no effect; leave them out")
        return self

    @property
    def word(self) -> str:
        """The selection in one word, as on the command line."""
        return self.method if self.method is not None else f"{FAMILY}{self.family}"


class Choose(Strict):
    metric: str = "ndcg@20"
    on: Literal["valid"] = "valid"


class SearchSpec(Strict):
    """How arms with random parameters are searched; grids are run completely.

    `by`: random draws; tpe, Optuna's tree-structured Parzen estimator; or bohb, which is tpe with the scheduler hyperband as in
    Falkner et al. (2018). `scheduler`: ends trials that are worse than others of their arm in evaluations on the validation
    set; not used for closed forms.

    `ranges`: none, so that an arm without a range is measured as it is given; or registry, so that it is searched in the ranges
    that its method states in the registry. `search: registry` is short for `search: {ranges: registry}`. `extend`: a parameter
    whose best value is at the end of its range is tried beyond it.
    """

    ranges: Literal["none", "registry"] = "none"

    trials: int = Field(10, ge=1, le=100_000, description="number of draws for each arm with random parameters")
    choose: Choose = Choose()
    seed: int = Field(0, ge=0)
    by: Literal["random", "tpe", "bohb"] = "random"
    scheduler: Literal["none", "asha", "hyperband"] = "none"
    grace: int = Field(5, ge=1, description="number of epochs before a trial can be ended")
    extend: bool = False

    @model_validator(mode="before")
    @classmethod
    def _bohb_is_both(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("by") == "bohb":
            if given.get("scheduler", "hyperband") != "hyperband":
                raise ValueError("by: bohb comes with scheduler: hyperband")
            return given | {"scheduler": "hyperband"}
        return given

    @property
    def prunes(self) -> bool:
        """Whether a scheduler may stop trials early."""
        return self.scheduler != "none"


Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1, max_length=1000)]


class FinalSpec(Strict):
    """The runs that are measured on test: each chosen setting once for each seed of the method and each seed of the split.

    `seed: 3` is short for `seeds: [3]`. A method that uses no seed runs only with the first one. A setting is chosen once, on
    the card's own split, whose validation interactions may be test interactions of another split.
    """

    report_on: Literal["test"] = "test"
    fit_on: Literal["auto", "train", "train+valid"] = Field(
        "auto", description="auto: as the split's protocol prescribes, or train if the validation set ends the fit"
    )
    seeds: Seeds = (0,)
    split_seeds: Seeds | None = Field(None, description="default: only the card's own split")
    pairs: Literal["best", "all"] = Field(
        "best", description="which pairs of more than 12 models are tested: with the best and neighbours in the order, or all"
    )

    @model_validator(mode="before")
    @classmethod
    def _one_seed_for_short(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "seed" not in given:
            return given
        if "seeds" in given:
            raise ValueError("give seed or seeds, not both")
        return {key: value for key, value in given.items() if key != "seed"} | {"seeds": [given["seed"]]}

    @model_validator(mode="after")
    def _no_seed_twice(self) -> FinalSpec:
        for name in ("seeds", "split_seeds"):
            values = getattr(self, name) or ()
            if len(set(values)) < len(values):
                raise ValueError(f"{name}: a seed is given twice")
        return self


def _auto_or_number(value: Any) -> Any:
    if value != "auto" and (type(value) is not int or value < 1):
        raise ValueError(f"expected auto or a whole number of at least 1, got {shown(value)}")
    return value


AutoOrNumber = Annotated[int | Literal["auto"], BeforeValidator(_auto_or_number)]


class Resources(Strict):
    """Resources of a trial; `cpus: auto` depends on the size of its matrix. A trial whose method divides its work may get
    several `nodes` of a cluster; `auto` decides by the estimates. With `workers`, the gradient steps of a trial are made by so
    many processes of its node, each with one processor. With `device: cuda`, each trial whose method can use a GPU gets `gpus`
    of one: with 0.25, four trials share it.
    """

    cpus: AutoOrNumber = "auto"
    concurrent: AutoOrNumber = "auto"
    nodes: AutoOrNumber = "auto"
    device: str = Field("cpu", pattern=DEVICE)
    gpus: float = Field(1.0, gt=0, le=1)
    workers: int = Field(1, ge=1)

    @model_validator(mode="after")
    def _gpus_of_a_gpu(self) -> Resources:
        if self.gpus != 1 and self.device != "cuda":
            raise ValueError(f"gpus: {self.gpus} is a share of a GPU; add device: cuda")
        if self.workers > 1 and self.device == "cuda":
            raise ValueError(f"workers: {self.workers} workers of a trial have processors only; leave out device: cuda")
        if self.workers > 1 and self.cpus not in ("auto", self.workers):
            raise ValueError(f"cpus: a trial of {self.workers} workers has as many processors; leave out cpus")
        return self


class Published(Strict):
    """The table or figure with the `published` numbers of the arms, and which recall it means, as far as that is known."""

    paper: str
    table: str | int | None = None
    figure: str | int | None = None
    recall: Literal["recall", "recall_capped", "open"] = "open"
    beside: tuple[str, ...] = Field((), description="datasets that repeat the numbers of another, because the paper is unclear")
    costs_of: str | None = Field(None, description="the row that time and memory of the others are divided by")
    chosen_on: Literal["valid", "test"] = Field("valid", description="the part that the paper chose settings on")
    repeats: str | int | None = Field(None, description="the table of the same paper whose numbers these are")

    @model_validator(mode="after")
    def _table_or_figure(self) -> Published:
        if (self.table is None) == (self.figure is None):
            raise ValueError("give table or figure")
        return self


class NotRun(Strict):
    """A row of the paper's table whose method is not implemented: only its published numbers are shown."""

    name: Label
    why: str = Field(min_length=1, description="reason in a few words, such as: not implemented")
    published: dict[str, dict[str, float]] = Field({}, description="dataset → metric → number in the paper")
    costs: Costs = Field({}, description="dataset → time and memory in the paper, as for an arm")


class Claim(Strict):
    """A claim of a paper about rows of its table: each of `better` is above each of `than` in `metric`."""

    text: str = Field(min_length=1)
    better: tuple[str, ...] = Field(min_length=1, description="labels of arms")
    than: tuple[str, ...] = Field(min_length=1, description="labels of arms")
    metric: str
    datasets: tuple[str, ...] = Field((), description="those of which the paper's numbers say it; default: all")
    undecided: str = Field("", description="why what was measured cannot decide it, such as searches that were not equal")

    def of(self, dataset: str) -> bool:
        return not self.datasets or dataset in self.datasets


class Protocol(Strict):
    """How a paper trains and searches, as far as it says so. Reports name every run that differs."""

    params: dict[str, Any] = Field({}, description="parameter → value in the paper, for all arms that have the parameter")
    trials: int | None = Field(None, ge=1, description="number of settings that the paper tries for each arm")


class ExperimentSpec(Strict):
    """An experiment file.

    `methods` are arms without a search of their own, and `params` their parameters, as far as a method has them. They, and
    patterns in `datasets`, are replaced by arms and datasets before a plan is made (`sweeps/selection.py`).
    """

    name: Name
    question: str = ""
    plugins: tuple[str, ...] = Field((), description="files, relative to this one, and modules with own losses and so on")
    datasets: tuple[Entry, ...] = Field(min_length=1)
    arms: tuple[ArmSpec, ...] = ()
    methods: tuple[MethodChoice, ...] = ()
    params: dict[str, Any] = {}
    metrics: tuple[str, ...] = Field(DEFAULT_METRICS, min_length=1)
    cutoffs: tuple[Annotated[int, Field(ge=1)], ...] = Field(DEFAULT_CUTOFFS, min_length=1)
    dtype: Literal["float32", "float64"] = "float32"
    search: SearchSpec = SearchSpec()
    final: FinalSpec = FinalSpec()
    resources: Resources = Resources()
    published: Published | None = None
    unprinted: dict[str, Any] = Field({}, description="values of searched parameters that the paper's printed optima lack")
    protocol: Protocol = Protocol()
    not_run: tuple[NotRun, ...] = ()
    claims: tuple[Claim, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _written_in_full(cls, given: Any) -> Any:
        return in_full(given) if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _something_to_compare(self, info: ValidationInfo) -> ExperimentSpec:
        if not self.arms and not self.methods:
            raise ValueError("give arms or methods")
        # Methods become arms later, and a stored sweep may have fewer arms than its file.
        if info.context is DECLARED and not self.methods and (problem := self.missing_arm):
            raise ValueError(problem)
        return self

    @property
    def missing_arm(self) -> str:
        """What names an arm that is not there, in words; empty if nothing does."""
        labels = [arm.label for arm in self.arms]
        named = [(f"claims[{n}]", label) for n, claim in enumerate(self.claims) for label in (*claim.better, *claim.than)]
        named += [("published.costs_of", self.published.costs_of)] if self.published and self.published.costs_of else []
        named += [("variant_of", arm.variant_of) for arm in self.arms if arm.variant_of is not None]
        missing = ((key, label) for key, label in named if label not in labels)
        return next((f"{key}: no arm {label!r}{nearest(label, labels)}" for key, label in missing), "")

    @property
    def dataset_names(self) -> tuple[str, ...]:
        return tuple(entry if isinstance(entry, str) else entry["name"] for entry in self.datasets)

    def entry_of(self, dataset: str) -> Entry:
        """Return the entry of a dataset; its name if there is none."""
        return dict(zip(self.dataset_names, self.datasets, strict=True)).get(dataset, dataset)

    @property
    def report_metrics(self) -> tuple[str, ...]:
        """The columns of the table: the metrics its papers report, else the metric of the search, and recall at its cutoff."""
        published = [*(arm.published for arm in self.arms), *(row.published for row in self.not_run)]
        reported = [name for by_dataset in published for by_metric in by_dataset.values() for name in by_metric]
        metric = self.search.choose.metric
        return tuple(dict.fromkeys(reported or [f"recall@{metric.partition('@')[2]}", metric]))


def in_full(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of an experiment with what is written short in full: `datasets: all` is `datasets: [all]`,
    `methods: {family: softmax}` is a list of one, and `search: registry` is `search: {ranges: registry}`.
    """
    full = {key: [content[key]] for key in ("datasets", "methods") if isinstance(content.get(key), str | dict)}
    return content | full | ({"search": {"ranges": content["search"]}} if isinstance(content.get("search"), str) else {})


def with_question(spec: ExperimentSpec) -> ExperimentSpec:
    """Return an experiment without a file and patterns with the question that it asks."""
    arms, datasets = [arm.label for arm in spec.arms], in_words(spec.dataset_names, "datasets")
    question = f"Which of {in_words(arms)} is best on {datasets}?" if len(arms) > 1 else f"How good is {arms[0]} on {datasets}?"
    return spec.model_copy(update={"question": spec.question or question})


def topic(spec: ExperimentSpec) -> str:
    """Return the name of an experiment where many others are: its own, or that of its datasets if nobody has named it."""
    return in_words(spec.dataset_names, "datasets") if spec.name == NO_FILE else spec.name
