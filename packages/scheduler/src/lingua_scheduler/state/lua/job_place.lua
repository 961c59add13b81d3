-- Places a waiting job (parked while other cells were asked, or queued) in this cell, else queues
-- it.
-- KEYS: due
-- ARGV: now_ms, policy, job id, park (1 = leave it parked if no node here can take it, 2 = queue it
--   even if no pool here serves it, because one of another cell does)
-- Returns: {PLACED, placement} | {QUEUED | PARKED, code, label} | {JOB_ENDED} | {NO_JOB}
--   | {HELD, attempt, node, cell} it already has a node
--   | {SETTLED, epoch, owner, session, outcomes} the queue is full: the job ends as
--     failed, in order
-- Writes: as job_submit
-- Cost: O(log n)
--- @include "includes/cell"
--- @include "includes/queue"
--- @include "includes/place"
--- @include "includes/finish"
--- @include "includes/rests"

local function job_place(ARGV)
  local policy, job = policy_of(ARGV[2]), ARGV[3]
  local record = job_read(job)
  if not record then return { Reply.NO_JOB } end
  if record.ended then return { Reply.JOB_ENDED } end
  if record.node ~= '' then return { Reply.HELD, record.attempt, record.node, record.cell } end
  local spec = record.spec
  local f = redis.call('HMGET', JOB .. job, 'tried', 'rests', 'waits_until')
  local tried = left_out(f[1] or '', f[2])
  local placement, code, label = 
    place(job, spec, record.attempt + 1, tried, session_owner(spec), policy, false)
  if placement then
    queue_remove(job, spec.demand)
    return { Reply.PLACED, placement }
  end
  if redis.call('ZSCORE', PENDING, job) then return { Reply.QUEUED, code, label } end
  if ARGV[4] == '1' then
    local due_at = now + policy.reserve_ms
    redis.call('HSET', JOB .. job, 'due_at', due_at)
    redis.call('ZADD', DUE, due_at, 'j|' .. job)
    return { Reply.PARKED, code, label }
  end
  local unserved = code == Reply.NO_POOL_FOR_LANG_PAIR and policy.refuse_unserved_pairs
    and ARGV[4] ~= '2'
  if record.attempt == 0 and (unserved or queue_full(spec.demand, policy.pending_jobs_max)) then
    local reason, out = unserved and 'no_pool_for_lang_pair' or 'queue_full', {}
    local s = job_finish(job, record, 'failed', reason, '', policy, out)
    return { Reply.SETTLED, s.epoch, s.owner, s.session, outcomes_of(out) }
  end
  local due_at, waits_until = now + policy.pending_ms, tonumber(f[3] or '')
  if waits_until and waits_until > now then due_at = waits_until end
  redis.call('HSET', JOB .. job, 'due_at', due_at)
  redis.call('ZADD', DUE, rest_ends(f[2], due_at), 'j|' .. job)
  queue_add(job, spec, due_at)
  return { Reply.QUEUED, code, label }
end
