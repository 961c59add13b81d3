-- Notes in a session (so: in its own home cell) which room it is about to enter, or that it leaves
-- ('' = none). Written before the room is changed: a later owner finds the room by it, and whoever
-- left is sent nothing more of it.
-- KEYS: due
-- ARGV: now_ms, session, fence (0 = any owner), code
-- Returns: {OK} | {NO_SESSION} | {SESSION_CLOSED} | {FENCED} it is another owner's by now
-- Writes: session
-- Cost: O(1)
--- @include "includes/cell"
local key = BASE .. 'session:' .. ARGV[2]
local found = redis.call('HMGET', key, 'epoch', 'closed', 'fence')
if not found[1] then return { Reply.NO_SESSION } end
if found[2] then return { Reply.SESSION_CLOSED } end
if ARGV[3] ~= '0' and found[3] ~= ARGV[3] then return { Reply.FENCED } end
redis.call('HSET', key, 'room', ARGV[4])
return { Reply.OK }
