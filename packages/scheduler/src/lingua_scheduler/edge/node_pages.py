"""The HTTP pages about nodes of the deployment, and the operator's actions on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.edge import answers, views
from lingua_scheduler.edge.api_call import PageQuery
from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.edge.routes import API, ApiRoute
from lingua_scheduler.edge.sibling_pages import decoded
from lingua_scheduler.runtime.pairing import VALID_MS
from lingua_scheduler.state.keys import identifier
from lingua_scheduler.state.reply import Reply
from lingua_wire.codes import ErrorCode

if TYPE_CHECKING:
    from lingua_scheduler.edge.api_call import ApiCall
    from lingua_scheduler.edge.sibling_pages import Siblings
    from lingua_scheduler.runtime.instance import Instance


class NodePages:
    """The pages about nodes."""

    def __init__(self, instance: Instance, siblings: Siblings) -> None:
        self._instance = instance
        self._siblings = siblings
        self.routes = (
            ApiRoute(
                path=f"{API}/nodes",
                summary="Nodes of the deployment.",
                handler=self.nodes,
                answer=answers.NodePage,
                query=PageQuery,
                asks_store=True,
            ),
            ApiRoute(
                path=f"{API}/nodes/{{id}}",
                summary="One node.",
                handler=self.node,
                answer=answers.NodeAnswer,
                asks_store=True,
            ),
            ApiRoute(
                method="POST",
                path=f"{API}/nodes/{{id}}/drain",
                summary="Stop or resume new work for a node.",
                handler=self.drain,
                answer=answers.DrainAnswer,
                body=answers.DrainRequest,
                asks_store=True,
            ),
            ApiRoute(
                method="POST",
                path=f"{API}/nodes/{{id}}/pairing",
                summary="A code that pairs a session with a node.",
                handler=self.pair,
                answer=answers.PairingAnswer,
                asks_store=True,
            ),
        )

    async def nodes(self, call: ApiCall) -> answers.NodePage:
        """Return a page of nodes."""
        query = call.query
        page = await views.node_page(self._instance, query.after, query.limit, call.seen_by)
        nodes = await self._with_sockets(page.nodes)
        return msgspec.structs.replace(page, nodes=nodes)

    async def node(self, call: ApiCall) -> answers.NodeAnswer:
        """Return one node."""
        found = await views.node_answer(self._instance, identifier("node", call.id))
        if found is None or not views.is_seen(found, call.seen_by):
            raise Problem(404, "NOT_FOUND", "no such node")
        return (await self._with_sockets((found,)))[0]

    async def _with_sockets(
        self, nodes: tuple[answers.NodeAnswer, ...]
    ) -> tuple[answers.NodeAnswer, ...]:
        """Add what siblings know of the nodes whose sockets they have."""
        if all(node.socket is not None for node in nodes):
            return nodes
        kind = dict[str, answers.NodeSocketAnswer]
        sockets: dict[str, answers.NodeSocketAnswer] = {}
        for known in decoded(await self._siblings.ask("node_sockets"), kind):
            sockets |= known
        return tuple(
            msgspec.structs.replace(node, socket=node.socket or sockets.get(node.id))
            for node in nodes
        )

    async def drain(self, call: ApiCall) -> answers.DrainAnswer:
        """Stop or resume new work for a node, whichever instance has its socket."""
        node, draining = await self._own_node(call), call.body.draining
        instance = self._instance
        cell = instance.cells.of_node(node.id)
        reply, leased = await instance.store.nodes.drain(
            cell, node.id, drain=draining, operator=True
        )
        if reply.reply is not Reply.OK:
            raise Problem(404, "NOT_FOUND", "no such node")
        if (here := instance.nodes.get(node.id)) is not None:
            here.drain(is_draining=draining)
        instance.log("node.drains" if draining else "node.resumes", node=node.id, leases=leased)
        for placement in reply.placed:
            instance.effects.push(placement)
        return answers.DrainAnswer(id=node.id, draining=draining, leased=leased)

    async def pair(self, call: ApiCall) -> answers.PairingAnswer:
        """Issue a code that lets one session use a node."""
        node = await self._own_node(call)
        code = await self._instance.node_parts.pairing.issue(node.id)
        self._instance.log("node.pairing_issued", node=node.id)
        return answers.PairingAnswer(id=node.id, code=code, expires_in_s=VALID_MS // 1000)

    async def _own_node(self, call: ApiCall) -> answers.NodeAnswer:
        """Return a node the caller may change: an admin of a tenant only that tenant's nodes."""
        node = await self.node(call)
        if call.seen_by and node.private_to != call.seen_by:
            raise Problem(403, ErrorCode.FORBIDDEN, "the node is not this tenant's own")
        return node
