"""The RPCs of a NameServer: request, table, reply."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from ternmq_model.clock import Clock
from ternmq_model.errors import RefusedError, invalid, refusal
from ternmq_model.names import check_topic
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import ORDER_NAMESPACE, check_broker_name, check_cluster
from ternmq_nameserver.epoch_store import EpochStore
from ternmq_nameserver.kv_store import KvStore
from ternmq_nameserver.kv_table import (
    NAMESPACE_BYTES_MAX,
    check_namespace_size,
    check_setting_name,
    size_of,
)
from ternmq_nameserver.registration import TOPICS_MAX, BrokerRegistration
from ternmq_nameserver.route_changes import RouteChange
from ternmq_nameserver.route_table import RouteTable
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting import service_methods
from ternmq_remoting.converters import (
    broker_data_to_pb,
    broker_member_to_pb,
    data_version_from_pb,
    endpoint_to_pb,
    endpoints_from_pb,
    route_to_pb,
    status_of,
    topic_config_from_pb,
)
from ternmq_remoting.pagination import items_wanted, names_of, page_of, token_of
from ternmq_remoting.rpc import Call, Handler, may_know_topic, unary

logger = logging.getLogger(__name__)


class NameServerService:
    """Serves one route table and one store of settings, both of the same loop.

    Args:
        routes: Table of routes.
        settings: Store of key-value settings.
        epochs: Store of the highest epoch of each broker name.
        clock: Measures the silence of brokers.
        expiry_ms: Expiry of brokers that send none.
        warnings: Returns what is not safe about the NameServer.
    """

    def __init__(
        self,
        routes: RouteTable,
        settings: KvStore,
        epochs: EpochStore,
        clock: Clock,
        *,
        expiry_ms: int,
        warnings: Callable[[], Sequence[str]],
    ) -> None:
        self._routes = routes
        self._settings = settings
        self._epochs = epochs
        self._clock = clock
        self._expiry_ms = expiry_ms
        self._warnings = warnings

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of all RPCs of the contract."""
        return (
            unary(service_methods.REGISTER_BROKER, self.register_broker),
            unary(service_methods.UNREGISTER_BROKER, self.unregister_broker),
            unary(service_methods.GET_TOPIC_ROUTE, self.get_topic_route),
            unary(service_methods.GET_CLUSTER, self.get_cluster),
            unary(service_methods.LIST_TOPICS, self.list_topics),
            unary(service_methods.PUT_KV, self.put_kv),
            unary(service_methods.GET_KV, self.get_kv),
            unary(service_methods.DELETE_KV, self.delete_kv),
            unary(service_methods.WIPE_WRITE_PERMISSION, self.wipe_write_permission),
            unary(service_methods.ADD_WRITE_PERMISSION, self.add_write_permission),
            unary(service_methods.GET_EPOCH, self.get_epoch),
        )

    async def expire(self) -> bool:
        """Remove silent brokers: the step of a job."""
        _log(self._routes.expire(now_ms=self._clock.monotonic_ms()))
        return False

    async def register_broker(
        self, request: pb.RegisterBrokerRequest, _call: Call
    ) -> pb.RegisterBrokerReply:
        """Register a broker and its topics; the reply comes when a new epoch is on disk."""
        registration = self._registration_of(request)
        name = (registration.cluster, registration.broker_name)
        try:
            if not self._epochs.has_saved(*name, registration.epoch):
                self._routes.check(registration, highest_epoch=self._epochs.highest(*name))
                await self._epochs.accept(*name, registration.epoch)
                registration = self._registration_of(request)  # its topics may have become unknown
            registered = self._routes.register(
                registration,
                now_ms=self._clock.monotonic_ms(),
                highest_epoch=self._epochs.highest(*name),
            )
        except RefusedError as error:
            logger.warning("registration refused code=%s reason=%s", error.code, error.remark)
            if error.code == ResponseCode.FLOW_CONTROL:
                self._routes.keep_alive(registration, now_ms=self._clock.monotonic_ms())
            if error.code != ResponseCode.ILLEGAL_OPERATION:
                raise
            return pb.RegisterBrokerReply(
                status=status_of(error), highest_epoch=self._epochs.highest(*name)
            )
        _log(registered.changes)
        return pb.RegisterBrokerReply(
            master_endpoints=map(endpoint_to_pb, registered.master_endpoints),
            order_topic_config=self._order_topic_config(),
            highest_epoch=self._epochs.highest(*name),
            members=map(broker_member_to_pb, registered.members),
        )

    async def unregister_broker(
        self, request: pb.UnregisterBrokerRequest, _call: Call
    ) -> pb.UnregisterBrokerReply:
        """Remove a broker that leaves."""
        changes = self._routes.unregister(
            cluster=request.cluster,
            broker_name=request.broker_name,
            broker_id=request.broker_id,
            incarnation=request.incarnation,
            now_ms=self._clock.monotonic_ms(),
        )
        _log(changes)
        return pb.UnregisterBrokerReply()

    async def get_topic_route(
        self, request: pb.GetTopicRouteRequest, _call: Call
    ) -> pb.GetTopicRouteReply:
        """Return the route of a topic."""
        route = self._routes.topic_route(check_topic(request.topic))
        order = self._settings.table.get(ORDER_NAMESPACE, request.topic) or ""
        return pb.GetTopicRouteReply(route=route_to_pb(replace(route, order_topic_conf=order)))

    async def get_cluster(self, request: pb.GetClusterRequest, _call: Call) -> pb.GetClusterReply:
        """Return every broker, or those of one name."""
        behind = names_of(request.page_token)
        found = (
            broker_data_to_pb(data)
            for data in self._routes.clusters(request.broker_name)
            if (data.cluster, data.broker_name) > behind
        )
        page, has_more = page_of(found, request.page_size, lambda data: data.ByteSize())
        token = token_of(page[-1].cluster, page[-1].broker_name) if has_more else ""
        is_first = not (request.page_token or request.broker_name)
        left = self._routes.reserved_names() if is_first else ()
        warnings = self._warnings() if is_first else ()
        return pb.GetClusterReply(brokers=page, next_page_token=token, left=left, warnings=warnings)

    async def list_topics(self, request: pb.ListTopicsRequest, call: Call) -> pb.ListTopicsReply:
        """Return a page of the topics about which the caller may know."""
        cluster = check_cluster(request.cluster) if request.cluster else ""
        maximum, permits = items_wanted(request.page_size), call.permits

        def found() -> Iterator[str]:
            after = request.page_token
            while topics := self._routes.topics(cluster, after=after, maximum=maximum):
                yield from filter(partial(may_know_topic, permits), topics)
                after = topics[-1]

        page, has_more = page_of(found(), request.page_size, len)
        return pb.ListTopicsReply(topics=page, next_page_token=page[-1] if has_more else "")

    async def put_kv(self, request: pb.PutKvRequest, _call: Call) -> pb.PutKvReply:
        """Store a setting; the reply comes when it is on disk."""
        await self._settings.put(request.namespace, request.key, request.value)
        return pb.PutKvReply()

    async def get_kv(self, request: pb.GetKvRequest, call: Call) -> pb.GetKvReply:
        """Return one setting, or those of a namespace: of topics those the caller may know."""
        check_setting_name("namespace", request.namespace)
        if not request.key:
            values = self._settings.table.values(request.namespace)
            if request.namespace == ORDER_NAMESPACE:
                values = {key: values[key] for key in values if may_know_topic(call.permits, key)}
            check_namespace_size(request.namespace, values)
            return pb.GetKvReply(values=values)
        value = self._settings.table.get(request.namespace, request.key)
        if value is None:
            remark = f"no setting {request.namespace}/{request.key} exists"
            raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return pb.GetKvReply(values={request.key: value})

    async def delete_kv(self, request: pb.DeleteKvRequest, _call: Call) -> pb.DeleteKvReply:
        """Delete a setting; the reply comes when that is on disk."""
        await self._settings.delete(request.namespace, request.key)
        return pb.DeleteKvReply()

    async def wipe_write_permission(
        self, request: pb.WipeWritePermissionRequest, _call: Call
    ) -> pb.WipeWritePermissionReply:
        """Remove the write permission from the topics of a broker."""
        name = check_broker_name(request.broker_name)
        changed = self._routes.wipe_write_permission(name)
        logger.info("write permission wiped broker=%s topics=%s", name, changed)
        return pb.WipeWritePermissionReply(topics_changed=changed)

    async def add_write_permission(
        self, request: pb.AddWritePermissionRequest, _call: Call
    ) -> pb.AddWritePermissionReply:
        """Restore the write permission of the topics of a broker."""
        name = check_broker_name(request.broker_name)
        changed = self._routes.add_write_permission(name)
        logger.info("write permission restored broker=%s topics=%s", name, changed)
        return pb.AddWritePermissionReply(topics_changed=changed)

    async def get_epoch(self, request: pb.GetEpochRequest, _call: Call) -> pb.GetEpochReply:
        """Return the highest epoch of a broker name."""
        cluster, name = check_cluster(request.cluster), check_broker_name(request.broker_name)
        highest = self._epochs.highest(cluster, name)
        return pb.GetEpochReply(is_known=bool(highest), highest_epoch=highest)

    def _order_topic_config(self) -> dict[str, str]:
        # A registration without the order of topics is better than no registration.
        values = self._settings.table.values(ORDER_NAMESPACE)
        return values if size_of(values) <= NAMESPACE_BYTES_MAX else {}

    def _registration_of(self, request: pb.RegisterBrokerRequest) -> BrokerRegistration:
        if len(request.topics) > TOPICS_MAX:  # checked before they are parsed
            raise invalid(f"{len(request.topics)} topics: a broker has at most {TOPICS_MAX}")
        version = data_version_from_pb(request.data_version)
        rows: tuple[bytes, ...] = ()
        if not self._routes.has_topics_of(
            request.broker_name, request.broker_id, request.incarnation, version
        ):
            rows = tuple(config.SerializeToString() for config in request.topics)
        known = self._routes.topics_by_row(request.broker_name)
        topics = (
            known.get(row) or topic_config_from_pb(config)
            for row, config in zip(rows, request.topics, strict=False)
        )
        return BrokerRegistration(
            cluster=request.cluster,
            broker_name=request.broker_name,
            broker_id=request.broker_id,
            endpoints=endpoints_from_pb(request.endpoints),
            incarnation=request.incarnation,
            epoch=request.epoch,
            data_version=version,
            topics=tuple(topics),
            rows=rows,
            expiry_ms=request.expiry_ms or self._expiry_ms,
        )


def _log(changes: Iterable[RouteChange]) -> None:
    for change in changes:
        logger.info(change.template, *change.args)
