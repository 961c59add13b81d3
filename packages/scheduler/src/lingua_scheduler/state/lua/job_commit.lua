-- Second step of a placement in another cell: the slot is reserved there, now the job gets its
-- holder.
-- KEYS: due
-- ARGV: now_ms, policy, job id, attempt (the next one), cell, node, boot, acks (0 | 1), instance,
--   asked (`,cell/node,...,` that could not take it; `*` = ignore the turn's nodes)
-- Returns: {PLACED, placement} also when the same commit is repeated
--   | {PARKED, code, label, affinity} its turn now has a node that was not asked: the caller gives
--     the slot back and asks that node
--   | {NO_JOB} | {JOB_ENDED} | {STALE_ATTEMPT, current}: the caller gives the slot back
-- Writes: job, session (affinity), due; pending, queue, waiting
-- Cost: O(log n)
--- @include "includes/cell"
--- @include "includes/queue"
--- @include "includes/assign"
--- @include "includes/finish"

local function job_commit(ARGV)
  local policy, job, attempt = policy_of(ARGV[2]), ARGV[3], tonumber(ARGV[4])
  local cell, node, instance = ARGV[5], ARGV[6], ARGV[9]
  local record = job_read(job)
  if not record then return { Reply.NO_JOB } end
  if record.ended then return { Reply.JOB_ENDED } end
  if record.attempt == attempt and record.node == node and record.cell == cell then
    local ends_at = redis.call('HGET', JOB .. job, 'ends_at')
    return { Reply.PLACED,
      placement_text(job, ARGV[4], node, cell, instance, '0', ends_at, ' ') }
  end
  if record.node ~= '' or record.attempt + 1 ~= attempt then
    return { Reply.STALE_ATTEMPT, record.attempt }
  end
  local spec, holder, asked = record.spec, cell .. '/' .. node, ARGV[10]
  for _, named in ipairs(asked ~= '*' and turn_nodes(spec) or {}) do
    if named == holder then break end
    if not string.find(asked, ',' .. named .. ',', 1, true) then
      return { Reply.PARKED, Reply.NO_AVAILABLE_NODE, 'affinity_elsewhere', named }
    end
  end
  queue_remove(job, spec.demand)
  local n = { '0', 0, 0, '', ARGV[7], ARGV[8], instance }
  return { Reply.PLACED, assign(job, spec, attempt, cell, node, n, policy) .. ' ' }
end
