"""What this package uses of MLflow that is no part of its documented interface: all of it is here and in `saved_views.py`,
which writes the state of its pages.

Tested with MLflow 3.17.2 (`constraints.txt`, `constraints-oldest.txt`) and 3.18.0. Before another version is allowed, run
`tests/tracking` with it: an import of this file that fails, a store that is created, upgraded or served in another way, or
pages that do not read these tags any more are seen there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# Tags that MLflow's pages read. Of an experiment: its views, the metric that is shown first, and its kind, so that the pages
# are those of training and not of agents. Of a run: its colour in charts.
VIEW, PRIMARY_METRIC = "mlflow.sharedViewState.", "mlflow.experiment.primaryMetric.name"
KIND, TRAINING = "mlflow.experimentKind", "custom_model_development"
COLOUR = "mlflow.runColor"


def create_tables(uri: str, artifacts: Path) -> None:
    """Create the tables of a new store in the database at `uri`; files of its experiments belong into `artifacts`."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore(uri, artifacts.resolve().as_uri()).engine.dispose()


def newest_schema() -> str:
    """Return the revision of the tables that the installed MLflow needs."""
    from mlflow.store.db.utils import _get_latest_schema_revision

    return str(_get_latest_schema_revision())


def known_schemas() -> set[str]:
    """Return the revisions that the installed MLflow can upgrade from."""
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config

    return {script.revision for script in ScriptDirectory.from_config(_get_alembic_config("")).walk_revisions()}


def upgrade_tables(engine: Any) -> None:
    """Bring the tables of a SQLAlchemy engine's database to the newest schema."""
    from mlflow.store.db.utils import _upgrade_db

    _upgrade_db(engine)


def server_application(uri: str, files: str, proxied: bool, hosts: tuple[str, ...]) -> Any:
    """Return the ASGI application of MLflow's server for the store at `uri`, which answers requests for `hosts`.

    `files`: the folder of experiments' files as a URI; `proxied`: clients send them through the server. A client cannot choose
    another folder, because MLflow would then read and write there with the rights of the server's user.
    """
    # The web page sends POST requests, whose Origin MLflow compares with a second list.
    origins = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
    # MLflow reads these on import. All are set, so that the user's environment cannot weaken the server's protection.
    os.environ |= {
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(hosts),
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": ",".join(origins),
        "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "false",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_ENABLE_WORKSPACES": "false",
    }
    from mlflow.server import constants

    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: uri,
        constants.REGISTRY_STORE_URI_ENV_VAR: uri,
        constants.ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/" if proxied else files,
        constants.ARTIFACTS_DESTINATION_ENV_VAR: files,
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
    }
    from mlflow.exceptions import MlflowException
    from mlflow.server import handlers
    from mlflow.server.fastapi_app import app
    from mlflow.store.db.db_types import DATABASE_ENGINES
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    class Store(SqlAlchemyStore):
        def create_experiment(self, name: str, artifact_location: str | None = None, tags: list | None = None) -> str:
            if artifact_location:
                raise MlflowException.invalid_parameter_value(
                    "this server decides where the files of an experiment are stored: leave artifact_location out"
                )
            return super().create_experiment(name, None, tags)

    for engine in DATABASE_ENGINES:
        handlers._tracking_store_registry.register(engine, lambda store_uri, artifact_uri: Store(store_uri, artifact_uri))
    return app
