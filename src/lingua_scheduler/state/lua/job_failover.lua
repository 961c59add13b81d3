-- Takes a job away from its holder: next attempt elsewhere, back to the queue, or the end.
-- KEYS: due
-- ARGV: now_ms, policy, job id, attempt (-1 = the current one, by deadline only), node ('' =
--   whoever holds it), reason, park (0 | 1)
--   reason `deadline` is checked against the job's own deadline and named no_ack or timeout; a job
--   that waits for a node expires by it (a parked one, whose caller died, is placed or queued)
-- Returns: {PLACED, placement, [freed], [placement ...], reason, holder}
--   | {QUEUED | PARKED, code, label, [freed], [placement ...], reason, holder, attempt, demand,
--     preferred, tried, affinity}
--   | {SETTLED, epoch, owner, session, [seq, entry, ...], [freed], [placement ...], reason, holder,
--     attempt}
--   | {DEFERRED, cell, node, ends_at, attempt} a silent slice whose turn goes on | {NOT_DUE,
--     due_at}
--   | {NO_JOB} | {STALE_ATTEMPT, current} | {NODE_MISMATCH, holder} | {JOB_ENDED}
-- Writes: as job_submit and job_settle
-- Cost: O(log n)
--- @include "includes/cell"
--- @include "includes/queue"
--- @include "includes/place"
--- @include "includes/finish"
--- @include "includes/serve_waiting"
local policy, job = cmsgpack.unpack(ARGV[2]), ARGV[3]
local node, reason, park = ARGV[5], ARGV[6], ARGV[7] == '1'
local job_key, record = BASE .. 'job:' .. ARGV[3], job_read(ARGV[3])
if not record then
  redis.call('ZREM', DUE, 'j|' .. job)
  return { Reply.NO_JOB }
end
if record.ended then
  redis.call('ZREM', DUE, 'j|' .. job)
  return { Reply.JOB_ENDED }
end
local attempt = tonumber(ARGV[4])
if attempt < 0 and reason == 'deadline' then attempt = record.attempt end
if record.attempt ~= attempt then return { Reply.STALE_ATTEMPT, record.attempt } end
if node ~= '' and node ~= record.node then
  if record.node == '' then return { Reply.STALE_ATTEMPT, record.attempt } end
  return { Reply.NODE_MISMATCH, record.node }
end
local held, spec = record.node ~= '', record.spec
local f = redis.call('HMGET', job_key, 'boot', 'acks', 'ends_at', 'due_at', 'tried', 'spared')
local boot, acks, ends_at = f[1], f[2], tonumber(f[3] or 0)
local due_at, tried = tonumber(f[4]), f[5] or ''
if not held and reason ~= 'deadline' then return { Reply.STALE_ATTEMPT, record.attempt } end
if reason == 'deadline' then
  if due_at > now then
    redis.call('ZADD', DUE, due_at, 'j|' .. job)
    return { Reply.NOT_DUE, due_at }
  end
  reason = due_at < ends_at and 'no_ack' or 'timeout'
  if not held then reason = 'pending_timeout' end
end

-- Keeps the slot for another attempt's time: a lease that still lives is prolonged, one that has
-- lapsed must be taken again, for another job may have the slot by now.
local function keeps_slot()
  if record.cell ~= CELL then return true end
  local leases, member = BASE .. 'leases:' .. record.node, job .. '|' .. attempt
  if tonumber(redis.call('ZSCORE', leases, member) or 0) > now then
    redis.call('ZADD', leases, lease_expiry(policy), member)
    return true
  end
  redis.call('ZREM', leases, member)
  return lease_take(record.node, member, lease_expiry(policy), job_tie(job)) ~= nil
end

if reason == 'timeout' and spec.is_slice and acks == '0' and turn_affinity(spec)
  and keeps_slot() then
  due_at = now + policy.attempt_ms
  redis.call('HSET', job_key, 'due_at', due_at, 'ends_at', due_at)
  redis.call('ZADD', DUE, due_at, 'j|' .. job)
  return { Reply.DEFERRED, record.cell, record.node, due_at, attempt }
end

-- A parked piece of a turn whose node is in another cell: its caller died before asking there.
local affinity = not held and park and turn_affinity(spec) or ''
local elsewhere = affinity ~= '' and string.match(affinity, '^(.-)/') ~= CELL
local out, freed, placed = {}, {}, {}
local n = job_unhold(job, record, freed)
-- Not begun, as far as anyone knows: that was no try of the work, if it does not go on for ever.
local SPARED_MAX = 4
local unbegun = reason == 'push_failed' or reason == 'no_ack' or reason == 'NODE_OVERLOADED'
  or reason == 'NODE_UNAVAILABLE'
local spared = tonumber(f[6] or 0)
if held and unbegun and spared < SPARED_MAX then spared = spared + 1 end
local kind = held and attempt - spared >= policy.attempts_max and 'failed'
  or not held and redis.call('ZSCORE', BASE .. 'pending', job) and 'expired'
local reply
if kind then
  local s = job_finish(job, record, kind, reason, '', policy.binding_ms, out)
  reply = { Reply.SETTLED, s.epoch, s.owner, s.session, out }
else
  -- A lapsed slot or a lost socket says nothing about the node: if nobody else can take the job it
  -- may go on where it was, once that node is back.
  local blames = reason ~= 'lease_lapsed' and reason ~= 'node_lost' and reason ~= 'push_failed'
  if held and blames then tried = tried .. record.node .. '@' .. boot .. ',' end
  local placement, code, label
  if elsewhere then
    code, label = Reply.NO_AVAILABLE_NODE, 'affinity_elsewhere'
  else
    placement, code, label = place(job, spec, attempt + 1, tried, policy, 'tried', tried,
      'spared', spared)
  end
  if placement then
    reply = { Reply.PLACED, placement }
  else
    due_at = now + (park and policy.reserve_ms or policy.pending_ms)
    redis.call('HSET', job_key, 'state', 'CREATED', 'node', '', 'tried', tried, 'spared', spared,
      'due_at', due_at)
    redis.call('ZADD', DUE, due_at, 'j|' .. job)
    if not park then queue_add(job, spec.demand, due_at) end
    reply = { park and Reply.PARKED or Reply.QUEUED, code, label }
  end
end
if n and n[4] then serve_waiting(record.node, n[4], policy, placed) end
reply[#reply + 1] = freed
reply[#reply + 1] = placed
reply[#reply + 1] = reason
reply[#reply + 1] = record.node
if reply[1] == Reply.SETTLED then reply[#reply + 1] = attempt end
if reply[1] == Reply.QUEUED or reply[1] == Reply.PARKED then
  reply[#reply + 1] = attempt
  reply[#reply + 1] = spec.demand
  reply[#reply + 1] = spec.preferred or ''
  reply[#reply + 1] = tried
  reply[#reply + 1] = elsewhere and affinity or ''
end
return reply
