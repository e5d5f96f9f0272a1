"""Plugins: files and modules outside the package that register losses, encoders, solvers, readers, protocols and metrics.

A plugin is Python code that is imported once. It registers with the decorators that the package itself uses, and from then on
its names work everywhere. Plugins come from three places: `load`, which the option --plugin, the key `plugins:` of an
experiment file and `rankbench.api.plugin` call; the variable RANKBENCH_PLUGINS; and installed packages with entry points in
the group `rankbench.plugins`. Registries call `load_configured` before they are read, for the last two.

The text of a file travels with the work that is sent to other processes (`Shipment`), so that a cluster needs no copy of it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, ModuleType

from rankbench.core.errors import ConfigError, first_line, require

GROUP = "rankbench.plugins"
VARIABLE = "RANKBENCH_PLUGINS"
PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class Plugin:
    """`name`: of the file, or of the module. `origin`: where it came from, for messages. `module`: the name under which it is
    imported, which for a file depends on its content. `sha256`: of its source. `source`: its text, None for a package of
    several files, which has to be installed wherever it is used.
    """

    name: str
    origin: str
    module: str
    sha256: str
    source: str | None = None


_loaded: list[Plugin] = []
_loading: list[Plugin] = []
_on_unload: list[Callable[[str], None]] = []
_configured: list[bool] = []


def loaded() -> tuple[Plugin, ...]:
    """All plugins of this process, in the order in which they were loaded."""
    return tuple(_loaded)


def load(word: str | Path, folder: Path | None = None, source: str = "") -> Plugin:
    """Load the plugin `word`: a path if it ends in .py or has a separator, else the name of a module.

    A relative path is relative to `folder`, by default the working folder. A file that was loaded before is loaded again if it
    has changed, and what it registered then is replaced. Errors begin with `source`.

    Raises ConfigError if there is no such file or module, if it fails while it is imported (with file and line), or if it
    registers a name that is taken. Nothing of it is registered then.
    """
    prefix = f"{source}: " if source else ""
    text = str(word)
    if not text.strip():
        raise ConfigError(f"{prefix}a plugin is the path of a file or the name of a module, got {text!r}")
    is_path = isinstance(word, Path) or text.endswith(".py") or "/" in text or os.sep in text
    return _activate(
        _of_file((folder or Path.cwd()) / Path(text).expanduser(), text, prefix) if is_path else _of_module(text, prefix)
    )


def load_configured() -> None:
    """Load the plugins of installed packages and of RANKBENCH_PLUGINS, once per process. Raises ConfigError as `load`."""
    if _configured:
        return
    _configured.append(True)  # first, because a plugin may itself read a registry
    try:
        for entry in entry_points(group=GROUP):
            package = entry.dist.name if entry.dist else "an installed package"
            load(entry.value.partition(":")[0], source=f"entry point {entry.name} of {package}")
        for word in os.environ.get(VARIABLE, "").split(os.pathsep):
            if word.strip():
                load(word.strip(), source=VARIABLE)
    except BaseException:
        _configured.clear()
        raise


def unload(plugin: Plugin) -> None:
    """Remove a plugin and everything that it registered."""
    for forget in _on_unload:
        forget(plugin.origin)
    if plugin in _loaded:
        _loaded.remove(plugin)
    if plugin.module != plugin.name:  # the module of a file; an installed module stays imported
        sys.modules.pop(plugin.module, None)


def on_unload(forget: Callable[[str], None]) -> None:
    """Have `forget(origin)` called when the plugin of this origin is removed."""
    _on_unload.append(forget)


def origin_of(module: str) -> str:
    """Return where something that `module` defines came from: the plugin that is being loaded, or the module's own name."""
    if _loading and module.partition(".")[0] != PACKAGE:
        return _loading[-1].origin
    return next((plugin.origin for plugin in _loaded if plugin.module == module), module)


@dataclass(frozen=True)
class Shipment:
    """The plugins of a process, for another one: they are loaded when it is unpickled. Put it before what uses them."""

    plugins: tuple[Plugin, ...]

    @classmethod
    def of_this_process(cls) -> Shipment:
        return cls(loaded())

    def __reduce__(self) -> tuple[Callable[[tuple[Plugin, ...]], Shipment], tuple[tuple[Plugin, ...]]]:
        return _unpacked, (self.plugins,)


def _unpacked(plugins: tuple[Plugin, ...]) -> Shipment:
    _configured[:] = [True]  # what is configured on this machine may have another content
    for plugin in plugins:
        _activate(plugin)
    return Shipment(plugins)


def _of_file(path: Path, word: str, prefix: str) -> Plugin:
    if not path.is_file():
        raise ConfigError(f"{prefix}{word}: no such plugin file" + (" (it is a folder)" if path.is_dir() else ""))
    path = path.resolve()
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{prefix}{word}: cannot be read as Python: {first_line(error)}") from None
    digest = hashlib.sha256(content).hexdigest()
    stem = re.sub(r"\W", "_", path.stem)
    return Plugin(path.name, str(path), f"{PACKAGE}_plugin_{stem}_{digest[:12]}", digest, text)


