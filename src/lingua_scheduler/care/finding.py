"""What may be wrong in a store: every kind, in words, with what is done about it.

A finding is one thing of one kind. Two looks agree on it if kind, place and name are the same; its
words and its age may differ. Kinds without a remedy are for a person to judge.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Kind(NamedTuple):
    """A kind of finding: what it is, and what `--repair` does."""

    what: str
    remedy: str = ""


KINDS: Final[dict[str, Kind]] = {
    # Jobs and slots.
    "lease_stale": Kind(
        "a slot is held for an attempt that is over", "give the slot back to its node"
    ),
    "lease_untimed": Kind(
        "a slot held for a job of another cell has no timer to end it",
        "set the timer, or give the slot back if its time is over",
    ),
    "reserved_without_lease": Kind(
        "a reservation is noted and no slot is held for it", "drop the note"
    ),
    "job_without_timer": Kind(
        "a job lives and no timer would end or move it",
        "set its timer; a job whose time is up moves on or ends",
    ),
    "job_kept": Kind(
        "the record of a job that is over stays for ever", "let it expire after jobs.binding_ms"
    ),
    "audio_without_job": Kind(
        "audio is kept for a job that is over", "forget that job, and the audio with the last one"
    ),
    # The queue.
    "pending_broken": Kind(
        "a job counts as waiting and does not, or is in no queue", "queue it, or stop counting it"
    ),
    "queue_broken": Kind(
        "a job is queued and does not wait, or is not counted", "count it, or take it out"
    ),
    "waiting_broken": Kind(
        "a demand is listed as waiting and has no queue, or the reverse", "list it as it is"
    ),
    # Sessions and rooms.
    "session_without_timer": Kind(
        "a session is open and no timer would end it",
        "give it a lease again: its owner renews that, or it lapses",
    ),
    "session_kept": Kind(
        "a session that is closed, or was never opened, stays for ever",
        "let it expire after sessions.resume_ms",
    ),
    "outbox_kept": Kind(
        "outcomes of a session that is gone stay for ever", "let them expire after resume_ms"
    ),
    "relay_without_timer": Kind(
        "outcomes are on their way to listeners and no timer would bring them",
        "set the timer: an instance that lives brings them",
    ),
    "room_without_timer": Kind("no timer would end a room", "set its timer"),
    # Nodes.
    "node_of_dead_instance": Kind(
        "a node counts as connected to an instance that does not live",
        "take it offline and move its jobs",
    ),
    "node_without_timer": Kind("a node's silence would not be noticed", "set its timer"),
    "node_half_known": Kind(
        "a node is listed and has no record, or the reverse", "list it, or take it off the list"
    ),
    "marks_of_no_node": Kind("services of a node that is not known are marked", "drop the marks"),
    "pool_broken": Kind(
        "a pool has a node that is not in it, or is empty", "take the node out, or the pool"
    ),
    # Timers.
    "timer_of_nothing": Kind("a timer is set for something that is not there", "drop the timer"),
    "timer_unknown": Kind("a timer of no known kind: of a newer release, or damage"),
    # Instances.
    "instance_dead": Kind(
        "an instance is silent for long and nobody has taken over from it",
        "remove its inbox if nothing is left in it, and forget it",
    ),
    "inbox_orphan": Kind("an inbox of no known instance", "remove it if nothing is left in it"),
    "inbox_unlisted": Kind(
        "an inbox that no instance would find", "list it, so that a living instance reads it"
    ),
    "instance_half_known": Kind("the record of an instance that is not listed", "delete it"),
    "dead_letters_unlisted": Kind("dead letters that `lingua dlq` would not find", "list them"),
    # Keys.
    "key_unknown": Kind("a key that is not in docs/keys.md: of a newer release, or not ours"),
    "key_of_unknown_cell": Kind("a key of a cell that the settings do not have (`cells`)"),
    "key_wrong_type": Kind("a key holds another type than docs/keys.md says"),
    "key_unreadable": Kind("a record lacks what every such record has"),
    "key_without_ttl": Kind("a key that should end by itself never does", "let it expire"),
    "not_all_looked_at": Kind("there are more keys than one look reads"),
}


class Finding(NamedTuple):
    """One thing that should not be so."""

    kind: str
    # The cell, or the instance; '' for neither.
    where: str
    name: str
    # What exactly, in words.
    about: str
    # For how long, if known.
    age_ms: int | None = None
    # What the repair needs besides.
    args: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return by what two looks know it again."""
        return (self.kind, self.where, self.name)
