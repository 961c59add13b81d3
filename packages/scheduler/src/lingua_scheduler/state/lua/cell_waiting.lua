-- The jobs that wait in this cell, a few of each demand so that no demand hides another, for an
-- instance that asks other cells.
-- KEYS: due
-- ARGV: now_ms, limit (of each demand)
-- Returns: {OK, [[job, attempt, demand, preferred, tried, affinity] ...]} by demand, each earliest
--   deadline first; jobs for which no node may be asked now are left out
-- Writes: nothing
-- Cost: O(demands that wait * limit)
--- @include "includes/cell"
--- @include "includes/queue"
--- @include "includes/assign"
--- @include "includes/rests"

local function cell_waiting(ARGV)
  local rows = {}
  for _, demand in ipairs(redis.call('ZRANGE', WAITING, 0, WAITING_DEMANDS_MAX - 1)) do
    for _, job in ipairs(redis.call('ZRANGE', BASE .. 'queue:' .. demand, 0, ARGV[2] - 1)) do
      local f = redis.call('HMGET', JOB .. job, 'spec', 'attempt', 'tried', 'rests')
      local tried = left_out(f[3] or '', f[4])
      local spec = f[1] and not string.find(tried, '*@*', 1, true) and cmsgpack.unpack(f[1])
      rows[#rows + 1] = spec and { job, tonumber(f[2]), demand, spec.preferred or '', tried,
        table.concat(turn_nodes(spec), ',') } or nil
    end
  end
  return { Reply.OK, rows }
end
