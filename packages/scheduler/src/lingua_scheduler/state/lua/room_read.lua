-- Reads a room.
-- KEYS: due
-- ARGV: now_ms, code
-- Returns: {OK, now, [field, value, ...]} | {FENCED, now, 'no_room'}
-- Writes: nothing
-- Cost: O(fields of the room)
--- @include "includes/cell"
--- @include "includes/room"

local function room_read(ARGV)
  local key = room_key(ARGV[2])
  if redis.call('EXISTS', key) == 0 then return room_refuses('no_room') end
  return room_answer(Reply.OK, key)
end
