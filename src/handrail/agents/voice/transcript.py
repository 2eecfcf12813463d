"""Writes a spoken conversation into the `Conversation`, so that the text chat and the next model know all of it.

A call stands there from the moment it is made. Until its envelope comes, a placeholder says that none has come. So a call is
never without an answer, whatever ends the conversation in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from handrail.agents.conversation import Conversation, lost
from handrail.contract.call import Call
from handrail.contract.live import Answer, Note, Utterance
from handrail.contract.model import AssistantMessage, HostMessage, Message, ToolMessage, UserMessage
from handrail.providers.live_history import late_note

UNHEARD = "(The person spoke; their words are not known.)"
"""In the place of words that come later, or never."""


class VoiceTranscript:
    """Writes into one conversation."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation

    def history(self, tokens: int) -> list[Utterance | Answer | Note]:
        """What was said, called and told before, for a model that begins to listen."""
        self.conversation.tell_later()
        said: list[Utterance | Answer | Note] = []
        made: list[Call] = []
        for message in self.conversation.within(tokens):
            if isinstance(message, UserMessage) and message.text.strip():
                said.append(Utterance("user", message.text))
            elif isinstance(message, HostMessage):
                said.append(Note(message.text))
            elif isinstance(message, AssistantMessage):
                said += [Utterance("model", message.text)] if message.text.strip() else []
                made += message.calls
            elif isinstance(message, ToolMessage):
                said += _answer_in_history(made, message)
        return said

    def say(self, text: str) -> AssistantMessage | None:
        """Something that the user was told."""
        if not text.strip():
            return None
        message = AssistantMessage(text)
        self.conversation.add(message)
        return message

    def cut(self, message: AssistantMessage, heard: str) -> AssistantMessage | None:
        """The user heard only so much of it."""
        if not heard.strip():
            if not message.calls:
                self.replace(message, None)
                return None
            kept = AssistantMessage("", message.calls)
        else:
            kept = AssistantMessage(f"{heard} …", message.calls)
        self.replace(message, kept)
        return kept

    def call(
        self, text: str, calls: Sequence[Call], writes: Callable[[Call], bool]
    ) -> tuple[AssistantMessage, list[ToolMessage]]:
        """Calls that the model makes, after these words; what stands in for their envelopes."""
        # With placeholders at once: providers refuse a history in which a call has no answer.
        made = AssistantMessage(text, tuple(calls))
        waiting = [lost(call, doubtful=writes(call)) for call in calls]
        self.conversation.add(made, *waiting)
        return made, waiting

    def note(self, text: str) -> None:
        """Something that the host has told the model."""
        self.conversation.add(HostMessage(text))

    def farewell_words(self) -> str | None:
        """The goodbye of the tool that ended this turn, if it has one."""
        for message in reversed(self.conversation.current_turn()):
            if isinstance(message, ToolMessage) and message.envelope.get("ok"):
                data = message.envelope.get("data")
                words = data.get("farewellMessage") if isinstance(data, Mapping) else None
                if isinstance(words, str) and words:
                    return words
        return None

    def replace(self, old: Message, new: Message | None) -> None:
        """Put a message in the place of another, such as an envelope in that of what stands for it; None takes it away."""
        # By identity, from the end: the conversation may have forgotten its older half, so that places do not last.
        messages = self.conversation.messages
        for place in range(len(messages) - 1, -1, -1):
            if messages[place] is not old:
                continue
            if new is not None:
                messages[place] = new
                return
            del messages[place]
            inputs = self.conversation.inputs
            self.conversation.inputs = {name: at - (at > place) for name, at in inputs.items()}
            return


def _answer_in_history(made: list[Call], message: ToolMessage) -> list[Answer | Note]:
    """The envelope and its call, which is then no longer open; in words if the call has no id."""
    for place, call in enumerate(made):
        if (call.name, call.call_id) == (message.name, message.call_id):
            answer = Answer(made.pop(place), message.envelope)
            return [answer] if call.call_id else [Note(late_note(answer))]
    return []
