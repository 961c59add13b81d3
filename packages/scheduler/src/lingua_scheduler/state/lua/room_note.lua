-- Stores in a session, in its home cell, the room that it is about to enter, or '' when it leaves.
-- Written before the room is changed: a later owner finds the room by it, and a session that left
-- gets nothing more of the room.
-- KEYS: due
-- ARGV: now_ms, session, fence (0 = any owner), code
-- Returns: {OK} | {NO_SESSION} | {SESSION_CLOSED} | {FENCED} another instance owns it
-- Writes: session
-- Cost: O(1)
--- @include "includes/cell"

local function room_note(ARGV)
  local key = SESSION .. ARGV[2]
  local found = redis.call('HMGET', key, 'epoch', 'closed', 'fence')
  if not found[1] then return { Reply.NO_SESSION } end
  if found[2] then return { Reply.SESSION_CLOSED } end
  if ARGV[3] ~= '0' and found[3] ~= ARGV[3] then return { Reply.FENCED } end
  redis.call('HSET', key, 'room', ARGV[4])
  return { Reply.OK }
end
