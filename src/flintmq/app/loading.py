"""Finding the app of a program: `module:app`, with errors that name what is wrong."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from ..errors import InvalidRequest
from .app import IMPORTING, App
from .blocking import is_program


class AppNotLoaded(InvalidRequest):
    """The program has no app, or cannot be imported. `files`: what to look at for a change."""

    def __init__(self, text: str, files: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.files = list(files)


def load_app(place: str) -> App:
    """Import an app by its place, `module:app` or `package.module:name`. Raises AppNotLoaded."""
    module_name, colon, path = place.partition(":")
    if not colon:
        path = "app"
    if not module_name or not path or module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".") or "module"
        raise AppNotLoaded(
            f"{place!r} does not name an app; pass the module and the variable: "
            f"{dotted}:{path or 'app'}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importing = IMPORTING.set(module_name)
    try:
        found = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            file = Path(here, *error.name.split("."))
            raise AppNotLoaded(
                f"there is no module {error.name!r} in {here} or in the installed packages; run "
                "the command in the directory of the program",
                [f"{file}.py", f"{file}/__init__.py"],
            ) from None
        raise _failed(module_name, error) from error
    except (Exception, SystemExit) as error:
        raise _failed(module_name, error) from error
    finally:
        IMPORTING.reset(importing)
    thing = found
    for name in path.split("."):
        thing = getattr(thing, name, None)  # type: ignore[assignment]
    if isinstance(thing, App):
        return thing
    apps = [name for name, value in vars(found).items() if isinstance(value, App)]
    hint = f"; its apps: {', '.join(apps)}" if apps else "; it has no flintmq.App"
    what = "nothing" if thing is None else f"a {type(thing).__name__}"
    raise AppNotLoaded(f"module {module_name!r}: {path!r} is {what}, not a flintmq.App{hint}")


def _failed(module_name: str, error: BaseException) -> AppNotLoaded:
    """Where in the program it went wrong, in a line."""
    ours = [one for one in traceback.extract_tb(error.__traceback__) if is_program(one.filename)]
    where = f" ({ours[-1].filename}:{ours[-1].lineno})" if ours else ""
    files = {frame.filename for frame in ours}
    if isinstance(error, SyntaxError) and error.filename is not None:
        files.add(error.filename)
    return AppNotLoaded(
        f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}{where}", files
    )
