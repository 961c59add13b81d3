"""The kinds of damage in a store, with a description and a remedy for each.

A finding is one instance of a kind. Two scans agree on it if kind, place and name are the same; its
description and its age may differ. For kinds without a remedy, an operator must decide.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Kind(NamedTuple):
    """A kind of finding: its description, and what `--repair` does."""

    what: str
    remedy: str = ""


KINDS: Final[dict[str, Kind]] = {
    # Jobs and slots.
    "lease_stale": Kind(
        "a slot is held for an attempt that has ended", "give the slot back to its node"
    ),
    "lease_untimed": Kind(
        "a slot held for a job of another cell has no timer to end it",
        "set the timer, or give the slot back if it has lapsed",
    ),
    "reserved_without_lease": Kind(
        "a reservation is recorded and no slot is held for it", "delete the record"
    ),
    "job_without_timer": Kind(
        "a job is open and no timer would end or move it",
        "set its timer; a job that is overdue moves to another node or ends",
    ),
    "job_kept": Kind(
        "the record of a job that has ended never expires", "let it expire after jobs.binding_ms"
    ),
    "audio_without_job": Kind(
        "audio is kept for a job that has ended",
        "remove that job from it, and the audio with the last job",
    ),
    # The queue.
    "pending_broken": Kind(
        "a job counts as waiting but does not wait, or is in no queue",
        "queue it, or stop counting it",
    ),
    "queue_broken": Kind(
        "a job is queued but does not wait, or is not counted", "count it, or remove it"
    ),
    "waiting_broken": Kind(
        "a demand is listed as waiting and has no queue, or the reverse", "correct the list"
    ),
    # Sessions and rooms.
    "session_without_timer": Kind(
        "a session is open and no timer would end it",
        "give it a lease again: its owner renews the lease, or the session lapses",
    ),
    "session_kept": Kind(
        "a session that is closed, or was never opened, never expires",
        "let it expire after sessions.resume_ms",
    ),
    "outbox_kept": Kind(
        "outcomes of a session that has ended never expire", "let them expire after resume_ms"
    ),
    "relay_without_timer": Kind(
        "outcomes for listeners are pending and no timer would deliver them",
        "set the timer: a live instance delivers them",
    ),
    "room_without_timer": Kind("no timer would end a room", "set its timer"),
    # Nodes.
    "node_of_dead_instance": Kind(
        "a node counts as connected to an instance that is not alive",
        "take it offline and move its jobs",
    ),
    "node_without_timer": Kind("a node's silence would not be noticed", "set its timer"),
    "node_half_known": Kind(
        "a node is listed and has no record, or the reverse", "list it, or remove it from the list"
    ),
    "marks_of_no_node": Kind("services of an unknown node are marked", "delete the marks"),
    "streams_of_no_node": Kind(
        "an unknown node hears streams, or streams that expired long ago", "delete what expired"
    ),
    "pool_broken": Kind(
        "a pool lists a node of another pool, or is empty", "remove the node, or the pool"
    ),
    "streaming_broken": Kind(
        "a node ranks among those that take streams, and is not in that pool", "remove the node"
    ),
    # Timers.
    "timer_of_nothing": Kind(
        "a timer is set for an object that does not exist", "delete the timer"
    ),
    "timer_unknown": Kind("a timer of an unknown kind: from a newer release, or damage"),
    # Instances.
    "instance_dead": Kind(
        "an instance has been silent for long and none has taken over from it",
        "remove its inbox if nothing is left in it, and delete its record",
    ),
    "inbox_orphan": Kind("an inbox of an unknown instance", "remove it if nothing is left in it"),
    "inbox_unlisted": Kind(
        "an inbox that no instance would find", "list it, so that a live instance reads it"
    ),
    "instance_half_known": Kind("the record of an instance that is not listed", "delete it"),
    "dead_letters_unlisted": Kind("dead letters that `lingua dlq` would not find", "list them"),
    # Keys.
    "key_unknown": Kind("a key that is not in docs/keys.md: from a newer release, or foreign"),
    "key_of_unknown_cell": Kind("a key of a cell that is not in the settings (`cells`)"),
    "key_wrong_type": Kind("a key holds another type than docs/keys.md says"),
    "key_unreadable": Kind("a record lacks a field that every such record has"),
    "key_without_ttl": Kind("a key that should expire never does", "let it expire"),
    "not_all_looked_at": Kind("there are more keys than one scan reads"),
}


class Finding(NamedTuple):
    """One piece of damage."""

    kind: str
    # The cell, or the instance; '' for neither.
    where: str
    name: str
    # Details, in words.
    about: str
    # How long it has been so, if known.
    age_ms: int | None = None
    # Further arguments of the repair.
    args: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return what identifies the finding in two scans."""
        return (self.kind, self.where, self.name)
