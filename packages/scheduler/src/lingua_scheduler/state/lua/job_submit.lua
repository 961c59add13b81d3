-- Admits the jobs of one utterance, one for each language, and places them: identity, order,
-- placement, lease and record are written in one step.
-- KEYS: due
-- ARGV: now_ms, policy (msgpack map), audio, then for each job: id, spec (msgpack map), body, park
--   spec: session, index, lane, demand, turn, is_slice, closes_turn, preferred, unwanted_from,
--   audio (it is kept for the utterance) or own_audio (in the job's record), fence, heard_after,
--   heard, heard_ms, speech, top, ms, lanes, sound, also; in a room: audience, readers,
--   readers_from; if a node has listened: stream, stream_node (`cell/node`)
--   park: 0 = queue it if no node here can take it; 1 = park it, the caller tries other cells; 2 =
--   park it at once unless the turn's node or that of its stream is here (the preferred node is in
--   another cell, or an earlier job of the turn is being placed in one)
-- Returns: [for each job: placement: `job attempt node cell instance moved ends_at pool how`, and
--   on further lines the nodes that were looked at
--   | {QUEUED | PARKED, code, label, affinity (`cell/node,...`: asked first), avoid (a node),
--     looked}
--   | {DUPLICATE, state, attempt, node, outcome, seq, spec} | {refusal, label}];
--   of one job that is placed the placement alone
--   A request that was refused, or cancelled with its session, has no answer and is tried again.
-- Writes: job, session (order, affinity), leases, pool, due; or pending, queue, waiting; a stream
--   of this cell ends, whatever the answer: streams, streaming, stream
-- Cost: O(log n) in nodes, O(pools of the demand) when they are full
--- @include "includes/cell"
--- @include "includes/lane"
--- @include "includes/lane_names"
--- @include "includes/stream"
--- @include "includes/place"
--- @include "includes/unanswered"
--- @include "includes/queue"
--- @include "includes/readers_put"
-- Whether a job of this call has stored the audio.
local is_kept

-- Audio that no other job needs is written with the record, and ends with one of its later writes:
-- it has no command of its own.
local function audio_fields(spec, audio)
  if spec.own_audio then return 'audio', audio end
end

