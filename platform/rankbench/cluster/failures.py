"""What a failed task of Ray says: whether the function, a full disk, or the cluster failed."""

from __future__ import annotations

from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayError, RayTaskError

from rankbench.core.errors import StorageError, first_line

FULL = ObjectStoreFullError, OutOfDiskError


def failure_of_ray(failure: RayError, what: str) -> RayError:
    """Return the failure of the cluster, such as a lost worker. Raises what the function itself raised, and StorageError,
    beginning with `what`, if an object store or its disk is full.
    """
    # What Ray itself meets on the worker, such as a full disk for the answer, comes as an error of the task.
    error = failure.cause if isinstance(failure, RayTaskError) else failure
    if not isinstance(error, RayError):
        raise error from failure
    if isinstance(error, FULL):
        raise StorageError(f"{what}: {first_line(error)}") from None
    return error
