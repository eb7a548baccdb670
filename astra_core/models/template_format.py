"""The tokenizer's own chat template as the format of a conversation.

The template is rendered with a mark in the place of each utterance whose ids are known. The sampled
ids are inserted there, and the text between two of them is encoded as one string. So a continued
conversation begins with the same tokens, which need not be read again.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from astra_core.conversation import Conversation, Message
from astra_core.models.chat_format import ChatFormat, Ids, Rendering, Thought
from astra_core.models.control_tokens import continued_ids, is_broken, leading
from astra_core.models.language_model import LanguageModel
from astra_core.models.marked_template import mark, marked_turns, render, spoken_ids, turn_end
from astra_core.rollout.prompt import fill_slots


class TemplateFormat(ChatFormat):
    """The chat template, with the model in the role of the assistant.

    Args:
        model: Its tokenizer has the template. Sampling also ends where its generation
            configuration says.
        system: The system prompt, with slots for the prompt's columns; None for none.
        seed: ``hidden`` leaves the seed prompt out, ``opening`` begins the first message with it.
        tags: The tags around reasoning, which later turns do not read.

    Raises ConfigurationError if there is no template, or it refuses a system prompt or turns.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        system: str | None = None,
        seed: Literal["hidden", "opening"] = "hidden",
        tags: tuple[str, str] = ("<think>", "</think>"),
        where: str = "system.target.options",
    ) -> None:
        super().__init__(model)
        self.system, self.seed, self.tags, self.where = system, seed, tags, where
        text = marked_turns(model.tokenizer, system=system, where=where)
        # Some templates open the reasoning themselves, so that only its end is sampled.
        self.is_opened = text.rstrip().endswith(tags[0])
        ends = getattr(getattr(model.model, "generation_config", None), "eos_token_id", None)
        ends = ends if isinstance(ends, list) else [ends]
        model.allow(
            ends=[*ends, turn_end(model.tokenizer)], others=spoken_ids(model.tokenizer, tags)
        )

    def rendering(self, conversation: Conversation, limit: int) -> Rendering:
        """The whole turns that fit, newest last, and the prompt to answer; older ones are left out.

        A last message that does not fit alone loses its oldest tokens.
        """
        versions = self._versions(conversation)
        ids, last = self._ids(conversation, next(versions))
        whole = len(ids)
        for messages in versions:
            if len(ids) <= limit:
                break
            ids, last = self._ids(conversation, messages)
        cut = max(len(ids) - limit, 0)
        # Without its first token some models answer at random.
        is_opened = cut > 0 and limit > 1 and ids[0] == self.model.tokenizer.bos_token_id
        read = ids[:is_opened] + ids[cut + is_opened :]
        start = max(last[0] - cut, 1)
        return Rendering(read, whole - len(read), (start, max(last[1] - cut, start)))

    def thought(self, token_ids: Sequence[int]) -> Thought:
        """The answer, separated from the reasoning before it."""
        ids, tokenizer = tuple(token_ids), self.model.tokenizer
        opened, closed = self.tags
        text = str(tokenizer.decode(list(ids), skip_special_tokens=False))
        if closed not in text:
            is_unfinished = self.is_opened or text.lstrip().startswith(opened)
            said = "" if is_unfinished else self.model.decode(ids)
            return Thought(text if is_unfinished else "", said, () if is_unfinished else ids)
        ends = range(1, len(ids) + 1)
        at = next(n for n in ends if closed in tokenizer.decode(list(ids[:n])))
        before = str(tokenizer.decode(list(ids[:at])))
        thinking = before.replace(opened, "").replace(closed, "").strip()
        visible = ids[at:]
        while visible and not str(tokenizer.decode(list(visible[:1]))).strip():
            visible = visible[1:]
        return Thought(thinking, self.model.decode(visible), visible)

    def written_ids(self, text: str) -> Ids:
        """The ids of the text, and those with which the template ends an assistant's message.

        A template that opens the reasoning itself is answered without any.
        """
        rendered = self._render(
            [("user", mark(0)), ("assistant", mark(1)), ("user", mark(2))], system=self.system
        )
        after = self.model.encode(rendered[rendered.index(mark(1)) + len(mark(1)) :])
        ends = (place for place, token in enumerate(after) if token in self.model.end_ids)
        stop = next(ends, None)
        ending = after[: stop + 1] if stop is not None else self.model.end_ids[:1]
        closing = f"{self.tags[1]}\n\n" if self.is_opened else ""
        return (*continued_ids(self.model.encode, closing + self.model.as_text(text)), *ending)

    def _versions(self, conversation: Conversation) -> Iterator[Sequence[Message]]:
        """The messages that may be read: all, then without more and more of the oldest turns."""
        messages = conversation.messages
        yield messages
        while len(messages) > 2:
            messages = messages[2:]
            yield messages

    def _ids(
        self, conversation: Conversation, messages: Sequence[Message]
    ) -> tuple[Ids, tuple[int, int]]:
        """All ids that are read, and the place of the last message in them."""
        turns = [(own.role, mark(index)) for index, own in enumerate(messages)]
        if self.seed == "opening" and turns and conversation.prompt.text:
            opening = self.model.as_text(conversation.prompt.text)
            turns[0] = ("user", f"{opening}\n\n{turns[0][1]}")
        text = self._render(turns, system=self._system_prompt(conversation))
        spans = [(text.index(mark(n)), len(mark(n))) for n in range(len(turns))]
        known = [self._answer_ids(own) for own in messages]
        ids: list[int] = []
        pending, last = "", (0, 0)
        for index, (own, (at, width)) in enumerate(zip(messages, spans, strict=True)):
            pending += text[sum(spans[index - 1]) if index else 0 : at]
            if known[index]:
                ids += self._encode(pending, ids)
                last, pending = (len(ids), len(ids) + len(known[index])), ""
                ids += known[index]
            else:
                said = self.model.as_text(own.text)
                if index + 1 == len(messages):
                    return self._with_text(ids, (pending, said, text[at + width :]))
                pending += said
        return (*ids, *self._encode(pending + text[sum(spans[-1]) :], ids)), last

    def _encode(self, text: str, before: Sequence[int]) -> Ids:
        return continued_ids(self.model.encode, text) if before else self.model.encode(text)

    def _with_text(
        self, ids: Sequence[int], parts: tuple[str, str, str]
    ) -> tuple[Ids, tuple[int, int]]:
        """The place of a last message that is known only as text, found by its characters."""
        before, said, after = parts
        if is_broken(before + said + after):
            head = (*ids, *self._encode(before, ids))
            whole = (*head, *continued_ids(self.model.encode, said))
            return (*whole, *continued_ids(self.model.encode, after)), (len(head), len(whole))
        lead = leading(self.model.encode) if ids else ""
        num, before = len(self.model.encode(lead)), lead + before
        found = self.model.tokenizer(
            before + said + after, add_special_tokens=False, return_offsets_mapping=True
        )
        inside = [
            place
            for place, (start, stop) in enumerate(found["offset_mapping"])
            if start < len(before) + len(said) and stop > len(before)
        ]
        first, past = (inside[0], inside[-1] + 1) if inside else (num, num)
        start = len(ids) - num
        return (*ids, *found["input_ids"][num:]), (start + first, start + past)

    def _answer_ids(self, message: Message) -> Ids:
        """The ids of an answer, without reasoning and end; none if only its text is known."""
        ids = message.ids_for(self.model.vocabulary)
        if message.thinking:
            ids = self.thought(ids).visible_ids if message.role == "assistant" else ()
        ids = self.model.readable_ids(ids)
        return ids[:-1] if ids and ids[-1] in self.model.end_ids else ids

    def _system_prompt(self, conversation: Conversation) -> str | None:
        """The system prompt of this conversation."""
        if self.system is None:
            return None
        return fill_slots(self.system, conversation.prompt, spelled=self.model.as_text)

    def _render(self, turns: Sequence[tuple[str, str]], *, system: str | None) -> str:
        return render(self.model.tokenizer, turns, system=system, where=self.where)
