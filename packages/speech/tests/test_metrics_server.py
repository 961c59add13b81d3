"""The metrics of a node over HTTP: the exposition, a taken port, the end of the server."""

from __future__ import annotations

import aiohttp
import pytest

from engine_node import JobSource, assembled, done, run
from lingua_node import JobFailed
from lingua_speech.metrics import NodeMetrics
from lingua_speech.metrics_server import metrics_server
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.stress


async def scraped(url: str) -> str:
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        assert answer.status == 200
        return await answer.text()


def test_the_metrics_of_a_node_are_exposed(stage_engines: None) -> None:
    async def scenario() -> None:
        async with assembled() as made, metrics_server(made.metrics, "127.0.0.1", 0) as url:
            await done(made, JobSource().job())
            with pytest.raises(JobFailed):
                await done(made, JobSource().job(audio_format="opus"))
            text = await scraped(url)
        for line in (
            'lingua_node_jobs_total{outcome="done"} 1.0',
            'lingua_node_jobs_total{outcome="UNSUPPORTED_FEATURE"} 1.0',
            'lingua_node_engine_seconds_count{role="vad"} 1.0',
            'lingua_node_ready{stage="nmt"} 1.0',
            'lingua_node_worker_restarts_total{stage="asr"} 0.0',
            'lingua_node_queue{stage="tts"} 0.0',
            "lingua_node_real_time_factor ",
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
        ):
            assert line in text, line
        assert "_created" not in text

    run(scenario())


def test_a_taken_port_is_a_configuration_error() -> None:
    async def scenario() -> None:
        async with metrics_server(NodeMetrics(), "127.0.0.1", 0) as url:
            port = int(url.removesuffix("/metrics").rpartition(":")[2])
            with pytest.raises(ConfigError, match=f"--metrics.*127.0.0.1:{port}"):
                async with metrics_server(NodeMetrics(), "127.0.0.1", port):
                    pytest.fail("two servers on one port")

    run(scenario())


def test_the_server_ends_with_its_context() -> None:
    async def scenario() -> None:
        async with metrics_server(NodeMetrics(), "::1", 0) as url:
            assert url.startswith("http://[::1]:")
            assert "lingua_node_jobs_running 0.0" in await scraped(url)
        with pytest.raises(aiohttp.ClientConnectorError):
            await scraped(url)

    run(scenario())
