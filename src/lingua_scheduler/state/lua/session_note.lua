-- Notes what a later owner of a session needs to go on: its languages as they are now.
-- KEYS: due
-- ARGV: now_ms, session, fence, field, value, ...
-- Returns: {OK} | {NO_SESSION} | {FENCED}
-- Writes: session
-- Cost: O(1)
--- @include "includes/cell"
local key = BASE .. 'session:' .. ARGV[2]
local fence = redis.call('HGET', key, 'fence')
if not fence then return { Reply.NO_SESSION } end
if fence ~= ARGV[3] then return { Reply.FENCED } end
redis.call('HSET', key, unpack(ARGV, 4))
return { Reply.OK }
