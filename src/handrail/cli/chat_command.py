"""Talk to the project's tools on this terminal: type, watch the calls, approve what needs a person.

Ctrl-C cancels the turn that runs, and at the prompt it leaves; so does the end of the input. Piped, each line is a message. With
`--json` each event is a line of JSON, and a line of input that begins with { is a command: {"text": …}, {"approve": ID},
{"decline": ID}. A request that is shown anew, because its facts have changed, is approved with the number of that "showing".
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace

from handrail.app import check_roles, open_agent, open_runtime
from handrail.cli.chat_lines import Lines
from handrail.cli.chat_screen import JsonScreen, PlainScreen, Screen
from handrail.cli.logging_flag import add_log_level_flag, log_to_stderr
from handrail.cli.model_lines import add_model_flag, load_model, offer_lines
from handrail.cli.output import authors_speak_aside, warn
from handrail.cli.project import (
    add_role_flag,
    current_settings,
    fresh_registry,
    kept_or_scratch,
    with_reference_tools,
)
from handrail.cli.terminal_chat import TerminalChat
from handrail.clients.model_choice import ModelChoice
from handrail.contract.errors import UsageError
from handrail.runtime.local_time import attributes_for
from handrail.settings import Settings
from handrail.standard_runtime import Runtime
from handrail.text_model import choose_working_model, open_model

EXAMPLES = """examples:
  handrail chat
  handrail chat "What is Handrail?"
  printf 'What is Handrail?\\nthanks\\n' | handrail chat --json"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("message", nargs="?", help="one message; its answer ends the command")
    parser.add_argument("--user", help="the user who speaks")
    add_role_flag(parser)
    add_model_flag(parser)
    parser.add_argument("--yes", action="store_true", help="approve what needs an approval, without asking")
    parser.add_argument("--registry", metavar="FILE", help="another artifact than the project's, as it is")
    parser.add_argument("--json", action="store_true", help="print each event as a line of JSON")
    add_log_level_flag(parser, default="error on a terminal, else warning")


def run(options: Namespace) -> int:
    user = options.user
    # Bytes that are no text arrive as halves of surrogates.
    if user is not None and not (user.strip() and user.isprintable()):
        raise UsageError(f"--user must be text; {options.user!r} is not.")
    if options.message is not None and not options.message.strip():
        raise UsageError("The message is blank; say something, or leave it out and type.")
    # On a terminal a warning for operators would stand between a question and its answer.
    log_to_stderr(options.log_level or ("error" if sys.stderr.isatty() else None))
    with kept_or_scratch(current_settings(), "chat") as found:
        settings = with_reference_tools(found)
        registry = fresh_registry(settings, options.registry)
        check_roles(settings, options.roles)
        for sentence in registry.refused.values():
            warn(f"handrail chat: {sentence}")
        choice = choose_working_model(settings, options.model)
        for line in (choice.sentence, *offer_lines(choice)):
            warn(f"handrail chat: {line}")
        screen: Screen = JsonScreen(sys.stdout) if options.json else PlainScreen(sys.stdout)
        lines = Lines(None if options.message is None else [options.message])
        with authors_speak_aside():
            runtime = open_runtime(settings, registry)
            return asyncio.run(_converse(settings, choice, runtime, screen, lines, options))


async def _converse(
    settings: Settings, choice: ModelChoice, runtime: Runtime, screen: Screen, lines: Lines, options: Namespace
) -> int:
    async with runtime:
        model = open_model(settings, choice)
        for line in await load_model(model):
            warn(f"handrail chat: {line}")
        agent = open_agent(settings, runtime, model)
        roles = {"roles": options.roles} if options.roles else {}
        facts = {**attributes_for(agent.policy.time_zone), **roles}
        session = await runtime.open_session(user=options.user, attributes=facts)
        talk = TerminalChat(runtime, agent, session, screen, lines, approve_all=options.yes)
        try:
            return await talk.run()
        finally:
            await session.close()
            await agent.model.close()
