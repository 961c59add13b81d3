-- Ends a job: its outcome enters the lane, its slot is freed, its timer and record are closed, all
-- in one step. Used by every script that can end a job.
--- @include "includes/lease_free"
--- @include "includes/release"
--- @include "includes/account"
--- @include "includes/cell"
--- @include "includes/job_timers"
--- @include "includes/queue"
--- @include "includes/readers_end"

-- record: state, attempt, node, cell, spec, packed, ended; other fields are read where they are
-- needed.
local function job_read(job)
  local f = redis.call('HMGET', JOB .. job, 'state', 'attempt', 'node', 'cell', 'spec')
  if not f[1] then return nil end
  return { state = f[1], attempt = number_of(f[2]), attempt_text = f[2], node = f[3] or '',
    cell = f[4], spec = spec_of(f[5]), packed = f[5],
    ended = f[1] == 'FINISHED' or f[1] == 'RELEASED' }
end

-- Gives back the slot of the current attempt. A slot in another cell gets a timer, so that any
-- instance frees it if this caller dies, and is added to `freed`. For a slot of this cell the
-- node's fields are returned.
local function job_unhold(job, record, freed)
  if record.node == '' then return nil end
  local member = job .. '|' .. record.attempt_text
  if record.cell == CELL then return lease_free(record.node, member, job_tie(job)) end
  redis.call('ZADD', DUE, now + 1000, 'r|' .. record.cell .. '|' .. record.node .. '|' .. member)
  freed[#freed + 1] = { record.cell, record.node, job, record.attempt }
  return nil
end

-- The remains of some jobs: a place in the queue, the audio that they share with those of other
-- languages, the end of their turn.
local function job_leaves(job, record)
  local spec = record.spec
  local key = SESSION .. spec.session
  if record.node == '' then queue_remove(job, spec.demand) end
  if spec.audio then
    local audio_key = BASE .. 'audio:' .. spec.session .. '|' .. spec.index
    -- It has the audio, and a field for each job that may still need it.
    if redis.call('HLEN', audio_key) > 2 then
      redis.call('HDEL', audio_key, job)
    else
      redis.call('DEL', audio_key)
    end
  end
  if not spec.closes_turn then return end

  -- The turn's node of this language is removed; that of the turn when no other language still has
  -- its closing piece.
  local whole = true
  for lane in string.gmatch(redis.call('HGET', key, 'lanes') or '', '[^ ]+') do
    local held = lane ~= '~' and redis.call('HGET', key, 'at:' .. lane .. ':' .. spec.index)
    if held and string.byte(held) ~= 61 then whole = false end
  end
  redis.call('HDEL', key, 'turn:' .. spec.turn .. '/' .. spec.lane)
  if whole then redis.call('HDEL', key, 'turn:' .. spec.turn) end
end

-- The answer of a named request, whose client may ask for it again; and nothing in place of audio
-- that only this job needed.
local function last_fields(spec, payload)
  if spec.sound and spec.own_audio then return 'answer', payload, 'audio', '' end
  if spec.sound then return 'answer', payload end
  if spec.own_audio then return 'audio', '' end
end

-- `out` collects seq, entry of all outcomes that this releases. `text`: the payload without sound,
-- for the speaker and for listeners that need only the text. Returns the session's fields.
local function job_finish(job, record, kind, reason, payload, policy, out, text)
  local spec, key = record.spec, JOB .. job
  local s = session_read(spec.session, spec.lane, spec.index)
  if spec.ms then
    s.ended = account(SESSION .. spec.session, s.ended, spec, fate_of(kind))
  end
  local head = job .. ' ' .. record.attempt_text .. ' ' .. reason
  local place = kind .. ' ' .. text_of(spec.index) .. ' ' .. spec.lane .. ' ' .. head
  local entry = spec.audience and entry_for_others(place, spec.audience, text or '', payload)
    or place .. '\n' .. payload
  local seq = lane_settle(spec.session, spec.lane, spec.index, s, entry, policy, out)
  if seq then
    redis.call('HSET', key, 'state', 'RELEASED', 'outcome', kind, 'seq', text_of(seq),
      'reason', reason, 'ended_at', text_of(now), last_fields(spec, payload))
    redis.call('PEXPIRE', key, text_of(policy.binding_ms))
  else
    redis.call('HSET', key, 'state', 'FINISHED', 'outcome', kind, 'reason', reason,
      'ended_at', text_of(now), last_fields(spec, payload))
  end
  job_timers.stop(job)
  spec_drop(record.packed)
  if record.node == '' or spec.audio or spec.closes_turn then job_leaves(job, record) end
  if spec.readers then
    local words = (text or '') ~= '' and text or payload
    readers_end(spec, kind, head, words, policy, out)
  end
  return s
end
