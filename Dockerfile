# The image of kuberay.yaml: Ray's own with rankbench in it, in the versions that CI tests.
#
#   docker build -t REGISTRY/rankbench:0.1.0 .
#   docker build -t REGISTRY/rankbench:0.1.0-gpu --build-arg BASE=rayproject/ray:2.60.0-py311-gpu .
ARG BASE=rayproject/ray:2.60.0-py311
FROM ${BASE}
COPY --chown=ray . /opt/rankbench
RUN pip install --no-cache-dir -c /opt/rankbench/constraints.txt /opt/rankbench
