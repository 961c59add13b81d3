"""Builds the parts of a session and connects them; `session_links.py` has the calls back."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lingua_scheduler.runtime.acceptances import AcceptanceQueue
from lingua_scheduler.runtime.admission import Admission, AdmissionParts
from lingua_scheduler.runtime.backlog import UtteranceBacklog
from lingua_scheduler.runtime.client_notifier import ClientNotifier
from lingua_scheduler.runtime.delivered import DeliveredOutcomes
from lingua_scheduler.runtime.delivery import Deliverer
from lingua_scheduler.runtime.detectors import detector_for
from lingua_scheduler.runtime.in_flight import InFlightWindow
from lingua_scheduler.runtime.job_builder import JobContext
from lingua_scheduler.runtime.known_requests import KnownRequests
from lingua_scheduler.runtime.language_changes import LanguageChanges
from lingua_scheduler.runtime.outcome_groups import OutcomeGroups
from lingua_scheduler.runtime.place_filler import PlaceFiller
from lingua_scheduler.runtime.reopening import Reopening
from lingua_scheduler.runtime.requests import Requests
from lingua_scheduler.runtime.segment_rules import rules_for
from lingua_scheduler.runtime.session import LiveSession
from lingua_scheduler.runtime.session_links import SessionLinks
from lingua_scheduler.runtime.speech_input import SpeechDependencies, SpeechInput
from lingua_scheduler.runtime.stream_progress import StreamProgress
from lingua_scheduler.runtime.submission import Submission
from lingua_scheduler.runtime.utterance_indices import UtteranceIndices
from lingua_scheduler.runtime.utterance_replies import UtteranceReplies
from lingua_scheduler.runtime.whole_utterances import WholeUtterances
from lingua_scheduler.session.ledger import CoverageLedger
from lingua_scheduler.session.rate import TokenBucket
from lingua_scheduler.session.segmenter import Segmenter
from lingua_scheduler.streams.session_streams import SessionStreams

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.config import Settings
    from lingua_scheduler.jobs.profile import Profile
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.rooms.audience import AudienceFinder
    from lingua_scheduler.rooms.fanout import SharedResults
    from lingua_scheduler.runtime.buffered_slices import BufferedSlices
    from lingua_scheduler.runtime.delivery_report import DeliveryReport
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.job_builder import AssignTemplate
    from lingua_scheduler.runtime.job_log import JobLog
    from lingua_scheduler.runtime.job_submitter import JobSubmitter
    from lingua_scheduler.runtime.job_table import JobTable
    from lingua_scheduler.runtime.lifecycle import Lifecycle
    from lingua_scheduler.runtime.session_state import SessionRecord
    from lingua_scheduler.runtime.stream_parts import StreamParts
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.state.store import Store
    from lingua_scheduler.streams.session_streams import StreamHooks
    from lingua_scheduler.tasks import Tasks


@dataclass(slots=True, kw_only=True, eq=False)
class SessionFactory:
    """Builds the sessions of one instance."""

    settings: Settings
    instance: str
    lifecycle: Lifecycle
    clock: Clock
    metrics: LiveMetrics
    tasks: Tasks
    store: Store
    retry: StoreRetry
    effects: Effects
    submitter: JobSubmitter
    jobs: JobTable
    slices: BufferedSlices
    audience: AudienceFinder
    results: SharedResults
    report: DeliveryReport
    job_log: JobLog
    streams: StreamParts
    # Whether audio is kept in the store. In local mode no other instance could read it there: this
    # process has it in memory.
    retains_audio: bool = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        self.retains_audio = settings.jobs.retain_audio and settings.deployment_mode != "local"

    def build(
        self,
        record: SessionRecord,
        profile: Profile,
        on_taken: Callable[[LiveSession], None],
    ) -> LiveSession:
        """Return a session that is connected to nothing yet."""
        settings, sessions = self.settings, self.settings.sessions
        languages = LanguageChanges(profile)
        notifier = ClientNotifier(record.id, self.clock, profile)
        links = SessionLinks(
            record.id,
            audience=self.audience,
            retry=self.retry,
            tasks=self.tasks,
            clock=self.clock,
        )
        deliverer = self._deliverer(record, notifier, links)
        reopening = self._reopening(record, links)
        parts = self._parts(record, deliverer, reopening, links)
        admission = Admission(
            parts=parts,
            audience=self.audience,
            jobs=self.jobs,
            slices=self.slices,
            cuts=settings.segmentation,
            context=partial(self._context, links, parts.progress, deliverer.groups, {}),
            give_up_session=links.give_up,
            catch_up=links.catch_up,
            on_utterance=self.metrics.speech.utterances_total.inc,
            clock=self.clock,
            tasks=self.tasks,
            log=self.job_log,
        )
        utterances = WholeUtterances(
            admission,
            languages=languages,
            bucket=TokenBucket(sessions.utterances_per_s_max, sessions.utterances_per_s_max),
            lifecycle=self.lifecycle,
            retry=self.retry,
            finalized=self.metrics.speech.web_task_finalized_total.labels(reason="send"),
        )
        session = LiveSession(
            record=record,
            notifier=notifier,
            languages=languages,
            input=self._input(admission, languages, deliverer, links.end_turn),
            utterances=utterances,
            admission=admission,
            deliverer=deliverer,
            reopening=reopening,
            store=self.store,
            effects=self.effects,
            retry=self.retry,
            lifecycle=self.lifecycle,
            tasks=self.tasks,
            metrics=self.metrics,
            instance=self.instance,
            lease_ms=max(sessions.lease_ms, sessions.resume_ms if record.token else 0),
            opened_at_ms=self.clock.wall_ms(),
            on_taken=on_taken,
        )
        links.connect(session, admission, utterances)
        return session

    def _context(
        self,
        links: SessionLinks,
        progress: StreamProgress,
        groups: OutcomeGroups,
        templates: dict[str, AssignTemplate],
        now_ms: float,
    ) -> JobContext:
        """Return what a session adds to a job at this time."""
        session = links.session
        return JobContext(
            owner=session,
            record=session.record,
            top=progress.top,
            text=groups.context,
            retain_audio=self.retains_audio,
            now_ms=now_ms,
            wall_ms=self.clock.wall_ms(),
            templates=templates,
        )

    def _reopening(self, record: SessionRecord, links: SessionLinks) -> Reopening:
        return Reopening(
            record=record,
            indices=UtteranceIndices(self.settings.jobs.in_flight_max),
            jobs=self.jobs,
            submitter=self.submitter,
            dispatcher=self.effects.dispatcher,
            effects=self.effects,
            retry=self.retry,
            tasks=self.tasks,
            open_in_store=links.open_in_store,
            start_epoch=links.start_epoch,
            enter=links.enter,
            give_up=links.give_up,
            delivered=links.delivered,
        )

    def _deliverer(
        self, record: SessionRecord, notifier: ClientNotifier, links: SessionLinks
    ) -> Deliverer:
        jobs, sessions = self.settings.jobs, self.settings.sessions
        return Deliverer(
            record=record,
            notifier=notifier,
            window=InFlightWindow(jobs.in_flight_max),
            groups=OutcomeGroups(record.id, self.clock),
            delivered=DeliveredOutcomes(),
            store=self.store,
            results=self.results,
            jobs=self.jobs,
            report=self.report,
            clock=self.clock,
            tasks=self.tasks,
            in_flight_max=jobs.in_flight_max + sessions.backlog_max,
            is_in_room=links.is_in_room,
            on_settled=links.settled,
        )

    def _parts(
        self,
        record: SessionRecord,
        deliverer: Deliverer,
        reopening: Reopening,
        links: SessionLinks,
    ) -> AdmissionParts:
        """Return what admission works with."""
        settings = self.settings
        replies = UtteranceReplies(
            record.id, deliverer.notifier, self.metrics, settings.jobs.retry_after_ms
        )
        filler = PlaceFiller(
            record,
            dispatcher=self.effects.dispatcher,
            effects=self.effects,
            retry=self.retry,
            reopen=reopening.reopen,
            on_unfilled=links.unfilled,
        )
        spread = (t.cells for t in settings.tenants if t.id == record.tenant)
        requests = Requests(
            record=record,
            replies=replies,
            outcomes=deliverer,
            admit=links.admit,
            place=links.place,
            on_waiting=links.waiting,
            on_done=links.done,
            fill=filler.fill,
            enter=links.enter,
            store=self.store,
            cells=self.effects.cells,
            retry=self.retry,
            tasks=self.tasks,
            lifecycle=self.lifecycle,
            metrics=self.metrics,
            spread=next(spread, 1),
            # Other sessions of a tenant may have had requests.
            known=KnownRequests(settings.jobs.binding_ms, is_complete=not record.tenant),
        )
        acceptances = AcceptanceQueue(replies)
        submission = Submission(
            record=record,
            store=self.store,
            retry=self.retry,
            submitter=self.submitter,
            jobs=self.jobs,
            requests=requests,
            acceptances=acceptances,
            reopen=reopening.reopen,
            trim_outbox=deliverer.trim,
        )
        return AdmissionParts(
            record=record,
            ledger=CoverageLedger(),
            indices=reopening.indices,
            progress=StreamProgress(),
            window=deliverer.window,
            backlog=UtteranceBacklog(replies, settings.sessions.backlog_max),
            acceptances=acceptances,
            replies=replies,
            submission=submission,
            filler=filler,
            requests=requests,
        )

    def _input(
        self,
        admission: Admission,
        languages: LanguageChanges,
        deliverer: Deliverer,
        end_turn: Callable[[str], None],
    ) -> SpeechInput:
        cuts, profile = self.settings.segmentation, languages.profile
        detector = None
        if profile.audio.name == "pcm16":
            detector = detector_for(cuts.voice_detector, profile.audio.sample_rate)
        uses = SpeechDependencies(
            admission=admission,
            segmenter=Segmenter(rules_for(cuts, profile), profile.audio, detector),
            languages=languages,
            notifier=deliverer.notifier,
            clock=self.clock,
            metrics=self.metrics,
            lifecycle=self.lifecycle,
            retry=self.retry,
            end_turn=end_turn,
            streams=partial(self._streams, admission, languages, deliverer),
        )
        return SpeechInput(uses, cuts.max_bytes)

    def _streams(
        self,
        admission: Admission,
        languages: LanguageChanges,
        deliverer: Deliverer,
        hooks: Callable[[], StreamHooks],
    ) -> SessionStreams | None:
        """Return what lets nodes listen to a session; None if nobody wants that now.

        Every session without it asks again each second: what it needs is made only then.
        """
        settings, record, audio = self.settings.streams, deliverer.record, languages.profile.audio
        profile = languages.profile

        def is_wanted() -> bool:
            wants = profile.partials or profile.old_partials
            return wants or self.audience.is_in_room(record.id)

        if not settings.enabled or not is_wanted():
            return None
        return SessionStreams(
            record=record,
            hooks=hooks(),
            hub=self.streams.hub,
            router=self.streams.router,
            clock=self.clock,
            is_wanted=is_wanted,
            profile=lambda: languages.profile,
            next_index=lambda: admission.parts.indices.next,
            context=lambda: deliverer.groups.context,
            open_bytes=max(1, audio.bytes_lasting(settings.open_after_ms)),
        )