local function submit(job, spec_text, body, park, audio, policy)
  local job_key, spec = JOB .. job, cmsgpack.unpack(spec_text)
  local heard_by = spec.stream and streams.node_of(spec)
  if heard_by then streams.free(heard_by, spec.stream) end
  local known, before = redis.call('HGET', job_key, 'state'), 0
  if known then
    local more = redis.call('HMGET', job_key, 'attempt', 'node', 'outcome', 'seq', 'spec', 'reason')
    local is_named = redis.call('HEXISTS', job_key, 'answer') == 1
    if not is_named or not unanswered(known, more[3], more[6]) then
      return { Reply.DUPLICATE, known, tonumber(more[1]), more[2] or '', more[3] or '',
        tonumber(more[4] or 0), more[5] }
    end
    before = tonumber(more[1])
  end
  local lane, session_key = spec.lane, SESSION .. spec.session
  local names = lane_names(lane)
  local at, at_before = names[L_AT] .. text_of(spec.index), names[L_AT] .. text_of(spec.index - 1)
  local epoch, owner, closed, seq, trimmed, next_text, entry, skip, fence, top, heard, before_it =
    unpack(redis.call('HMGET', session_key, 'epoch', 'owner', 'closed', 'seq', 'trimmed',
      names[L_NEXT], at, names[L_SKIP], 'fence', 'top', 'heard', at_before))
  if not epoch then return { Reply.NO_SESSION, 'no_session' } end
  if closed then return { Reply.SESSION_CLOSED, 'session_closed' } end
  if spec.fence and number_of(fence) ~= spec.fence then return { Reply.FENCED, 'owner' } end
  if spec.heard_after and tonumber(heard or -1) < spec.heard_after then
    return { Reply.TOO_EARLY, 'order' }
  end
  local next_index = number_of(next_text)
  local refused =
    lane_refuses(session_key, spec, next_index or 0, skip, entry, policy.in_flight_max)
  if refused then return { refused, 'order' } end
  if number_of(seq) - number_of(trimmed) >= policy.outbox_max then
    return { Reply.OUTBOX_FULL, 'outbox' }
  end

  local placement, code, label, avoid
  local affinity = turn_affinity(spec)
  local elsewhere = affinity and string.match(affinity, '^(.-)/') ~= CELL
    or not affinity and park == '2' and not heard_by
  if elsewhere then
    code, label = Reply.NO_AVAILABLE_NODE, 'affinity_elsewhere'
  else
    -- Attempts continue after those of a cancelled job of this id, which a node may still hold.
    placement, code, label, avoid = place(job, spec, before + 1, '', owner or '', policy,
      park == '2' and not affinity and 'wanted' or park ~= '0', 'spec', spec_text, 'body', body,
      audio_fields(spec, audio))
  end
  local parked = not placement and (elsewhere or park ~= '0')
  if not placement then
    if not parked then
      if code == Reply.NO_POOL_FOR_LANG_PAIR and policy.refuse_unserved_pairs then
        return { code, label }
      end
      if queue_full(spec.demand, policy.pending_jobs_max) then
        return { Reply.QUEUE_FULL, label }
      end
    end
    local due_at = now + (parked and policy.reserve_ms or policy.pending_ms)
    redis.call('HSET', job_key, 'state', 'CREATED', 'attempt', before, 'due_at', due_at,
      'created_at', now, 'spec', spec_text, 'body', body, audio_fields(spec, audio))
    job_timers.set(job, due_at)
    if not parked then queue_add(job, spec, due_at) end
  end
  if known then
    -- Fields of the former job.
    redis.call('HDEL', job_key, 'outcome', 'seq', 'reason', 'answer', 'tried', 'rests',
      'waits_until', 'past', 'ended_at')
    if placement then
      redis.call('HDEL', job_key, 'created_at')
    else
      redis.call('HDEL', job_key, 'node', 'cell', 'boot', 'acks', 'ends_at', 'placed_at')
    end
    if not spec.own_audio then redis.call('HDEL', job_key, 'audio') end
    redis.call('HSET', job_key, 'spared', before)
    -- The same job again, without the time to live of an ended one.
    local fields = redis.call('HGETALL', job_key)
    redis.call('DEL', job_key)
    redis.call('HSET', job_key, unpack(fields))
  end
  local order = { at, text_of(now) .. ' ' .. job }
  if not next_index then
    order[3], order[4] = 'lanes', (redis.call('HGET', session_key, 'lanes') or '') .. lane .. ' '
  end
  stream_note(order, top, heard, spec)
  lane_put(session_key, spec, next_index, order, policy.gap_ms, before_it)
  if spec.readers then
    readers_put(session_key, spec, policy.gap_ms)
  end
  if audio ~= '' and not spec.own_audio then
    local audio_key = BASE .. 'audio:' .. spec.session .. '|' .. spec.index
    if is_kept then
      redis.call('HSET', audio_key, job, '')
    else
      redis.call('HSET', audio_key, 'audio', audio, job, '')
    end
    is_kept = true
  end
  spec_keep(spec_text, spec)
  if placement then return placement end
  if not parked then return { Reply.QUEUED, code, label, '', '', looked } end
  return { Reply.PARKED, code, label, table.concat(turn_nodes(spec), ','), avoid or '', looked }
end

local function job_submit(ARGV)
  local policy, answers = policy_of(ARGV[2]), {}
  is_kept = false
  for i = 4, #ARGV, 4 do
    local park = ARGV[i + 3]
    answers[#answers + 1] = submit(ARGV[i], ARGV[i + 1], ARGV[i + 2], park, ARGV[3], policy)
  end
  if #answers == 1 and type(answers[1]) == 'string' then return answers[1] end
  return answers
end
