-- Releasing outcomes in order into the outbox. `seq` is the position of the last one released.

local function session_read(session, lane, index)
  local s = redis.call('HMGET', BASE .. 'session:' .. session, 'epoch', 'owner', 'seq',
    'next:' .. lane, 'skip:' .. lane, 'at:' .. lane .. ':' .. (index + 1))
  return { session = session, epoch = s[1] or '', owner = s[2] or '', seq = tonumber(s[3] or 0),
    next = tonumber(s[4] or 0), skip = s[5], ahead = s[6] }
end

local function job_released(job, seq, binding_ms)
  local key = BASE .. 'job:' .. job
  redis.call('HSET', key, 'state', 'RELEASED', 'seq', seq)
  redis.call('PEXPIRE', key, binding_ms)
end

-- If nobody wanted `index`: the index after that range.
local function lane_skip(skip, index)
  for from, to in string.gmatch(skip or '', '(%d+):(%d+),') do
    if index >= tonumber(from) and index < tonumber(to) then return tonumber(to) end
  end
  return nil
end

-- Walks on from s.next over what already waits there. `done` collects the fields to drop.
local function lane_walk(session, lane, s, binding_ms, out, done)
  local key, prefix, skip = BASE .. 'session:' .. session, 'at:' .. lane .. ':', s.skip
  while true do
    local field = prefix .. s.next
    local value = redis.call('HGET', key, field)
    if value and string.byte(value) == 61 then
      local entry = string.match(value, '^=%d+ (.*)$')
      s.seq = s.seq + 1
      redis.call('RPUSH', BASE .. 'outbox:' .. session, entry)
      out[#out + 1], out[#out + 2] = s.seq, entry
      local job = string.match(entry, '^%S+ %d+ %S+ (%S+)')
      if job ~= '-' then job_released(job, s.seq, binding_ms) end
      done[#done + 1] = field
      s.next = s.next + 1
    else
      local after = not value and lane_skip(skip, s.next)
      if not after then break end
      skip = string.gsub(skip, '%d+:' .. after .. ',', '', 1)
      s.next = after
    end
  end
  if skip ~= s.skip then
    if skip == '' then
      done[#done + 1] = 'skip:' .. lane
    else
      redis.call('HSET', key, 'skip:' .. lane, skip)
    end
  end
end

-- Takes `entry`, the outcome of `index`, into the lane. Returns its seq if its turn has come, else
-- it waits. The common case (it is next, nothing waits behind it) is one push, one write and one
-- delete.
local function lane_settle(session, lane, index, s, entry, binding_ms, out)
  local key, field = BASE .. 'session:' .. session, 'at:' .. lane .. ':' .. index
  if index ~= s.next then
    local put_ms = string.match(redis.call('HGET', key, field) or '', '^%d+') or now
    redis.call('HSET', key, field, '=' .. put_ms .. ' ' .. entry)
    return nil
  end
  local own, done = s.seq + 1, { field }
  redis.call('RPUSH', BASE .. 'outbox:' .. session, entry)
  out[#out + 1], out[#out + 2] = own, entry
  s.seq, s.next = own, index + 1
  if s.skip or (s.ahead and string.byte(s.ahead) == 61) then
    lane_walk(session, lane, s, binding_ms, out, done)
  end
  redis.call('HSET', key, 'seq', s.seq, 'next:' .. lane, s.next)
  redis.call('HDEL', key, unpack(done))
  return own
end
