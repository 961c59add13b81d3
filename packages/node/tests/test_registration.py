"""The registration of a node: its identity, its services and its languages."""

from __future__ import annotations

import os

import pytest

from lingua_node import Node
from lingua_wire.from_node import NodeRegister
from lingua_wire.shared import Gpu, InstalledModel, LanguagePair
from node_peer import (
    node_for,
    run,
    scripted_scheduler,
    serving,
)

pytestmark = pytest.mark.unit


def test_a_registration_has_the_identity_and_the_services_of_a_node() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            node = node_for(
                scheduler,
                pairs=["en>es", "EN>fr_FR"],
                tts_languages=["es"],
                services=("asr", "nmt"),
                features=["emotion_detection"],
                models=[InstalledModel(model_id="m", kind="nmt")],
                gpus=[Gpu(name="a gpu", memory_gb=24)],
                max_jobs=7,
                token="secret",
            )
            async with serving(node):
                connection = await scheduler.connection()
                said = await connection.expect(NodeRegister)
        assert (said.node_id, said.boot_id, said.max_jobs) == ("n1", node.boot_id, 7)
        assert (said.sends_acks, said.token, said.running) == (True, "secret", ())
        assert said.capability_schema_version == "2.0"
        assert said.language_capabilities is not None
        assert said.language_capabilities.supported_language_pairs == (
            LanguagePair(src="en", tgt="es"),
            LanguagePair(src="en", tgt="fr-fr"),
        )
        assert said.language_capabilities.tts_languages == ("es",)
        assert [service.type for service in said.installed_services or ()] == ["asr", "nmt"]
        assert [(can.type, can.ready) for can in said.capability_by_type] == [
            ("asr", True),
            ("nmt", True),
        ]
        assert said.features_supported is not None
        assert said.features_supported.names() == {"emotion_detection"}
        assert [model.model_id for model in said.installed_models] == ["m"]
        assert said.hardware is not None
        assert said.hardware.cpu_cores == os.cpu_count()
        assert said.hardware.gpus == (Gpu(name="a gpu", memory_gb=24),)

    run(scenario())


def test_a_node_without_languages_declares_none_and_so_takes_any() -> None:
    assert Node().registration.language_capabilities is None


def test_recognised_and_target_languages_can_be_given_instead_of_pairs() -> None:
    said = Node(asr_languages=["en"], target_languages=["es"]).registration.language_capabilities
    assert said is not None
    assert said.asr_languages == ("en",)
    assert said.nmt_capabilities is not None
    assert said.nmt_capabilities[0].tgt_langs == ("es",)
