-- Writes one placement of a job: attempt, holder, deadline and turn affinity change together.
--- @include "includes/node_score"
--- @include "includes/cell"
--- @include "includes/job_timers"

-- The node of the turn's earlier jobs as `cell/node`: that of this language, else that of the turn.
local function turn_affinity(spec)
  if not spec.turn then return nil end
  local found = redis.call('HMGET', SESSION .. spec.session,
    'turn:' .. spec.turn .. '/' .. spec.lane, 'turn:' .. spec.turn)
  return found[1] or found[2] or nil
end

-- Adds the first `count` of `found` that are not known to `nodes`.
local function add_new(nodes, known, found, count)
  for i = 1, count do
    if found[i] and not known[found[i]] then
      known[found[i]], nodes[#nodes + 1] = true, found[i]
    end
  end
end

-- All nodes of the turn's jobs, in the order of asking: that of this language, that of the turn,
-- those of its other languages.
local function turn_nodes(spec)
  local nodes, known = {}, {}
  if not spec.turn then return nodes end
  local key, turn = SESSION .. spec.session, 'turn:' .. spec.turn
  local found = redis.call('HMGET', key, turn .. '/' .. spec.lane, turn, 'lanes')
  add_new(nodes, known, found, 2)
  if #nodes == 0 then return nodes end
  local fields = {}
  for lane in string.gmatch(found[3] or '', '[^ ]+') do
    if lane ~= spec.lane then fields[#fields + 1] = turn .. '/' .. lane end
  end
  if #fields > 0 then
    add_new(nodes, known, redis.call('HMGET', key, unpack(fields)), #fields)
  end
  return nodes
end

-- A placement for the reply in one text, because each item of a list costs as much. The caller adds
-- why it has its node ('' if it had waited).
local function placement_text(job, attempt, node, cell, instance, moved, ends_at, pool)
  return job .. ' ' .. attempt .. ' ' .. node .. ' ' .. cell .. ' ' .. instance .. ' ' .. moved
    .. ' ' .. ends_at .. ' ' .. pool
end

-- n: the node's fields; the other arguments are further fields of the record. Returns the placement
-- for the reply.
local function assign(job, spec, attempt, cell, node, n, policy, ...)
  local ends_at, moved = text_of(now + policy.attempt_ms), '0'
  local due_at = n[N_ACKS] == '1' and text_of(now + policy.ack_ms) or ends_at
  attempt = text_of(attempt)
  if spec.turn then
    local affinity, holder = turn_affinity(spec), cell .. '/' .. node
    moved = affinity and affinity ~= holder and '1' or '0'
    if affinity ~= holder then
      local field = 'turn:' .. spec.turn .. (affinity and '/' .. spec.lane or '')
      redis.call('HSET', SESSION .. spec.session, field, holder)
    end
  end
  if policy.spread then
    redis.call('HSET', SESSION .. spec.session, 'last_node', node, 'last_node_at', now)
  end
  redis.call('HSET', JOB .. job, 'state', 'CREATED', 'attempt', attempt, 'node', node,
    'cell', cell, 'boot', n[N_BOOT], 'acks', n[N_ACKS], 'ends_at', ends_at, 'due_at', due_at,
    'placed_at', text_of(now), ...)
  job_timers.set(job, due_at)
  return placement_text(job, attempt, node, cell, n[N_INSTANCE] or '', moved, ends_at, n[N_POOL])
end
