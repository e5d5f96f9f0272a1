"""kuberay.yaml is a RayJob that fits this version: same Ray, consistent mounts, known variables, a command that exists."""

import re
import shlex
from pathlib import Path, PurePosixPath

import pytest
import yaml

from rankbench.cluster.session import _ENVIRONMENT
from rankbench.core.environment import VARIABLES

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "kuberay.yaml").read_text(encoding="utf-8")


@pytest.fixture
def claim() -> dict:
    return next(iter(yaml.safe_load_all(TEXT)))


@pytest.fixture
def job() -> dict:
    return list(yaml.safe_load_all(TEXT))[1]


@pytest.fixture
def cluster(job) -> dict:
    return job["spec"]["rayClusterSpec"]


def pods(cluster) -> list[dict]:
    """The head's pod and those of the workers, all of which must be alike where they share something."""
    return [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def test_what_the_operator_requires_is_there(job, cluster):
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"])
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())  # they are words of a command line
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
    for group in cluster["workerGroupSpecs"]:
        assert group["groupName"] and group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert cluster["authOptions"] == {"mode": "token"}


def test_ray_is_that_of_the_constraints(cluster):
    (pinned,) = re.findall(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert cluster["rayVersion"] == pinned
    assert set(re.findall(r"rayproject/ray:([\w.]+)-py311", dockerfile)) == {pinned}
    images = {container["image"]: container["resources"]["limits"] for pod in pods(cluster) for container in pod["containers"]}
    for image, limits in images.items():
        assert ("nvidia.com/gpu" in limits) == image.endswith("-gpu")
    released = str(yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"])
    assert set(re.findall(r"REGISTRY/rankbench:([\d.]+)", TEXT + dockerfile)) == {released}


def test_every_mount_has_its_volume_and_the_claim_can_be_shared(claim, cluster):
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for pod in pods(cluster):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in pod["containers"]:
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert mounts.keys() == volumes.keys() and mounts["objects"] == "/dev/shm"
            assert volumes["shared"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
            env = {each["name"]: each["value"] for each in container["env"]}
            for name in ("RANKBENCH_DATA", "RANKBENCH_RESULTS"):
                assert PurePosixPath(env[name]).is_relative_to(mounts["shared"])
    assert len({str(pod["containers"][0]["env"]) for pod in pods(cluster)}) == 1


def test_rays_objects_fit_into_the_shared_memory(cluster):
    """A larger store, such as Ray's default of 30 % of the memory, lies on the disk of the container, which is slow."""
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (volume,) = (each for each in group["template"]["spec"]["volumes"] if each["name"] == "objects")
        size = int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi")) << 30
        assert group["template"]["spec"]["enableServiceLinks"] is False
        if lent := group["rayStartParams"].get("memory"):
            (container,) = group["template"]["spec"]["containers"]
            limit = int(container["resources"]["limits"]["memory"].removesuffix("Gi")) << 30
            assert int(lent) + int(group["rayStartParams"]["object-store-memory"]) < 0.95 * limit
        assert ("memory" in group["rayStartParams"]) == ("groupName" in group)
        assert 0 < int(group["rayStartParams"]["object-store-memory"]) <= 0.95 * size


def test_its_variables_are_known_and_those_of_the_other_cluster(cluster):
    (env,) = {tuple((each["name"], each["value"]) for each in pod["containers"][0]["env"]) for pod in pods(cluster)}
    for name, value in env:
        assert isinstance(value, str)
        assert name in VARIABLES or _ENVIRONMENT.get(name) == value, f"{name}={value}"
    assert dict(env)["RANKBENCH_TRACKING_URI"].startswith("http://")  # SQLite breaks on a shared storage
    known = set(re.findall(r"\b(RANKBENCH_\w+)", (ROOT / "cluster.yaml").read_text(encoding="utf-8") + TEXT))
    assert known <= set(VARIABLES)


def test_its_command_is_one_that_rankbench_takes(job):
    program, command, experiment, *options = shlex.split(job["spec"]["entrypoint"])
    assert (program, command, options) == ("rankbench", "sweep", [])
    assert (ROOT / "experiments" / f"{experiment}.yaml").is_file()
