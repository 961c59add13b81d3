-- Takes a job from its holder: next attempt on another node, back to the queue, or the end.
-- KEYS: due
-- ARGV: now_ms, policy, job id, attempt (-1 = the current one, by deadline only), node ('' =
--   any holder), reason, park (0 | 1)
--   reason `deadline` is compared with the job's own deadline and becomes no_ack or timeout; a
--   waiting job expires (a parked one, whose caller died, is placed or queued); a job that waits
--   because its nodes are resting is placed at the end of a rest
-- Returns: {PLACED, placement, [freed], [placement ...], reason, holder} both '' after a rest
--   | {QUEUED | PARKED, code, label, [freed], [placement ...], reason, holder, attempt, demand,
--     preferred, tried, affinity (`cell/node,...`: asked first), avoid (a node)}
--   | {SETTLED, epoch, owner, session, outcomes, [freed], [placement ...], reason, holder,
--     attempt}
--   | {DEFERRED, cell, node, ends_at, attempt} a silent slice whose turn continues | {NOT_DUE,
--     due_at}
--   | {NO_JOB} | {STALE_ATTEMPT, current} | {NODE_MISMATCH, holder} | {JOB_ENDED}
-- Writes: as job_submit and job_settle
-- Cost: O(log n)
--- @include "includes/cell"
--- @include "includes/queue"
--- @include "includes/place"
--- @include "includes/finish"
--- @include "includes/serve_waiting"
--- @include "includes/rests"
-- An attempt that was not begun does not count. A node that refuses says so, so this holds as long
-- as a job may wait; a silent node may have been killed by the job, so this ends sooner.
local REFUSED_MAX, UNANSWERED_MAX = 16, 4

-- Keeps the slot for the time of another attempt: an unexpired lease is prolonged, an expired one
-- must be taken again, because another job may have the slot.
local function keeps_slot(job, record, policy)
  if record.cell ~= CELL then return true end
  local leases, member = LEASES .. record.node, job .. '|' .. record.attempt
  if tonumber(redis.call('ZSCORE', leases, member) or 0) > now then
    redis.call('ZADD', leases, lease_expiry(policy), member)
    return true
  end
  redis.call('ZREM', leases, member)
  return lease_take(record.node, member, lease_expiry(policy), job_tie(job)) ~= nil
end

-- Tells whether the turn has a node in another cell, other than the one it leaves: the caller asks
-- that node before any node of this cell.
local function turn_goes_on_elsewhere(record, reason)
  local spec, held = record.spec, record.node ~= ''
  for _, named in ipairs(turn_nodes(spec)) do
    if not held or reason == 'lease_lapsed' or named ~= record.cell .. '/' .. record.node then
      return string.match(named, '^(.-)/') ~= CELL
    end
  end
  return false
end

