-- Notes in a session (so: in its own home cell) which room it is about to enter, or that it leaves
-- ('' = none). Written before the room is changed: a later owner finds the room by it, and whoever
-- left is sent nothing more of it.
-- KEYS: due
-- ARGV: now_ms, session, code
-- Returns: {OK} | {NO_SESSION} | {SESSION_CLOSED}
-- Writes: session
-- Cost: O(1)
--- @include "includes/cell"
local key = BASE .. 'session:' .. ARGV[2]
local found = redis.call('HMGET', key, 'epoch', 'closed')
if not found[1] then return { Reply.NO_SESSION } end
if found[2] then return { Reply.SESSION_CLOSED } end
redis.call('HSET', key, 'room', ARGV[3])
return { Reply.OK }
