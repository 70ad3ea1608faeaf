"""ListSettings and UpdateSettings: settings at run time, for operators.

Source: RocketMQ `AdminBrokerProcessor.getBrokerConfig`, `updateBrokerConfig`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ternmq_broker.live_settings import LiveSettings
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import LIST_SETTINGS, UPDATE_SETTINGS

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SettingsService:
    """The part of the Admin contract that concerns settings. Owns nothing."""

    settings: LiveSettings

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of the service."""
        return (
            unary(LIST_SETTINGS, self.list_settings),
            unary(UPDATE_SETTINGS, self.update_settings),
        )

    async def list_settings(
        self, request: admin.ListSettingsRequest, call: Call
    ) -> admin.ListSettingsReply:
        """Return the settings that may change at run time."""
        reply = admin.ListSettingsReply()
        for one in self.settings.listed():
            reply.settings.add(
                name=one.name,
                value=one.value,
                least="" if one.bounds is None else str(one.bounds.least),
                most="" if one.bounds is None else str(one.bounds.most),
                description=one.doc,
            )
        return reply

    async def update_settings(
        self, request: admin.UpdateSettingsRequest, call: Call
    ) -> admin.UpdateSettingsReply:
        """Change settings before the reply."""
        for name, value in self.settings.update(dict(request.values)).items():
            logger.info("setting changed setting=%s value=%s address=%s", name, value, call.peer)
        return admin.UpdateSettingsReply()
