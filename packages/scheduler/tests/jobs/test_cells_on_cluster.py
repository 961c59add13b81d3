"""The key scenarios of dispatcher and sweeper again, with each cell on a master of its own.

The scenarios are those of the modules that run them on one server; here every step between two
cells is a step between two servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobs import test_dispatcher as placing
from jobs import test_dispatcher_crashes as crashing
from jobs import test_dispatcher_refusals as refusing
from jobs import test_dispatcher_turns as turning
from jobs import test_dispatcher_turns_at_once as turning_at_once
from jobs import test_sweeper as sweeping
from lingua_scheduler.state.keys import Cells
from servers import Cluster, start_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobs.deployment import Test

pytestmark = pytest.mark.cluster

KEY_SCENARIOS: list[Test] = [
    placing.test_a_job_its_home_cell_can_serve_costs_one_call,
    placing.test_a_job_its_home_cannot_serve_is_held_in_another_cell,
    placing.test_a_preferred_node_in_another_cell_comes_before_a_free_one_at_home,
    turning.test_the_slices_of_a_turn_follow_it_to_another_cell,
    turning.test_a_turn_whose_foreign_node_is_full_moves_and_says_so,
    turning_at_once.test_slices_and_languages_of_a_turn_said_at_once_share_a_node,
    turning_at_once.test_slices_of_a_turn_reach_its_node_in_their_order,
    turning_at_once.test_a_turn_whose_jobs_come_by_two_instances_at_once_shares_a_node,
    turning_at_once.test_two_languages_of_a_dead_node_move_to_one_node,
    turning_at_once.test_spread_goes_to_another_cell_rather_than_to_the_only_node_at_home,
    refusing.test_other_nodes_come_first_in_whatever_cell,
    placing.test_a_job_nobody_can_take_waits_at_home_and_gets_the_next_foreign_slot,
    placing.test_a_job_whose_foreign_node_is_lost_moves_and_its_old_result_is_refused,
    placing.test_closing_a_session_ends_its_jobs_in_every_cell,
    placing.test_a_foreign_slot_is_given_back_when_a_node_at_home_was_faster,
    placing.test_two_instances_that_offer_one_job_take_one_slot,
    placing.test_a_large_tenant_is_spread_over_cells_and_each_session_is_served,
    crashing.test_a_crash_after_the_reservation_costs_the_slot_only_until_it_lapses,
    crashing.test_a_crash_before_the_confirmation_frees_the_slot_and_the_job_still_ends_once,
    crashing.test_a_crash_after_settling_leaves_a_reminder_that_frees_the_slot,
    crashing.test_a_job_whose_slot_lapsed_and_was_given_away_moves_on,
    sweeping.test_waiting_jobs_expire_in_order_with_an_outcome_each,
    sweeping.test_a_silent_nodes_leases_move_wherever_their_jobs_live,
    sweeping.test_a_new_process_of_a_node_gets_no_old_leases_and_may_get_the_jobs,
    sweeping.test_two_instances_that_sweep_at_once_end_each_job_once,
]


@pytest.fixture(name="cluster", scope="module")
def three_masters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def test_the_first_three_cells_have_a_master_each(cluster: Cluster) -> None:
    assert len({cluster.owner(cell.slot) for cell in Cells("any", 3).all}) == 3


@pytest.mark.parametrize("scenario", KEY_SCENARIOS, ids=lambda test: test.__name__[5:])
def test_on_three_masters(cluster: Cluster, scenario: Test) -> None:
    scenario(cluster.addresses)
