-- The jobs that wait in this cell, earliest deadline first, for an instance that asks other cells.
-- KEYS: due
-- ARGV: now_ms, limit
-- Returns: {OK, [[job, attempt, demand, preferred, tried] ...]}
-- Writes: nothing
-- Cost: O(limit)
--- @include "includes/cell"
local rows = {}
for i, job in ipairs(redis.call('ZRANGE', BASE .. 'pending', 0, ARGV[2] - 1)) do
  local f = redis.call('HMGET', BASE .. 'job:' .. job, 'spec', 'attempt', 'tried')
  local spec = cmsgpack.unpack(f[1])
  rows[i] = { job, tonumber(f[2]), spec.demand, spec.preferred or '', f[3] or '' }
end
return { Reply.OK, rows }
