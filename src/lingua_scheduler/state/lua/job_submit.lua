-- Admits one job and places it: identity, order, placement, lease and record in one step.
-- KEYS: due
-- ARGV: now_ms, policy (msgpack map), job id, spec (msgpack map), body, audio, park
--   spec: session, index, lane, demand, turn, is_slice, closes_turn, preferred, unwanted_from,
--   audio, fence, heard, heard_ms, top
--   park: 0 queue when nobody here can take it; 1 park it, the caller tries other cells; 2 park at
--   once unless the turn's node is here (the preferred node is in another cell)
-- Returns: {PLACED, placement} | {QUEUED, code, label} | {PARKED, code, label, affinity}
--   | {DUPLICATE, state, attempt, node, outcome, seq} | {refusal, label}
-- Writes: job, session (order, affinity), leases, pool, due; or pending, queue, waiting
-- Cost: O(log n) in nodes, O(pools of the demand) when they are full
--- @include "includes/cell"
--- @include "includes/lane"
--- @include "includes/place"
local job = ARGV[3]
local job_key = BASE .. 'job:' .. job
local known = redis.call('HGET', job_key, 'state')
if known then
  local more = redis.call('HMGET', job_key, 'attempt', 'node', 'outcome', 'seq')
  return { Reply.DUPLICATE, known, tonumber(more[1]), more[2] or '', more[3] or '',
    tonumber(more[4] or 0) }
end
local policy, spec, park = cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[4]), ARGV[7]
local lane, session_key = spec.lane, BASE .. 'session:' .. spec.session
local at = 'at:' .. lane .. ':' .. spec.index
local s = redis.call('HMGET', session_key, 'epoch', 'closed', 'seq', 'trimmed', 'next:' .. lane,
  at, 'skip:' .. lane, 'fence', 'top')
if not s[1] then return { Reply.NO_SESSION, 'no_session' } end
if s[2] then return { Reply.SESSION_CLOSED, 'session_closed' } end
if spec.fence and tonumber(s[8]) ~= spec.fence then return { Reply.FENCED, 'owner' } end
local next_index = tonumber(s[5])
local refused = lane_refuses(session_key, spec, next_index or 0, s[7], s[6], policy.in_flight_max)
if refused then return { refused, 'order' } end
if s[3] - s[4] >= policy.outbox_max then return { Reply.OUTBOX_FULL, 'outbox' } end

local placement, code, label
local affinity = turn_affinity(spec)
local elsewhere = affinity and string.match(affinity, '^(.-)/') ~= CELL
  or not affinity and park == '2'
if elsewhere then
  code, label = Reply.NO_AVAILABLE_NODE, 'affinity_elsewhere'
else
  placement, code, label = place(job, spec, 1, '', policy, 'spec', ARGV[4], 'body', ARGV[5])
end
local parked = not placement and (elsewhere or park == '1')
if not placement then
  --- @include "includes/queue"
  if not parked then
    if code == Reply.NO_POOL_FOR_LANG_PAIR and policy.refuse_unserved_pairs then
      return { code, label }
    end
    if queue_full(spec.demand, policy.pending_jobs_max) then return { Reply.QUEUE_FULL, label } end
  end
  local due_at = now + (parked and policy.reserve_ms or policy.pending_ms)
  redis.call('HSET', job_key, 'state', 'CREATED', 'attempt', 0, 'due_at', due_at,
    'spec', ARGV[4], 'body', ARGV[5])
  redis.call('ZADD', DUE, due_at, 'j|' .. job)
  if not parked then queue_add(job, spec.demand, due_at) end
end
local order = { at, now .. ' ' .. job }
if not next_index then
  order[3], order[4] = 'lanes', (redis.call('HGET', session_key, 'lanes') or '') .. lane .. ' '
end
-- A late one (another language, a second try) does not put back what a later utterance noted.
if spec.top and spec.top >= tonumber(s[9] or 0) then
  order[#order + 1], order[#order + 2] = 'top', spec.top
  if spec.heard then
    order[#order + 1], order[#order + 2] = 'heard', spec.heard
    order[#order + 1], order[#order + 2] = 'heard_ms', spec.heard_ms or 0
  end
end
lane_put(session_key, spec, next_index, order, policy.gap_ms)
if ARGV[6] ~= '' then
  local audio_key = BASE .. 'audio:' .. spec.session .. '|' .. spec.index
  redis.call('HSET', audio_key, 'audio', ARGV[6], job, '')
end
if placement then return { Reply.PLACED, placement } end
return { parked and Reply.PARKED or Reply.QUEUED, code, label, elsewhere and affinity or '' }
