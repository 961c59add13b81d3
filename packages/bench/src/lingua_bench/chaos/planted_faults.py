"""The faults that can be planted into schedulers, and their places in the Lua files and modules.

If the code changes, only this table must be updated; `planted.py` fails if it is out of date.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """One fault: what it is, how it must be found, and its place in the code."""

    what: str
    # Counts of the findings of which at least one must not be 0.
    found_as: tuple[str, ...]
    # The included Lua file, or the module of Python; the text that it has once, and the text that
    # replaces it.
    include: str
    before: str
    after: str


# One result in so many gets the fault: often enough to be found, rarely enough to be a fault.
SOMETIMES: Final = "redis.call('INCR', BASE .. 'planted') % 5 == 0"

# Where an outcome for others is released.
RELEASED: Final = "  return relay_walk(session, s, policy, {}, out, policy.hear_at_once)\n"
# The current members of the speaker's room that want the lane; rooms and speakers must share one
# cell.
AUDIENCE_NOW: Final = """
  local room, lane = redis.call('HGET', BASE .. 'session:' .. session, 'room'), nil
  lane = string.match(head, '^%d+ (%S+)')
  local fields, late = redis.call('HGETALL', BASE .. 'room:' .. (room or '')), {}
  for i = 1, #fields, 2 do
    local who = string.match(fields[i], '^l:(.+)$')
    if who and who ~= session and fields[i + 1] == lane then
      late[#late + 1] = CELL .. '/' .. who
    end
  end
  if #late > 0 then audience = table.concat(late, ' ') end
"""

# Where a partial text is sent to the others in a room.
TO_ROOM: Final = "            self._to_room(speaker.id, profile, room, message)\n"

PLANTED_FAULTS: Final[dict[str, PlantedFault]] = {
    "relay_forgotten": PlantedFault(
        "a result is settled and never brought to anybody",
        ("listeners_lost",),
        "includes/relay",
        RELEASED,
        f"  if {SOMETIMES} then redis.call('DEL', BASE .. 'relay:' .. session) end\n{RELEASED}",
    ),
    "audience_late": PlantedFault(
        "who hears a result is asked when it is there, and not when it was said",
        ("heard_wrong", "wrong_language"),
        "includes/relay",
        "  local number = redis.call('HINCRBY',",
        f"{AUDIENCE_NOW}  local number = redis.call('HINCRBY',",
    ),
    "outbox_skipped": PlantedFault(
        "one listener of many is left out",
        ("listeners_lost",),
        "includes/hear",
        "  if l[3] or heard_before(l[6], item) then return true end\n",
        f"  if l[3] or {SOMETIMES} or heard_before(l[6], item) then return true end\n",
    ),
    "duplicate_relay": PlantedFault(
        "what a listener has is brought to it again",
        # The owner may drop the second one; then its position is left out.
        ("duplicates", "gaps"),
        "includes/hear",
        "  local own = l[4] + 1\n",
        f"  local own = l[4] + 1\n  if {SOMETIMES} then\n"
        "    redis.call('RPUSH', BASE .. 'outbox:' .. name,\n"
        "      'heard ' .. item.head .. '\\n' .. item.kind .. ' ' .. item.id)\n"
        "    own = own + 1\n  end\n",
    ),
    "passed_early": PlantedFault(
        "the speaker is told that others have it, and whoever was to bring it is gone then",
        ("passed_early",),
        "includes/relay",
        RELEASED,
        f"  if {SOMETIMES} then\n"
        "    redis.call('RPOP', BASE .. 'relay:' .. session)\n"
        "    return relay_passed(session, s, heard_item(id, kind, head, now), out)\n"
        f"  end\n{RELEASED}",
    ),
    "partial_to_all": PlantedFault(
        "everybody on the instance gets what is being said in a room",
        ("partials_misheard",),
        "lingua_scheduler.streams.partial_router",
        TO_ROOM,
        f"{TO_ROOM}            for name in self._sessions:\n"
        "                self._send(name, message, '')\n",
    ),
}
