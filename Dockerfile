# The image of kuberay.yaml: Ray's own with rankbench and its extras `all` and `postgres`, in the versions that CI tests.
#
#   docker build -t REGISTRY/rankbench:0.2.0 .
#   docker build -t REGISTRY/rankbench:0.2.0-gpu --build-arg BASE=rayproject/ray:2.60.0-py311-gpu .
#
# For hosts without GPUs, the address of PyTorch's index of CPU builds as --build-arg PIP_EXTRA_INDEX_URL=... saves gigabytes.
ARG BASE=rayproject/ray:2.60.0-py311
FROM ${BASE}
ARG PIP_EXTRA_INDEX_URL
# The user of Ray's image, whose group may write to the claim.
USER ray
COPY --chown=ray pyproject.toml constraints.txt README.md CHANGELOG.md LICENSE /opt/rankbench/
COPY --chown=ray platform /opt/rankbench/platform
COPY --chown=ray datasets /opt/rankbench/datasets
COPY --chown=ray experiments /opt/rankbench/experiments
RUN pip install --no-cache-dir -c /opt/rankbench/constraints.txt "/opt/rankbench[all,postgres]"
