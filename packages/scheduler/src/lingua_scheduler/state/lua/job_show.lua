-- Reads one job's record for operators, also after its end, while it is kept.
-- KEYS: due
-- ARGV: now_ms, job id
-- Returns: {OK, now, tenant of its session ('' also if that is not known), 1 = the session is
--   known, [value ...] in the order of FIELDS} | {NO_JOB}
-- Writes: nothing
-- Cost: O(1)
--- @include "includes/cell"
local FIELDS = { 'state', 'attempt', 'node', 'cell', 'created_at', 'placed_at', 'due_at', 'ends_at',
  'outcome', 'reason', 'ended_at', 'past', 'spec', 'body' }

local function job_show(ARGV)
  local f = redis.call('HMGET', JOB .. ARGV[2], unpack(FIELDS))
  if not f[1] then return { Reply.NO_JOB } end
  local spec = cmsgpack.unpack(f[13])
  local s = redis.call('HMGET', SESSION .. spec.session, 'epoch', 'tenant')
  for i = 1, #FIELDS do f[i] = f[i] or '' end
  return { Reply.OK, now, s[2] or '', s[1] and 1 or 0, f }
end
