"""The same damage on a cluster, where cells and instances are on different masters."""

from __future__ import annotations

import pytest

from lingua_scheduler.maintenance.overview import overview
from maintenance.damage import CASES, Case, Ward, found_in, is_found_and_repaired, play
from servers import Cluster

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.damage.__name__)
def test_damage_is_found_and_repaired_on_a_cluster(replicated_cluster: Cluster, case: Case) -> None:
    play(replicated_cluster.addresses, lambda w: is_found_and_repaired(w, case))


def test_the_keys_of_these_tests_are_on_several_masters(replicated_cluster: Cluster) -> None:
    async def scenario(w: Ward) -> None:
        assert found_in(await w.examine()) == {}
        owners = {replicated_cluster.owner(cell.slot).port for cell in w.deployment.cells.all}
        assert len(owners) == 2
        seen = await overview(w.connection, w.settings)
        assert [cell.nodes for cell in seen.cells] == [1, 1]
        assert [(view.sessions, view.nodes) for view in seen.instances] == [(4, 2)]

    play(replicated_cluster.addresses, scenario)
