-- Closes a session: every open job ends as cancelled, in order; affinity is removed; undelivered
-- outcomes stay readable for the resume window and then expire.
-- KEYS: due
-- ARGV: now_ms, policy, session, reason, lapse_only (1 = only if it was not renewed), fence (0 =
--   any owner), field, value, ... (speech and silence at the end, from its owner)
-- Returns: {SETTLED, epoch, owner, session, outcomes, [freed], [placement ...], [cancelled
--   job ...], [the account of its speech: as session_speech.lua]}
--   | {NO_SESSION} | {NOT_DUE, lapses_at} also while listeners wait for open jobs | {FENCED}
-- Writes: as job_settle, for at most lanes * in_flight_max jobs
-- Cost: O(live jobs)
--- @include "includes/cell"
--- @include "includes/finish"
--- @include "includes/serve_waiting"
--- @include "includes/lane_entries"
--- @include "includes/lane_walk"
--- @include "includes/speech"

-- Of two { index, job }.
local function is_earlier(one, other)
  if one[1] ~= other[1] then return one[1] < other[1] end
  return one[2] < other[2]
end

local function session_close(ARGV)
  local policy, session = policy_of(ARGV[2]), ARGV[3]
  local key, timer = SESSION .. session, 's|' .. session
  local found = redis.call('HMGET', key, 'epoch', 'closed', 'lanes', 'fence')
  if not found[1] or found[2] then
    redis.call('ZREM', DUE, timer)
    return { Reply.NO_SESSION }
  end
  if ARGV[6] ~= '0' and found[4] ~= ARGV[6] then return { Reply.FENCED } end
  if ARGV[5] == '1' then
    local lapses_at = tonumber(redis.call('ZSCORE', DUE, timer) or 0)
    if lapses_at > now + policy.claim_ms then return { Reply.NOT_DUE, lapses_at } end
  end

  -- The open jobs in the order of their index, and the fields to remove.
  local live, gone, fields = {}, {}, redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    local index = string.match(fields[i], '^at:.+:(%d+)$')
    local job = index and string.match(fields[i + 1], '^%d+ (.+)$')
    if job then live[#live + 1] = { tonumber(index), job } end
    if string.sub(fields[i], 1, 5) == 'turn:' then gone[#gone + 1] = fields[i] end
  end
  if ARGV[5] == '1' then
    -- The speaker has left, its listeners have not: each of these jobs ends by itself.
    for _, entry in ipairs(live) do
      if job_read(entry[2]).spec.audience then
        redis.call('ZADD', DUE, now + policy.claim_ms, timer)
        return { Reply.NOT_DUE, now + policy.claim_ms }
      end
    end
  end
  table.sort(live, is_earlier)
  local out, freed, placed, cancelled, nodes, order = {}, {}, {}, {}, {}, {}

  -- Outcomes behind a hole must not be lost with the session: every hole gets its outcome now.
  for lane in string.gmatch(found[3] or '', '[^ ]+') do
    local s, prefix = session_read(session, lane, 0), 'at:' .. lane .. ':'
    local at = s.next
    for _, entry in ipairs(lane_entries(key, lane)) do
      while at < entry[1] do
        local after = lane_skip(s.skip, at)
        if not after then
          local entry_of_hole = entry_missing(at, lane, ARGV[4])
          redis.call('HSET', key, prefix .. at, '=' .. now .. ' ' .. entry_of_hole)
        end
        at = after or at + 1
      end
      at = entry[1] + 1
    end
    local from, done = s.next, {}
    lane_walk(session, lane, s, policy, out, done)
    if s.next ~= from then redis.call('HSET', key, 'seq', s.seq, 'next:' .. lane, s.next) end
    if #done > 0 then redis.call('HDEL', key, unpack(done)) end
    redis.call('ZREM', DUE, 'g|' .. session .. '|' .. lane)
  end
  for _, entry in ipairs(live) do
    local job, record = entry[2], job_read(entry[2])
    local n = job_unhold(job, record, freed)
    if n and n[N_POOL] and not nodes[record.node] then
      nodes[record.node] = n[N_POOL]
      order[#order + 1] = record.node
    end
    job_finish(job, record, 'cancelled', ARGV[4], '', policy, out)
    cancelled[#cancelled + 1] = { job, record.attempt, record.cell or '', record.node }
  end
  local s = session_read(session, '', 0)
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  redis.call('HSET', key, 'closed', now, unpack(ARGV, 7))
  local spoken = speech_ended(key)
  redis.call('PEXPIRE', key, policy.resume_ms)
  redis.call('PEXPIRE', OUTBOX .. session, policy.resume_ms)
  redis.call('ZREM', DUE, timer)
  for _, node in ipairs(order) do serve_waiting(node, nodes[node], policy, placed) end
  return { Reply.SETTLED, s.epoch, s.owner, s.session, outcomes_of(out), freed, placed, cancelled,
    spoken }
end
