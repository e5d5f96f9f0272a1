"""cluster.yaml is a file that the installed Ray would accept."""

import json
import re
from importlib import metadata
from pathlib import Path

import jsonschema
import pytest
import ray.autoscaler
import yaml
from packaging.requirements import Requirement
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[1]


@pytest.fixture
def cluster() -> dict:
    return yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))


def schema() -> dict:
    return json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text(encoding="utf-8"))


def test_cluster_file_fits_the_schema_of_the_installed_ray(cluster):
    jsonschema.validate(cluster, schema())


def test_the_schema_would_notice_a_wrong_key(cluster):
    with pytest.raises(jsonschema.ValidationError, match="min_workers"):
        jsonschema.validate(cluster | {"min_workers": 2}, schema())


def test_ray_fills_in_every_worker(cluster):
    prepared = prepare_config(cluster)
    validate_config(prepared)
    assert [node["max_workers"] for node in prepared["available_node_types"].values()] == [
        len(cluster["provider"]["worker_ips"])
    ]


def test_cluster_authenticates_and_has_no_dashboard(cluster):
    head = " ".join(cluster["head_start_ray_commands"])
    assert "RAY_AUTH_MODE=token" in head and "--include-dashboard=false" in head
    assert all("RAY_AUTH_MODE=token" in command for command in cluster["worker_start_ray_commands"] if "ray start" in command)


def test_what_is_installed_has_the_commands_that_follow(cluster):
    """Without an extra, Ray is not installed, and none of its commands would be there."""
    install = next(command for command in cluster["setup_commands"] if "pip install" in command)
    (extra,) = re.findall(r"/rankbench\[(\w+)]", install)
    extras, needed = {extra}, set()
    for _ in range(2):  # an extra may name others
        for line in metadata.requires("rankbench"):
            requirement = Requirement(line)
            if requirement.marker and any(requirement.marker.evaluate({"extra": each}) for each in extras):
                needed.add(requirement.name)
                extras |= requirement.extras if requirement.name == "rankbench" else set()
    assert {"ray", "mlflow", "torch"} <= needed
