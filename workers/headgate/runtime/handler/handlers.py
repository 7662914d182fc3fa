"""A user's function as a handler, loaded by its entry point and interpreted by its annotations.

    async def send(mail: Mail, context: Context) -> None: ...        # a pydantic model, JSON
    def log(payload): ...                                            # by its content type
    def store(payload: bytes) -> None: ...                           # in a thread
    async def index(pages: list[Page]) -> None: ...                  # a batch

An annotation that cannot be interpreted is a mistake of its author, reported in one line before any connection is
made.
"""

from __future__ import annotations

import inspect
import sys
import traceback
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, overload

from headgate.errors import InvalidRequest
from headgate.runtime.handler.context import Context
from headgate.runtime.handler.decide_retry import RetryPolicy
from headgate.runtime.handler.payloads import Decode, decoder_of

Function = TypeVar("Function", bound=Callable[..., Any])
_OPTIONS = "__headgate_handler__"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class HandlerUnusable(InvalidRequest):
    """The handler cannot be used."""


@dataclass(frozen=True)
class Options:
    batch: bool | None = None
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    retry_invalid: bool = False


@dataclass(frozen=True)
class Handler:
    name: str
    function: Callable[..., Any]
    is_async: bool
    batch: bool
    decode: Decode
    context: str | None
    """The parameter that takes the context, or of a batch the contexts."""
    retries: RetryPolicy
    retry_invalid: bool

    def call(self, payloads: Sequence[Any], contexts: Sequence[Context | None]) -> Any:
        given: Any = list(payloads) if self.batch else payloads[0]
        if self.context is None:
            return self.function(given)
        argument: Any = list(contexts) if self.batch else contexts[0]
        return self.function(given, **{self.context: argument})


@overload
def handler(function: Function, /) -> Function: ...


@overload
def handler(
    *, batch: bool | None = None, retries: RetryPolicy | None = None, retry_invalid: bool = False
) -> Callable[[Function], Function]: ...


def handler(
    function: Any = None,
    /,
    *,
    batch: bool | None = None,
    retries: RetryPolicy | None = None,
    retry_invalid: bool = False,
) -> Any:
    """Declare about a function what its annotations cannot: whether `list[...]` is a batch or one payload that is a
    list, what its exceptions mean, and whether a payload that does not fit its annotation is retried. By default,
    such a payload goes to the dead-letter queue at once. `@handler` alone changes nothing.
    """
    if function is not None and not callable(function):
        raise HandlerUnusable(
            f"The decorator needs a function, not a {type(function).__name__}",
            remedy="write @handler(retries=...), naming each option",
        )
    options = Options(batch, retries or RetryPolicy(), retry_invalid)

    def mark(function: Function) -> Function:
        setattr(function, _OPTIONS, options)
        return function

    return mark if function is None else mark(function)


def load_handler(entry_point: str) -> Handler:
    """The handler that `module:function` names; the current folder is searched first."""
    module, colon, path = entry_point.partition(":")
    if not (colon and module and path) or not all(
        part.isidentifier() for part in (*module.split("."), *path.split("."))
    ):
        raise HandlerUnusable(
            "A handler is named MODULE:FUNCTION", remedy="write mailer.tasks:send", given=entry_point
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    target: Any = _imported(module, entry_point)
    for part in path.split("."):
        if not hasattr(target, part):
            functions = _functions_of(target)
            raise HandlerUnusable("The module has no such function", handler=entry_point, it_has=functions or "none")
        target = getattr(target, part)
    return understand(target, entry_point)


def _imported(module: str, entry_point: str) -> object:
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is not None and (module == missing.name or module.startswith(missing.name + ".")):
            remedy = "start the worker where the module can be imported, or set PYTHONPATH"
            raise HandlerUnusable(  # noqa: B904  one line is enough
                "The module does not exist", handler=entry_point, module=missing.name, remedy=remedy
            )
        raise _broken(missing, entry_point) from None
    except (Exception, SystemExit) as error:
        raise _broken(error, entry_point) from None


def _broken(error: BaseException, entry_point: str) -> HandlerUnusable:
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        at = f"{error.filename}:{error.lineno}"
    else:
        at = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
    detail = f"{type(error).__name__}: {error}".splitlines()[0]
    return HandlerUnusable("The handler's module fails on import", handler=entry_point, error=detail, at=at)


def _functions_of(module: object) -> str:
    names = [name for name, each in vars(module).items() if inspect.isfunction(each) and not name.startswith("_")]
    return ", ".join(sorted(names)[:8])


def understand(function: Any, name: str) -> Handler:
    if inspect.isclass(function) or not callable(function):
        raise HandlerUnusable("A handler must be a function or a callable object", handler=name)
    called = function if inspect.isroutine(function) else function.__call__
    options: Options = getattr(function, _OPTIONS, Options())
    payload, context = _parameters(called, name)
    hints = _hints(called, name)
    annotation = hints.get(payload, Any)
    item = _item_of(annotation)
    batch = options.batch if options.batch is not None else item is not None
    if batch:
        annotation = item if item is not None else Any
    return Handler(
        name=name,
        function=function,
        is_async=inspect.iscoroutinefunction(called),
        batch=batch,
        decode=decoder_of(annotation, name),
        context=context,
        retries=options.retries,
        retry_invalid=options.retry_invalid,
    )


def _parameters(function: Callable[..., Any], name: str) -> tuple[str, str | None]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise HandlerUnusable("A handler must return, not yield", handler=name)
    parameters = inspect.signature(function).parameters
    hints = _hints(function, name)
    contexts = [each for each in parameters if _is_context(hints.get(each)) or each in ("context", "contexts")]
    others = [each for key, each in parameters.items() if key not in contexts]
    payloads = [each for each in others if each.kind in _POSITIONAL]
    needed = [each.name for each in others if each.default is each.empty and each.kind not in _VARIADIC]
    if not payloads or len(contexts) > 1 or set(needed) - {payloads[0].name}:
        remedy = "define one parameter for the payload, and optionally one for the context"
        raise HandlerUnusable("The handler's parameters are not supported", handler=name, remedy=remedy)
    return payloads[0].name, contexts[0] if contexts else None


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _hints(function: Callable[..., Any], name: str) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        remedy = "import the names in its annotations at run time, not only for type checking"
        raise HandlerUnusable("An annotation cannot be resolved", handler=name, error=error, remedy=remedy) from None


def _is_context(annotation: Any) -> bool:
    return annotation is Context or (_item_of(annotation) is Context)


def _item_of(annotation: Any) -> Any | None:
    if typing.get_origin(annotation) in (list, Sequence):
        return typing.get_args(annotation)[0]
    return None
