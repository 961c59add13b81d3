"""The names, policies and demands of the model runs: few, so that collisions are frequent."""

from __future__ import annotations

from lingua_scheduler.jobs.requirement import Demand, Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.policy import FleetPolicy

SESSIONS = ("s1", "s2", "s3")
NODES = ("n1", "n2", "n3", "n4", "n5")
LANES = ("es", "fr")
INSTANCES = ("i1", "i2", "i3")

SPEECH = {"asr": (), "nmt": (), "tts": ()}

ABILITIES = (
    capability(Declared(services=SPEECH, pairs=(("en", "es"),))),
    capability(Declared(services=SPEECH, asr_languages=("en", "fr"), nmt_targets=("es", "fr"))),
    capability(Declared(services=SPEECH)),
    capability(
        Declared(
            services={"asr": (), "nmt": ("nmt-a", "nmt-b"), "tts": ("tts-a",)},
            asr_languages=("en",),
            nmt_targets=("es",),
            tts_languages=("es",),
            features=frozenset({"emotion_detection"}),
        )
    ),
    capability(Declared(services=SPEECH, pairs=(("en", "es"), ("en", "fr")), private_to="acme")),
    capability(Declared(services={"asr": (), "nmt": ()}, pairs=(("en", "es"), ("es", "en")))),
    # Equally broad, so that two pools are compared.
    capability(Declared(services=SPEECH, pairs=(("en", "es"), ("en", "de")))),
    capability(Declared(services=SPEECH, pairs=(("en", "es"), ("en", "it")))),
    capability(Declared(services=SPEECH, pairs=(("en", "es"), ("en", "pt")))),
    # Named by operators.
    capability(Declared(services=SPEECH, pairs=(("en", "es"),), labels=("eu",))),
    capability(Declared(services=SPEECH, pairs=(("en", "es"),), labels=("gpu", "eu"))),
)

TEXT = PipelineStages(use_tts=False)

DEMANDS: tuple[Demand, ...] = (
    demand(Languages("en", "es"), PipelineStages()),
    demand(Languages("en", "es"), PipelineStages()),
    demand(Languages("en", "fr"), PipelineStages()),
    demand(Languages("auto", "es", auto=("en", "fr")), PipelineStages()),
    demand(Languages("auto", "es"), TEXT),
    demand(Languages("auto", "es", two_way=("en", "es")), TEXT),
    demand(Languages("en", "es"), PipelineStages(), frozenset({"emotion_detection"})),
    demand(Languages("en", "es"), PipelineStages(), tenant="acme"),
    demand(Languages("en", "es"), PipelineStages(), paired="n1"),
    demand(Languages("en", "es"), PipelineStages(), tenant="acme", labels=("eu",)),
    demand(Languages("en", "es"), PipelineStages(), labels=("eu", "gpu")),
    demand(Languages("en", "es"), PipelineStages(), labels=("eu", "gpu"), paired="n1"),
    demand(Languages("xx", "yy"), PipelineStages()),
)

SMALL = {
    "pending_jobs_max": 4,
    "in_flight_max": 4,
    "outbox_max": 5,
    "attempts_max": 2,
    "rate_max": 3,
    "good_beats": 1,
    "gap_ms": 3000,
    # What the server forgets by its own clock must not go while a slow machine plays one run.
    "binding_ms": 3_600_000,
    "resume_ms": 3_600_000,
}

POLICIES = (
    FleetPolicy(**SMALL, hear_at_once=1),
    FleetPolicy(**{**SMALL, "spread": True, "attempts_max": 3, "good_beats": 2, "explains": True}),
    FleetPolicy(
        **{
            **SMALL,
            "refuse_unserved_pairs": True,
            "pending_jobs_max": 2,
            "stale_ms": 61_000,
            "sticky_pools": False,
        }
    ),
)
