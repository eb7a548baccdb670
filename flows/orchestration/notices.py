"""Notices to people: automations in Prefect that send events to a channel of Slack or by e-mail.

The server sends them, so nobody needs to watch a run.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from prefect.automations import Automation
from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.notifications import CustomWebhookNotificationBlock, SlackWebhook
from prefect.client.orchestration import get_client
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import EventTrigger, Posture
from pydantic import SecretStr

from flows.orchestration.events import DATA_DRIFTED, DRIFTED, PROMOTED, REFUSED

if TYPE_CHECKING:
    from uuid import UUID

FAILED, CRASHED = "prefect.flow-run.Failed", "prefect.flow-run.Crashed"
"""Prefect's own events; a run crashes where its process ends without a word."""
EVENTS = (PROMOTED, REFUSED, DRIFTED, DATA_DRIFTED, FAILED, CRASHED)
SUBJECT = "{{ event.event }}"
BODY = (
    "{{ event.payload.get('summary') or event.payload.get('message') or "
    "event.resource['prefect.resource.name'] }}"
)


def notify_webhook(
    url: str, *, events: Sequence[str] = EVENTS, name: str = "astra-webhook"
) -> None:
    """Makes the server post each of the events as ``{"text": ...}``, which Slack takes."""
    told = {"text": "{{subject}}: {{body}}"}
    block = CustomWebhookNotificationBlock(name=name, url=url, json_data=told)
    notify(block, events=events, name=name)


def notify_mail(url: str, *, events: Sequence[str] = EVENTS, name: str = "astra-mail") -> None:
    """Makes the server mail each of the events.

    ``url``: the account in Apprise's notation, ``mailtos://user:password@host/?from=...&to=...``.
    """
    # Prefect has no block for SMTP; this one hands every address that is not Slack's to Apprise.
    notify(SlackWebhook(url=SecretStr(url)), events=events, name=name)


def notify(block: NotificationBlock, *, events: Sequence[str] = EVENTS, name: str) -> None:
    """Makes the server send each of the events; a later call replaces an earlier one.

    ``events``: names of events from ``docs/prefect.md``, or of Prefect's own.
    """
    document = cast("UUID", block.save(name, overwrite=True))
    with get_client(sync_client=True) as client:
        for earlier in client.read_automations_by_name(name):
            client.delete_automation(earlier.id)
    Automation(
        name=name,
        description="Sends what happened to people.",
        trigger=EventTrigger(
            expect=set(events),
            match={"prefect.resource.id": ["astra.*", "prefect.flow-run.*"]},
            posture=Posture.Reactive,
            threshold=1,
        ),
        actions=[SendNotification(block_document_id=document, subject=SUBJECT, body=BODY)],
    ).create()
