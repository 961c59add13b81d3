-- Stores the cell of a named request's job, for a tenant whose sessions are in several cells: the
-- first caller decides. A cell that does not have the job after a while has lost it.
-- KEYS: due
-- ARGV: now_ms, job id, cell ('' = only read), cell without such a job ('' = none was asked),
--   patience_ms, ttl_ms
-- Returns: {OK, cell, age_ms} | {NO_JOB} no cell has it
-- Writes: request
-- Cost: O(1)
--- @include "includes/cell"

local function request_bind(ARGV)
  local key = BASE .. 'request:' .. ARGV[2]
  local f = redis.call('HMGET', key, 'cell', 'at')
  local age_ms = f[1] and now - f[2] or 0
  if ARGV[3] == '' then
    if not f[1] then return { Reply.NO_JOB } end
    return { Reply.OK, f[1], age_ms }
  end
  local is_free = not f[1] or f[1] == ARGV[3]
    or f[1] == ARGV[4] and age_ms >= tonumber(ARGV[5])
  if not is_free then return { Reply.OK, f[1], age_ms } end
  redis.call('HSET', key, 'cell', ARGV[3], 'at', now)
  redis.call('PEXPIRE', key, ARGV[6])
  return { Reply.OK, ARGV[3], 0 }
end
