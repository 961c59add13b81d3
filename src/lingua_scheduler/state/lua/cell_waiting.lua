-- The jobs that wait in this cell, a few of each demand so that none hides another, for an instance
-- that asks other cells.
-- KEYS: due
-- ARGV: now_ms, limit (of each demand)
-- Returns: {OK, [[job, attempt, demand, preferred, tried, affinity] ...]} by demand, each earliest
--   deadline first
-- Writes: nothing
-- Cost: O(demands that wait * limit)
--- @include "includes/cell"
--- @include "includes/queue"
--- @include "includes/assign"
local rows = {}
for _, demand in ipairs(redis.call('ZRANGE', BASE .. 'waiting', 0, WAITING_DEMANDS_MAX - 1)) do
  for _, job in ipairs(redis.call('ZRANGE', BASE .. 'queue:' .. demand, 0, ARGV[2] - 1)) do
    local f = redis.call('HMGET', BASE .. 'job:' .. job, 'spec', 'attempt', 'tried')
    local spec = f[1] and cmsgpack.unpack(f[1])
    rows[#rows + 1] = spec and { job, tonumber(f[2]), demand, spec.preferred or '', f[3] or '',
      turn_affinity(spec) or '' } or nil
  end
end
return { Reply.OK, rows }
