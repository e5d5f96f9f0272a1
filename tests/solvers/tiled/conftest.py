"""Spares the disk, and a second thread."""

import os

import pytest

from rankbench.core.threads import pinned


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small tiles are not worth two, which wait for each other on a busy machine."""
    with pinned(1):
        yield


@pytest.fixture(scope="module")
def unflushed():
    """Files are not forced to the disk: that is most of the time on a busy one, and a loss of power alone could tell."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        patch.setattr(os, "fdatasync", lambda file: None)
        yield
