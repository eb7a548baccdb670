"""Notices to people: an automation in Prefect that posts events to a webhook.

The server sends them, so nobody needs to watch a run; ``docs/prefect.md`` shows other blocks, such
as Slack's or e-mail.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from prefect.automations import Automation
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import get_client
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import EventTrigger, Posture

from flows.orchestration.events import DATA_DRIFTED, DRIFTED, PROMOTED, REFUSED

if TYPE_CHECKING:
    from uuid import UUID

NAME = "astra-webhook"
BODY = "{{ event.payload.get('summary') or event.payload.get('message', '') }}"


def notify_webhook(
    url: str,
    *,
    events: Sequence[str] = (PROMOTED, REFUSED, DRIFTED, DATA_DRIFTED),
    name: str = NAME,
) -> None:
    """Makes the server post each of the events to an address; a later call replaces an earlier one.

    A post is JSON with a ``title``, the name of the event, and a ``text``, its summary.

    Args:
        url: The address of the webhook.
        events: Names of events from ``docs/prefect.md``.
        name: The name of block and automation: small letters, digits and dashes.
    """
    told = {"title": "{{subject}}", "text": "{{body}}"}
    block = CustomWebhookNotificationBlock(name=name, url=url, json_data=told)
    document = cast("UUID", block.save(name, overwrite=True))
    with get_client(sync_client=True) as client:
        for earlier in client.read_automations_by_name(name):
            client.delete_automation(earlier.id)
    Automation(
        name=name,
        description="Posts what happened to a webhook.",
        trigger=EventTrigger(
            expect=set(events),
            match={"prefect.resource.id": "astra.*"},
            posture=Posture.Reactive,
            threshold=1,
        ),
        actions=[
            SendNotification(block_document_id=document, subject="{{ event.event }}", body=BODY)
        ],
    ).create()
