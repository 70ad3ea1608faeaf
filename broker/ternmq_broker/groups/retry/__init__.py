"""Retries of messages that could not be consumed, and dead letters."""

from ternmq_broker.groups.retry.group_topics import GroupTopics as GroupTopics
from ternmq_broker.groups.retry.send_back import SendBackService as SendBackService
from ternmq_broker.groups.retry.send_back import SendBackServiceContext as SendBackServiceContext