local function job_failover(ARGV)
  local policy, job = policy_of(ARGV[2]), ARGV[3]
  local node, reason, park = ARGV[5], ARGV[6], ARGV[7] == '1'
  local job_key, record = JOB .. ARGV[3], job_read(ARGV[3])
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
  local f = redis.call('HMGET', job_key, 'boot', 'acks', 'ends_at', 'due_at', 'tried', 'spared',
    'rests', 'waits_until', 'placed_at', 'past')
  local boot, acks, ends_at = f[1], f[2], tonumber(f[3] or 0)
  local due_at, tried, rests = tonumber(f[4]), f[5] or '', f[7] or ''
  if not held and reason ~= 'deadline' then return { Reply.STALE_ATTEMPT, record.attempt } end
  if reason == 'deadline' then
    if due_at > now then
      if not held and rests ~= '' and redis.call('ZSCORE', PENDING, job) then
        local near, left = session_owner(spec), left_out(tried, rests)
        local placement = place(job, spec, attempt + 1, left, near, policy, false)
        if placement then
          queue_remove(job, spec.demand)
          return { Reply.PLACED, placement, {}, {}, '', '' }
        end
      end
      redis.call('ZADD', DUE, held and due_at or rest_ends(rests, due_at), 'j|' .. job)
      return { Reply.NOT_DUE, due_at }
    end
    reason = due_at < ends_at and 'no_ack' or 'timeout'
    if not held then reason = 'pending_timeout' end
  end

  if reason == 'timeout' and spec.is_slice and acks == '0' and turn_affinity(spec)
    and keeps_slot(job, record, policy) then
    due_at = now + policy.attempt_ms
    redis.call('HSET', job_key, 'due_at', due_at, 'ends_at', due_at)
    redis.call('ZADD', DUE, due_at, 'j|' .. job)
    return { Reply.DEFERRED, record.cell, record.node, due_at, attempt }
  end

  local elsewhere = park and turn_goes_on_elsewhere(record, reason)
  local out, freed, placed, avoid = {}, {}, {}, nil
  local n = job_unhold(job, record, freed)
  local refused = reason == 'NODE_OVERLOADED' or reason == 'NODE_UNAVAILABLE'
  local unbegun = refused or reason == 'push_failed' or reason == 'no_ack'
  local spared = tonumber(f[6] or 0)
  local waits_until = (unbegun or not held) and tonumber(f[8] or '') or nil
  if held and unbegun then
    waits_until = waits_until or now + policy.pending_ms
    if spared < (refused and REFUSED_MAX or UNANSWERED_MAX) then spared = spared + 1 end
  end
  -- For operators: every attempt that was taken from its node, with its times and the reason.
  local past = f[10] or ''
  if held then
    past = past .. attempt .. ' ' .. record.node .. ' ' .. (f[9] or 0) .. ' ' .. now .. ' '
      .. reason .. ';'
  end
  local kind = held and (attempt - spared >= policy.attempts_max
      or refused and waits_until <= now) and 'failed'
    or not held and redis.call('ZSCORE', PENDING, job) and 'expired'
  local reply
  if kind then
    local s = job_finish(job, record, kind, reason, '', policy, out)
    reply = { Reply.SETTLED, s.epoch, s.owner, s.session, outcomes_of(out) }
  else
    -- An expired slot or a lost socket says nothing about the node: if no other node can take the
    -- job, this one may get it again. The same holds for a refusal and for silence, after a rest.
    local rested = unbegun and (reason ~= 'push_failed' or spared > 1) or reason == 'not_running'
    local blames = not unbegun and not rested and reason ~= 'lease_lapsed' and reason ~= 'node_lost'
    if held and rested then rests = rest_add(rests, record.node, math.max(1, spared)) end
    if held and blames then tried = tried .. record.node .. '@' .. boot .. ',' end
    local placement, code, label
    if elsewhere then
      code, label = Reply.NO_AVAILABLE_NODE, 'affinity_elsewhere'
    else
      local near, left = session_owner(spec), left_out(tried, rests)
      placement, code, label, avoid = place(job, spec, attempt + 1, left, near, policy, park,
        'tried', tried, 'spared', spared, 'rests', rests, 'waits_until', waits_until or '',
        'past', past)
    end
    if placement then
      reply = { Reply.PLACED, placement }
    else
      due_at = now + (park and policy.reserve_ms or policy.pending_ms)
      if not park and waits_until and waits_until > now then due_at = waits_until end
      redis.call('HSET', job_key, 'state', 'CREATED', 'node', '', 'tried', tried, 'spared', spared,
        'rests', rests, 'waits_until', waits_until or '', 'due_at', due_at, 'past', past)
      redis.call('ZADD', DUE, park and due_at or rest_ends(rests, due_at), 'j|' .. job)
      if not park then queue_add(job, spec, due_at) end
      reply = { park and Reply.PARKED or Reply.QUEUED, code, label }
    end
  end
  -- A node that just refused is not asked for the waiting jobs at once.
  if n and n[N_POOL] and not refused then serve_waiting(record.node, n[N_POOL], policy, placed) end
  reply[#reply + 1] = freed
  reply[#reply + 1] = placed
  reply[#reply + 1] = reason
  reply[#reply + 1] = record.node
  if reply[1] == Reply.SETTLED then reply[#reply + 1] = attempt end
  if reply[1] == Reply.QUEUED or reply[1] == Reply.PARKED then
    reply[#reply + 1] = attempt
    reply[#reply + 1] = spec.demand
    reply[#reply + 1] = spec.preferred or ''
    reply[#reply + 1] = left_out(tried, rests)
    reply[#reply + 1] = table.concat(turn_nodes(spec), ',')
    reply[#reply + 1] = avoid or ''
  end
  return reply
end