def _of_module(name: str, prefix: str) -> Plugin:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    except Exception as error:  # of the package that a dotted name begins with
        raise ConfigError(f"{prefix}{name}: {type(error).__name__}: {first_line(error)}") from None
    if spec is None:
        raise ConfigError(f"{prefix}{name}: no such module; the path of a file ends in .py")
    top = importlib.util.find_spec(name.partition(".")[0])  # a module of a package may import any other one of it
    if top is not None and top.submodule_search_locations:
        return Plugin(name, name, name, sources_digest(*map(Path, top.submodule_search_locations)))
    if not spec.origin or not spec.origin.endswith(".py"):
        raise ConfigError(f"{prefix}{name}: a plugin is Python source, and this module is {spec.origin}")
    content = Path(spec.origin).read_bytes()
    return Plugin(name, name, name, hashlib.sha256(content).hexdigest(), content.decode("utf-8", "replace"))


def sources_digest(*folders: Path, mention: bytes = b"") -> str:
    """The SHA-256 of the paths and contents of all Python files in folders, or of those that `mention` something."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if mention in (content := path.read_bytes()):
                digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + content + b"\0")
    return digest.hexdigest()


def _activate(plugin: Plugin) -> Plugin:
    """Import a plugin unless it is loaded already; an earlier version of it is removed first."""
    for earlier in _loaded:
        if earlier.module == plugin.module:  # the same content, which may lie in another folder of this machine
            changed = f"{plugin.origin}: has changed since it was loaded; start Python again, or load the file by its path"
            require(earlier.sha256 == plugin.sha256, changed)
            return earlier
    for earlier in [each for each in _loaded if each.origin == plugin.origin]:
        unload(earlier)
    _loading.append(plugin)
    try:
        with redirect_stdout(sys.stderr), _own_loops(plugin):
            _import(plugin)
    except BaseException as error:
        unload(plugin)
        if isinstance(error, Exception | SystemExit) and not ends_worker(error):
            raise ConfigError(_problem(plugin, error)) from None
        raise
    finally:
        _loading.pop()
    _loaded.append(plugin)
    return plugin


def _own_loops(plugin: Plugin) -> AbstractContextManager[None]:
    """Where numba keeps the compiled loops of a plugin that has some: `plugin.sha256` is that of all files of a package."""
    if plugin.source is not None and "numba" not in plugin.source:
        return nullcontext()
    from rankbench.core import compiler  # imports numba, which takes a third of a second

    return compiler.apart(plugin.sha256[:16])


def _import(plugin: Plugin) -> None:
    if plugin.module == plugin.name:
        try:
            if importlib.util.find_spec(plugin.module) is not None:
                here = _of_module(plugin.module, "").sha256
                require(
                    here == plugin.sha256,
                    f"{plugin.module}: another version is installed on this machine; install the same one",
                )
                importlib.import_module(plugin.module)
                return
        except ModuleNotFoundError as error:
            if error.name is None or not plugin.module.startswith(error.name):
                raise
        if plugin.source is None or "." in plugin.module:
            raise ConfigError(f"the module {plugin.module} is not installed on this machine; install it on every machine")
    assert plugin.source is not None
    # Tracebacks, and libraries that compile a function from its source, find the lines here on machines without the file.
    linecache.cache[plugin.origin] = (len(plugin.source), None, plugin.source.splitlines(True), plugin.origin)
    module = ModuleType(plugin.module)
    module.__file__ = plugin.origin
    module.__spec__ = ModuleSpec(plugin.module, None, origin=plugin.origin)
    code: CodeType = compile(plugin.source, plugin.origin, "exec", dont_inherit=True)
    sys.modules[plugin.module] = module
    exec(code, module.__dict__)


def _problem(plugin: Plugin, error: BaseException) -> str:
    """What is wrong with a plugin in one line, with the line of the file at which its import stopped."""
    if isinstance(error, SyntaxError) and error.filename == plugin.origin:
        return f"{plugin.origin}:{error.lineno}: {type(error).__name__}: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == plugin.origin]
    position = f"{plugin.origin}:{lines[-1]}" if lines else plugin.origin
    if isinstance(error, ConfigError):
        return f"{position}: {error}"
    hint = ""
    if isinstance(error, ModuleNotFoundError) and error.name and plugin.module != plugin.name:
        hint = "; a plugin is one file, or a package that is installed on every machine"
    message = f": {first_line(error)}" if str(error).strip() else ""
    return f"{position}: {type(error).__name__}{message}{hint}"


def ends_worker(error: BaseException) -> bool:
    """Whether Ray ends this worker, as on a node that is taken away, and no foreign code called sys.exit: Ray raises SystemExit
    wherever the worker is when it gets SIGTERM. The work is not at fault, and goes on elsewhere from its checkpoints.
    """
    return hasattr(error, "ray_terminate_msg")


@contextmanager
def exits_are_errors(source: str) -> Iterator[None]:
    """Raise ConfigError where foreign code calls sys.exit, which would end the command, or the worker without a reason."""
    try:
        yield
    except SystemExit as stop:
        if ends_worker(stop):
            raise
        lines = traceback.extract_tb(stop.__traceback__)
        raise ConfigError(f"{source}: sys.exit({stop.code!r}) was called in {lines[-1].filename}:{lines[-1].lineno}") from None


@contextmanager
def guarded(source: str) -> Iterator[None]:
    """Print what foreign code prints on stderr, because results alone belong on stdout, and let no sys.exit end the process."""
    with redirect_stdout(sys.stderr), exits_are_errors(source):
        yield


@contextmanager
def separate() -> Iterator[None]:
    """Remove, at the end of the block, the plugins that were loaded in it."""
    before, configured = loaded(), list(_configured)
    try:
        yield
    finally:
        for plugin in reversed(_loaded):
            if plugin not in before:
                unload(plugin)
        _configured[:] = configured
