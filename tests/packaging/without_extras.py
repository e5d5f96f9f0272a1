"""Run rankbench in a process in which packages of extras cannot be found: python without_extras.py torch,ray -- COMMAND...

Python's own finder is wrapped, so that an import fails and `importlib.util.find_spec` returns None, as if they were not there.
"""

import sys
from importlib.machinery import PathFinder


class Without:
    """The finder of installed packages, which does not find some."""

    def __init__(self, hidden):
        self.hidden = hidden

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in self.hidden else PathFinder.find_spec(name, path, target)

    def find_distributions(self, *arguments):
        return PathFinder.find_distributions(*arguments)


def hide(hidden):
    sys.meta_path[:] = [Without(hidden) if finder is PathFinder else finder for finder in sys.meta_path]
    # An editable install brings a finder of its own, which finds rankbench alone.
    assert not set(hidden) & set(sys.modules)


if __name__ == "__main__":
    names, separator, *words = sys.argv[1:]
    assert separator == "--"
    hide(frozenset(names.split(",")))
    from rankbench.cli import main

    sys.argv = ["rankbench", *words]
    main()
