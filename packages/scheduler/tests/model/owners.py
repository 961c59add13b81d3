"""The steps about sessions: present and former owners, and clients that resume.

A part of the machine in `test_machine.py`, which has the rest: time, nodes and jobs. Every owner
of a session is kept with its fence, so that a former owner can act as if it were still the owner:
it must be refused, and nothing may change.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from lingua_scheduler.state.records import Claim, JobSpec, SessionOpening, job_id_of
from lingua_scheduler.state.reply import Reply
from model.answers import released_rows, settled
from model.samples import DEMANDS, INSTANCES, SESSIONS
from model.state import read_keys

SESSION_LEASE_MS = 60_000
PREFIX = "model"

pick = st.integers(0, 1_000_000)
chance = st.booleans()
seldom = st.integers(0, 7).map(lambda n: n == 0)
owners = st.sampled_from(INSTANCES)

FORMER_OWNERS_DO = ("submit", "fill", "acknowledge", "close", "end_turn", "note", "open")


class Grant(NamedTuple):
    """That an instance became a session's owner, under a fence."""

    owner: str
    fence: int


def token_of(name: str) -> str:
    return f"token of {name}"


class Owners:
    """The life of sessions."""

    def fence_of(self, name: str, *, mine: bool) -> int:
        """The session's fence, as its owner knows it; 0: a caller that is nobody's owner."""
        session = self.home(name)[1].sessions.get(name)
        return session.fence if mine and session is not None else 0

    def heard_of(self, name: str) -> int:
        """Up to where the stream is in the store."""
        session = self.home(name)[1].sessions.get(name)
        return session.heard if session is not None else -1

    # Opening, and opening again

    @rule(
        which=pick,
        owner=owners,
        tenant=seldom,
        fence=st.sampled_from(("none", "none", "own", "own", "before", "after")),
        restart=chance,
        bare=seldom,
    )
    def open_session(self, which, owner, tenant, fence, restart, bare) -> None:
        """A new one, an owner's second try, or an owner that has more than the store."""
        name = SESSIONS[which % len(SESSIONS)]
        known = self.home(name)[1].sessions.get(name)
        now = known.fence if known is not None else 1
        fences = {"none": 0, "own": now, "before": max(1, now - 1), "after": now + 1}
        fields = ("token", token_of(name), "about", f"opened at {self.now}")
        if fences[fence]:
            fields += ("top", 100, "heard", 1000, "heard_ms", 0)
        opening = SessionOpening(fences[fence], restart and fence != "none", () if bare else fields)
        self.open_as(name, owner, "other" if tenant else "", opening)

    def open_as(self, name: str, owner: str, tenant: str, opening: SessionOpening) -> None:
        cell, twin = self.home(name)
        reply, epoch, fence = self.world.run(
            self.store.sessions.open(
                cell, name, owner, tenant=tenant, lease_ms=SESSION_LEASE_MS, opening=opening
            )
        )
        expected = twin.session_open(name, owner, tenant, SESSION_LEASE_MS, opening)
        self.same((reply.name, epoch, fence)[: len(expected)], expected)
        if reply is not Reply.FENCED:
            self.granted(name, owner, fence)
        if reply is Reply.OPENED or (reply is Reply.RESUMED and opening.restart):
            self.watch.starts_over(name, keeps_outbox=reply is Reply.RESUMED)

    def granted(self, name: str, owner: str, fence: int) -> None:
        grant = Grant(owner, fence)
        if grant not in self.grants[name]:
            self.grants[name].append(grant)

    # Clients that come back

    @rule(
        which=pick,
        owner=owners,
        token=st.sampled_from(("right", "right", "right", "right", "wrong", "")),
        tenant=seldom,
        epoch=st.sampled_from(("now", "now", "now", "now", "1", "")),
        base=st.sampled_from(("seq", "seq", "trimmed")),
        off=st.integers(-2, 2),
        forgets=seldom,
        confirms=chance,
    )
    def resume(self, which, owner, token, tenant, epoch, base, off, forgets, confirms) -> None:
        name = SESSIONS[which % len(SESSIONS)]
        cell, twin = self.home(name)
        session = twin.sessions[name]
        if forgets:
            # What it now asks for is gone, perhaps because it acknowledged it meanwhile.
            self.fill(cell, twin, name, "es", self.after(name, "es"), -1)
            place = (str(session.epoch), session.seq, session.fence)
            self.confirm_outcomes(name, *place, is_confirmed=confirms)
        claim = Claim(
            token_of(name) if token == "right" else token,
            str(session.epoch) if epoch == "now" else epoch,
            max(0, getattr(session, base) + off),
        )
        text = "other" if tenant else session.tenant
        before = session.epoch
        answer = self.world.run(
            self.store.sessions.resume(
                cell, name, owner, tenant=text, lease_ms=SESSION_LEASE_MS, claim=claim
            )
        )
        expected = twin.session_resume(name, owner, text, SESSION_LEASE_MS, claim)
        turns, account = tuple(sorted(answer.turns)), (answer.speech, answer.unsettled)
        real = (answer.reply.name, *answer[1:-3], turns, *account)
        self.same(real[: len(expected)], expected)
        self.world.replies[f"resume {answer.reply.name}"] += 1
        is_same = answer.reply is Reply.RESUMED and claim.epoch == str(session.epoch)
        if is_same and claim.last_seq < session.trimmed:
            self.world.replies["resume after what was confirmed"] += 1
        if answer.reply is Reply.RESUMED:
            self.granted(name, owner, answer.fence)
        if session.epoch != before:
            self.watch.starts_over(name, keeps_outbox=not forgets)
            self.world.replies["resume starts over"] += 1

    # Former owners

    def former(self) -> list[tuple[str, Grant]]:
        """Owners of before, with the session and the fence they had."""
        return [
            (name, grant)
            for name in SESSIONS
            for grant in self.grants[name]
            if grant.fence != self.home(name)[1].sessions[name].fence
        ]

    @precondition(lambda self: self.former())
    @rule(which=pick, act=st.sampled_from(FORMER_OWNERS_DO), lane=st.sampled_from(("es", "fr")))
    def a_former_owner_acts(self, which, act, lane) -> None:
        """One that does not know yet that another has its session: whatever it does is refused."""
        former = self.former()
        name, grant = former[which % len(former)]
        cell, _ = self.home(name)
        keys = self.world.run(read_keys(self.world.connection, cell, PREFIX))
        self.a_former_owner_does(act, name, grant, lane)
        assert keys == self.world.run(read_keys(self.world.connection, cell, PREFIX))

    def a_former_owner_does(self, act, name, grant, lane) -> None:
        cell, twin = self.home(name)
        session = twin.sessions[name]
        replies = self.world.replies.copy()
        if act == "submit":
            spec = JobSpec(
                session=name, index=self.after(name, lane), lane=lane, demand=DEMANDS[0].text,
                fence=grant.fence, top=1_000_000, heard=1_000_000, heard_ms=1,
            )  # fmt: skip
            self.send(cell, twin, job_id_of(name, f"former {len(self.requests)}"), spec, 0)
        elif act == "fill":
            self.fill(cell, twin, name, lane, 0, -1, grant.fence)
        elif act == "acknowledge":
            self.confirm_outcomes(name, str(session.epoch), session.seq, grant.fence)
        elif act == "close":
            self.close(cell, twin, name, lapse_only=False, fence=grant.fence)
        elif act == "end_turn":
            self.finish_turn(name, "t1", grant.fence)
        elif act == "note":
            self.note(name, grant.fence, -1)
        else:
            opening = SessionOpening(grant.fence, restart=True, fields=("token", "stolen"))
            self.open_as(name, grant.owner, session.tenant, opening)
        (reply,) = self.world.replies - replies
        # Whatever it does is refused, and nothing has changed.
        assert reply == "FENCED" or (session.closed and reply in ("SESSION_CLOSED", "NO_SESSION"))
        self.world.replies[f"former {act} {reply}"] += 1

    # What owners do

    @rule(which=pick, owner=owners, noted=seldom, heard_after=st.sampled_from((-1, -1, 6, 1000)))
    def renew_session(self, which, owner, noted, heard_after=-1) -> None:
        name = SESSIONS[which % len(SESSIONS)]
        cell, twin = self.home(name)
        lost = self.world.run(self.store.sessions.renew(cell, owner, [name], SESSION_LEASE_MS))
        assert twin.session_renew(name, owner, SESSION_LEASE_MS) == (not lost)
        if noted:
            self.note(name, self.fence_of(name, mine=True), heard_after)

    def note(self, name: str, fence: int, heard_after: int) -> None:
        cell, twin = self.home(name)
        fields = {"about": f"noted at {self.now}", "heard": 7, "heard_ms": 70}
        reply = self.world.run(
            self.store.sessions.note(cell, name, fence, fields, heard_after=heard_after)
        )
        self.same((reply.name,), (twin.session_note(name, fence, fields, heard_after),))

    @rule(which=pick, sure=seldom, mine=chance)
    def close_session(self, which, sure, mine) -> None:
        if sure:
            name = SESSIONS[which % len(SESSIONS)]
            fence = self.fence_of(name, mine=mine)
            self.close(*self.home(name), name, lapse_only=False, fence=fence)

    def close(self, cell, twin, name: str, *, lapse_only: bool, fence: int = 0) -> None:
        answer, told, _ = self.world.run(
            self.store.sessions.close(cell, name, "closed", lapse_only=lapse_only, fence=fence)
        )
        expected = twin.session_close(name, lapse_only=lapse_only, fence=fence)
        if answer.reply is not Reply.SETTLED:
            return self.same((answer.reply.name,), expected)
        jobs = [entry.job for entry in told]
        return self.same((*settled(answer.reply, answer.effects), jobs), expected)

    @rule(which=pick, turn=st.sampled_from(("t1", "t2")), mine=chance)
    def end_turn(self, which, turn, mine) -> None:
        name = SESSIONS[which % len(SESSIONS)]
        self.finish_turn(name, turn, self.fence_of(name, mine=mine))

    def finish_turn(self, name: str, turn: str, fence: int) -> None:
        cell, twin = self.home(name)
        answer = self.world.run(self.store.sessions.end_turn(cell, name, turn, fence=fence))
        expected = twin.turn_end(name, turn, fence)
        if answer.reply is not Reply.SETTLED:
            return self.same((answer.reply.name,), expected)
        return self.same(settled(answer.reply, answer.effects)[:3], expected)

    @rule(which=pick, back=st.integers(-1, 3), wrong=seldom, mine=chance, confirms=chance)
    def acknowledge(self, which, back, wrong, mine, confirms) -> None:
        name = SESSIONS[which % len(SESSIONS)]
        cell, twin = self.home(name)
        session = twin.sessions[name]
        epoch = "1" if wrong else str(session.epoch)
        seq = session.seq - back
        page = self.world.run(
            self.store.outbox.read(cell, name, epoch=epoch, after_seq=max(0, seq))
        )
        expected = twin.outbox_read(name, epoch, max(0, seq))
        if page.reply is Reply.OK:
            rows = released_rows(page.entries)
            self.same((page.reply.name, page.last_seq, rows), expected)
        else:
            self.same((page.reply.name,), expected)
        fence = self.fence_of(name, mine=mine)
        self.confirm_outcomes(name, epoch, seq, fence, is_confirmed=confirms)

    def confirm_outcomes(
        self, name: str, epoch: str, seq: int, fence: int, *, is_confirmed: bool = True
    ) -> None:
        cell, twin = self.home(name)
        what = {"fence": fence, "is_confirmed": is_confirmed}
        reply = self.world.run(self.store.outbox.ack(cell, name, epoch, seq, **what))
        self.same((reply.name,), (twin.outbox_ack(name, epoch, seq, **what),))
        if reply is Reply.OK:
            self.watch.acknowledged(name, int(epoch), seq)
