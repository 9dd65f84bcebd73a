"""A tool that is a Python function of the user's own."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, cast

import anyio

from learnloop.boundary import boundary
from learnloop.clock import paused
from learnloop.codec import (
    ArgumentsError,
    Signature,
    SignatureError,
    canonical_json,
    read_signature,
)
from learnloop.config import ToolConfig
from learnloop.errors import ConfigError, LearnloopError, ToolError
from learnloop.message import ToolCall, ToolSchema
from learnloop.tool import AgentMistake, ToolContext, ToolOutput
from learnloop.tools.loading import load_function
from learnloop.tools.output import output_of

_HINT = "to show the model what it did wrong, raise learnloop.AgentMistake"


class FunctionTool:
    """Calls a function: a plain one in a thread, a coroutine function on the event loop.

    The model is shown what `AgentMistake` says and arguments that do not fit. Raises ToolError
    for every other exception, and for a call that takes too long.
    """

    def __init__(self, config: ToolConfig, root: Path) -> None:
        self._function = load_function(config.function, root, where=_where(config))
        self._signature = _signature(self._function, config)
        self._config = config
        self._is_async = inspect.iscoroutinefunction(self._function) or (
            inspect.iscoroutinefunction(getattr(self._function, "__call__", None))  # noqa: B004
        )
        self._places = anyio.CapacityLimiter(config.max_concurrency)
        self._given_up = set[object]()

    @property
    def schema(self) -> ToolSchema:
        """Return what the model is told; the configuration goes before the function's own words."""
        parameters = self._config.parameters or self._signature.parameters
        return ToolSchema(
            name=self._config.name,
            description=self._config.description or self._signature.description,
            parameters_json=canonical_json(dict(parameters)),
        )

    async def call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
        """Call the function."""
        try:
            values = self._signature.values(call.arguments)
        except ArgumentsError as error:
            return ToolOutput(text=f"error: invalid arguments: {error}", is_error=True)
        values |= dict.fromkeys(self._signature.hidden, context)
        try:
            with boundary("tool"):
                return await self._called(partial(self._function, **values))
        except ToolError as fault:
            if fault.__cause__ is None:
                raise
            what = f"{_where(self._config)}: `{self._config.function}` raised {fault}; {_HINT}"
            raise ToolError(what, kind=fault.kind) from fault.__cause__

    async def _called(self, work: Callable[[], Any]) -> ToolOutput:
        """Run the function within its time and its number of places."""
        try:
            value = await (self._awaited(work) if self._is_async else self._threaded(work))
        except AgentMistake as mistake:
            return output_of(f"error: {mistake}", is_error=True)
        return output_of(value)

    async def _awaited(self, work: Callable[[], Any]) -> object:
        with paused():  # waiting in line is not the agent's time
            await self._places.acquire()
        try:
            return await self._in_time(work())
        finally:
            self._places.release()

    async def _threaded(self, work: Callable[[], Any]) -> object:
        """Run a function that may block. Its place is free again only when it has really ended."""
        loop, borrower = asyncio.get_running_loop(), object()
        await self._place(borrower)
        done: Future[object] = Future()
        done.set_running_or_notify_cancel()  # who stops waiting does not stop it

        def give_back(_: Future[object]) -> None:
            with suppress(RuntimeError):  # the loop may have ended before the function
                loop.call_soon_threadsafe(self._free, borrower)

        done.add_done_callback(give_back)
        run = partial(contextvars.copy_context().run, work)
        # A daemon: a function that hangs must not keep the whole program from ending.
        Thread(target=_settle, args=(done, run), daemon=True, name=self._config.name).start()
        try:
            return await self._in_time(asyncio.wrap_future(done))
        finally:
            if not done.done():
                self._given_up.add(borrower)

    async def _place(self, borrower: object) -> None:
        """Wait for a place; give up when calls that hang hold all of them."""
        while True:
            with paused(), anyio.move_on_after(self._config.timeout_s):
                await self._places.acquire_on_behalf_of(borrower)
                return
            if len(self._given_up) >= self._config.max_concurrency:
                what = f"all {len(self._given_up)} places (max_concurrency) are held by calls that hang"
                raise ToolError(f"{_where(self._config)}: {what}", kind="timeout")

    def _free(self, borrower: object) -> None:
        self._given_up.discard(borrower)
        self._places.release_on_behalf_of(borrower)

    async def _in_time(self, work: Any) -> object:
        with anyio.move_on_after(self._config.timeout_s) as scope:
            return cast("object", await work)
        if scope.cancelled_caught:
            what = f"{_where(self._config)}: no result within {self._config.timeout_s:g} s"
            raise ToolError(what, kind="timeout")
        raise AssertionError("unreachable")


def _settle(done: Future[object], work: Callable[[], Any]) -> None:
    """Run the function and keep what comes of it, whatever that is."""
    try:
        with suppress(SystemExit), boundary("tool"):
            try:
                done.set_result(work())
            except AgentMistake as mistake:
                done.set_exception(mistake)
    except LearnloopError as error:
        done.set_exception(error)
    finally:
        if not done.done():
            done.set_exception(ToolError("the function ended its thread", kind="SystemExit"))


def _where(config: ToolConfig) -> str:
    return f"tool {config.name}"


def _signature(function: Callable[..., Any], config: ToolConfig) -> Signature:
    """Return how the function is called; refuses parameters of the configuration's that differ."""
    where = f"{_where(config)}: `{config.function}`"
    try:
        signature = read_signature(function, hidden=ToolContext)
    except SignatureError as error:
        raise ConfigError(str(error), where=where) from None
    if config.parameters:
        own = cast("dict[str, Any]", config.parameters.get("properties", {}))
        taken = cast("dict[str, Any]", signature.parameters.get("properties", {}))
        needed = cast("list[str]", signature.parameters.get("required", []))
        wrong = sorted(own.keys() - taken.keys()) + [n for n in needed if n not in own]
        if wrong:
            what = f"`parameters` and the function disagree on `{wrong[0]}`"
            fix = f"The function takes: {', '.join(taken) or 'nothing'}."
            raise ConfigError(what, where=where, fix=fix)
    return signature
