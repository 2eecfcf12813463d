"""Call a tool through the pipeline, as a model would, and print the envelope.

A tool that needs a person's approval asks you on the terminal; `--yes` says yes beforehand. The exit code is 0 for a
success envelope and 1 for a failure.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
import sys
from argparse import ArgumentParser, Namespace
from contextlib import aclosing

from handrail.app import check_roles, open_runtime
from handrail.cli.chat_lines import MAX_TIMES
from handrail.cli.output import authors_speak_aside, print_json, warn
from handrail.cli.project import add_role_flag, current_settings, kept_or_scratch, tools_at_hand, unbuilt
from handrail.cli.terminal_input import confirm
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType, UsageError
from handrail.contract.events import ConnectionWanted, SessionEvent
from handrail.runtime.session import Session
from handrail.schema.strict_json import MAX_ARGUMENT_BYTES
from handrail.standard_runtime import Runtime

EXAMPLES = """examples:
  handrail call lookup_order --args '{"id": "A-1001"}'
  echo '{"id": "A-1001"}' | handrail call lookup_order --args -"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="the tool")
    parser.add_argument("--args", default="{}", metavar="JSON", help="the arguments as JSON; - reads standard input")
    parser.add_argument(
        "--mode", choices=("text", "voice"), default="text", help="the mode of the session (default: text)"
    )
    parser.add_argument("--user", help="the user on whose behalf the call is made")
    parser.add_argument("--tenant", default="", help="the tenant whose session it is (default: none)")
    add_role_flag(parser)
    parser.add_argument("--yes", action="store_true", help="approve the call if it needs an approval")
    parser.add_argument("--registry", metavar="FILE", help="another artifact than the project's")
    parser.add_argument("--json", action="store_true", help="print the envelope as JSON (the default; for symmetry)")


def run(options: Namespace) -> int:
    if not (options.user or "").isprintable():  # bytes that are no text arrive as halves of surrogates
        raise UsageError(f"--user must be text; {options.user!r} is not.")
    if not options.tenant.isprintable():
        raise UsageError(f"--tenant must be text; {options.tenant!r} is not.")
    if options.args.startswith("@"):
        raise UsageError("--args takes JSON and no file; to read one, write `--args - < FILE`.")
    # As bytes, and no more than can be right: whether they are text is for the pipeline to say.
    args = sys.stdin.buffer.read(MAX_ARGUMENT_BYTES + 1) if options.args == "-" else options.args
    with kept_or_scratch(current_settings(), "call") as found:
        settings, registry = tools_at_hand(found, options.registry)
        check_roles(settings, options.roles)
        with authors_speak_aside():
            response = asyncio.run(_call(open_runtime(settings, registry), options, args))
    print_json(response.to_dict())
    if response.error is not None and response.error.type is ErrorType.NOT_FOUND:
        known = options.registry is not None or options.name in registry.snapshot()
        if not known and (sentence := unbuilt(settings, options.name)):
            warn(sentence)
    return 0 if response.ok else 1


async def _call(runtime: Runtime, options: Namespace, args: str | bytes) -> ToolResponse:
    """One call is one turn of a session of its own."""
    async with runtime:
        roles = {"roles": options.roles} if options.roles else {}
        session = await runtime.open_session(
            mode=options.mode, user=options.user, tenant=options.tenant, attributes=roles
        )
        await session.begin_turn()
        # An id of its own, by which `handrail audit why` finds it.
        response = await session.call(options.name, args, call_id=f"call_{secrets.token_hex(8)}")
        held = response.error is not None and response.error.type is ErrorType.CONFIRMATION_REQUIRED
        if held and (options.yes or sys.stdin.isatty()):
            response = await _ask(runtime, session, options) or response
        elif held:
            warn("It waits for a person; `--yes` approves it beforehand, a terminal asks.")
        await session.close()
        async with aclosing(
            session.events_queue.listen()
        ) as events:  # what was kept; it ends, as the session has ended
            async for event in events:
                _tell_connection(event, options)
        if response.error is not None and response.error.type is ErrorType.AUTH and not options.user:
            warn(
                "The call has no user: `--user local` makes it for the user of `handrail connect`, `--user NAME` for another."
            )
        return response


def _tell_connection(event: SessionEvent, options: Namespace) -> None:
    """The link goes to the person alone; on a terminal it is a command."""
    if isinstance(event, ConnectionWanted):
        whose = ["--user", options.user, *(["--tenant", options.tenant] if options.tenant else [])]
        warn(f"Connect {event.label} first: run `{event.command} {shlex.join(whose)}`, then call again.")


async def _ask(runtime: Runtime, session: Session, options: Namespace) -> ToolResponse | None:
    """Put the held call to the person at the terminal: this is the user's own channel. Asked again while its facts change."""
    times, yes = 0, options.yes
    async with aclosing(session.events()) as events:
        async for event in events:
            _tell_connection(event, options)
            if event.type != "confirmation":
                continue
            times += 1
            confirmation, token = event.data["id"], event.data["token"]
            if not (yes or confirm("Run it?", event.data["preview"])):
                return await runtime.decline(confirmation, token=token)
            answer = await runtime.approve(confirmation, token=token, via="--yes" if yes else "terminal")
            is_asked_anew = answer.error is not None and answer.error.type is ErrorType.CONFIRMATION_REQUIRED
            if answer.error is None or not is_asked_anew or (yes and times == MAX_TIMES):
                return answer
            warn(answer.error.message)
    return None
