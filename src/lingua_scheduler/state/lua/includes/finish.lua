-- A job's end: its outcome enters the lane, its slot is freed, its timer and record are closed,
-- all in one step. Used by every script that can end a job.
--- @include "includes/lease"
--- @include "includes/release"

-- record: state, attempt, node, cell, boot, acks, ends_at, due_at, tried, seq, spec
local function job_read(job)
  local f = redis.call('HMGET', BASE .. 'job:' .. job, 'state', 'attempt', 'node', 'cell', 'boot',
    'acks', 'ends_at', 'due_at', 'tried', 'seq', 'spec')
  if not f[1] then return nil end
  return { state = f[1], attempt = tonumber(f[2]), node = f[3] or '', cell = f[4] or '',
    boot = f[5] or '', acks = f[6], ends_at = tonumber(f[7] or 0), due_at = tonumber(f[8]),
    tried = f[9] or '', seq = f[10], spec = cmsgpack.unpack(f[11]),
    ended = f[1] == 'FINISHED' or f[1] == 'RELEASED' }
end

-- Gives back the slot of the current attempt. A slot in another cell is remembered as a timer, so
-- that any instance frees it if this caller dies, and added to `freed`. A local one: returns the
-- node's fields.
local function job_unhold(job, record, freed)
  if record.node == '' then return nil end
  local member = job .. '|' .. record.attempt
  if record.cell == CELL then return lease_free(record.node, member, job_tie(job)) end
  redis.call('ZADD', DUE, now + 1000, 'r|' .. record.cell .. '|' .. record.node .. '|' .. member)
  freed[#freed + 1] = { record.cell, record.node, job, record.attempt }
  return nil
end

local function audio_drop(job, spec)
  local key = BASE .. 'audio:' .. spec.session .. '|' .. spec.index
  redis.call('HDEL', key, job)
  if redis.call('HLEN', key) == 1 then redis.call('DEL', key) end
end

local function job_dequeue(job, demand)
  --- @include "includes/queue"
  queue_remove(job, demand)
end

-- The closing piece of a turn has ended in one lane: forget that lane's node; forget the turn's
-- own node once no other lane still holds the closing piece.
local function turn_closed_in(spec)
  local key = BASE .. 'session:' .. spec.session
  local whole = true
  for lane in string.gmatch(redis.call('HGET', key, 'lanes') or '', '[^ ]+') do
    local held = redis.call('HGET', key, 'at:' .. lane .. ':' .. spec.index)
    if held and string.byte(held) ~= 61 then whole = false end
  end
  redis.call('HDEL', key, 'turn:' .. spec.turn .. '/' .. spec.lane)
  if whole then redis.call('HDEL', key, 'turn:' .. spec.turn) end
end

-- `out` collects seq, entry of everything this releases. Returns the session's fields.
local function job_finish(job, record, kind, reason, payload, policy, out)
  local spec, key = record.spec, BASE .. 'job:' .. job
  local s = session_read(spec.session, spec.lane, spec.index)
  local entry = kind .. ' ' .. spec.index .. ' ' .. spec.lane .. ' ' .. job .. ' ' .. record.attempt
    .. ' ' .. reason .. '\n' .. payload
  local seq = lane_settle(spec.session, spec.lane, spec.index, s, entry, policy.binding_ms, out)
  if seq then
    redis.call('HSET', key, 'state', 'RELEASED', 'outcome', kind, 'seq', seq)
    redis.call('PEXPIRE', key, policy.binding_ms)
  else
    redis.call('HSET', key, 'state', 'FINISHED', 'outcome', kind)
  end
  redis.call('ZREM', DUE, 'j|' .. job)
  if record.node == '' then job_dequeue(job, spec.demand) end
  if spec.audio then audio_drop(job, spec) end
  if spec.closes_turn then turn_closed_in(spec) end
  return s
end
