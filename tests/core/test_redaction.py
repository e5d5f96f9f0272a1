"""A password in the address of a store is shown nowhere, wherever it stands and whatever signs it has."""

import io
import json
import string
from urllib.parse import quote, unquote

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from rankbench.cli import _main
from rankbench.core.errors import ConfigError
from rankbench.core.redaction import RedactedStream, reason, redacted, without_password
from rankbench.tracking.address import checked_uri

FORMS = {
    "database": "postgresql+psycopg2://someone:{}@127.0.0.1:1/db",
    "database, in the query": "postgresql+psycopg2://127.0.0.1:1/db?user=someone&password={}",
    "database, user alone": "mysql+pymysql://{}@127.0.0.1:1/db",
    "unknown scheme": "htpp://{}:x@127.0.0.1:1",
    "server": "http://someone:{}@127.0.0.1:1/mlflow",
    "server, in the query": "https://127.0.0.1:1/?token={}",
    "server, in a query without a key": "https://127.0.0.1:1/?{}",
    "server, user alone": "http://{}@127.0.0.1:1",
    "server, user and an empty password": "http://{}:@127.0.0.1:1",
    "no scheme": "someone:{}@127.0.0.1",
    "wrong port": "postgresql+psycopg2://someone:{}@127.0.0.1:port/db",
    "sqlite": "sqlite:////nowhere/mlflow.db?key={}",
}
# Signs that end a part of an address, and letters; quoted, or as a person writes it.
PASSWORDS = st.text(string.ascii_letters + string.digits + "/@:?#%&=+ \\\"'\näß", min_size=4, max_size=20).map(
    lambda text: text if text.strip() else "pass"
)


def shows(text, written):
    """Whether `text` holds the password that stands in an address as `written`."""
    password = unquote(written)
    return any(form.lower() in text.lower() for form in (written, password, quote(password, safe="")))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@settings(max_examples=30)
@given(password=PASSWORDS, quoted=st.booleans())
@example("se/cret", False)
@example("se@cret", False)
@example("12/cret", False)
@example("se@cret:word", False)
@example("a://b@c", False)
@example("word word", True)
@example("&000", False)
@example("#cde", False)
@example("a&b=c", False)
def test_no_output_holds_the_password(form, password, quoted):
    password = quote(password, safe="") if quoted else password
    uri = form.format(password)
    assume(not shows(form, password))
    # Half of a short word of ours, as in "pass" and "password", tells nobody a password.
    words = "the address cannot be read unknown scheme; did you mean http? password name could not connect to ***"
    assume(not shows(words + " MLflow no longer takes a folder", password))
    assert not shows(without_password(uri), password), uri
    said = [
        f"could not connect to {uri}",
        f"password {password!r}",
        f"name {unquote(password)}",
        json.dumps([unquote(password)]),
    ]
    said += [f"password {quote(password)}", f"{ConnectionError(password)!r}", f"no {password.upper()}"]
    for text in said:
        assert not shows(redacted(text, uri), password), (uri, text)
        assert not shows(reason(RuntimeError(text), uri), password), (uri, text)
    try:
        checked_uri(uri, "NAME")
    except ConfigError as error:
        assert not shows(str(error).partition("; expected")[0].partition("; write characters")[0], password)
    try:
        make_url(uri)
    except Exception as error:
        assert not shows(reason(error, uri), password)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql+psycopg2://me:se:cret@host:5432/db", "postgresql+psycopg2://me:***@host:5432/db"),
        ("postgresql+psycopg2://me:se/cret@host:5432/db", "postgresql+psycopg2://me:***@host:5432/db"),
        ("postgresql+psycopg2://me:se@cret@host:5432/db", "postgresql+psycopg2://***"),
        ("postgresql+psycopg2://me@host/db", "postgresql+psycopg2://***@host/db"),
        ("postgresql+psycopg2://host/db?password=secret", "postgresql+psycopg2://host/db?***"),
        ("postgresql+psycopg2://me:host@dbhost/db", "postgresql+psycopg2://me:***@db***/db"),
        ("http://me:secret@host:5000/x", "http://***@host:5000/x"),
        ("http://me:se@cret@host:5000", "http://***@host:5000"),
        ("http://me:12/cret@host:5000", "http://***"),
        ("https://token@host", "https://***@host"),
        ("https://host/x?token=secret#more", "https://host/x?***#***"),
        ("http://[::1]:5000", "http://[::1]:5000"),
        ("sqlite:////home/me@work/mlflow.db", "sqlite:////home/me@work/mlflow.db"),
        ("sqlite:///a.db?key=secret", "sqlite:///a.db?***"),
        ("me:secret@host", "***"),
    ],
)
def test_what_is_no_secret_is_shown(uri, shown):
    assert without_password(uri) == shown


def test_an_error_keeps_its_words_without_the_secrets():
    uri = "postgresql+psycopg2://me:se%2Fcret@host:5432/db?sslpassword=other-secret"
    error = RuntimeError(f'password "se/cret" of "me" was refused (se%2fcret, other-secret) at {uri}\nand more')
    assert reason(error, uri) == (
        'password "***" of "me" was refused (***, ***) at postgresql+psycopg2://me:***@host:5432/db?***'
    )
    # A password of a letter or two is hidden as a word, and not in every word that has the letter.
    assert redacted('no such host "a"', "http://me:a@host") == 'no such host "***"'
    assert "TWU6c2VjcmV0" not in redacted("Basic TWU6c2VjcmV0", "http://Me:secret@host")
    stream = io.StringIO()
    print("sent to", uri, "with se/cret", file=RedactedStream(stream, uri))
    assert "cret" not in stream.getvalue() and stream.getvalue().endswith("with ***\n")


@pytest.mark.parametrize("uri", ["postgresql+psycopg2://me:hunter2/x@127.0.0.1:1/db", "http://hunter2@127.0.0.1:1"])
def test_no_command_shows_it(uri, home, monkeypatch, capfd):
    monkeypatch.setenv("RANKBENCH_TRACKING_URI", uri)
    for command in ("tracking status --json", "doctor"):
        code = _main(command.split())
        printed = capfd.readouterr()
        text = printed.out + printed.err
        assert "hunter2" not in text and "Traceback" not in text and code in (0, 1, 2)
        assert "127.0.0.1" in text or "://***" in text


def test_a_driver_that_refuses_says_so_without_the_password():
    """A real driver's words about a connection that fails."""
    for uri in ("postgresql+psycopg2://127.0.0.1:1/db?hunter2=x", "postgresql+psycopg2://me:hunter2@127.0.0.1:1/db"):
        with pytest.raises(Exception, match=r".") as caught:
            create_engine(uri).connect()
        assert "hunter2" not in reason(caught.value, uri)
