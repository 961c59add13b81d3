-- Puts right what no script of the product would, and looks once more before it does: what is in
-- order by now stays as it is. Only `lingua doctor` runs it.
-- KEYS: due
-- ARGV: now_ms, what, name, more (a time in ms, or a job)
-- Returns: {OK, 1 | 0 something was changed}
-- Writes: what it is told: due, job, session, outbox, audio, pending, queue, waiting, nodes, marks,
--   pool, pools, demands, instance, streams, streaming
-- Cost: O(log n); O(members) for a pool
--- @include "includes/cell"
local mend = {}

local function job_lives(job)
  local state = redis.call('HGET', JOB .. job, 'state')
  return state and state ~= 'FINISHED' and state ~= 'RELEASED'
end

local function session_is_open(session)
  local s = redis.call('HMGET', SESSION .. session, 'epoch', 'closed')
  return s[1] and not s[2]
end

-- The deadline of a job that is over.
function mend.deadline(name)
  if job_lives(name) then return 0 end
  return redis.call('ZREM', DUE, 'j|' .. name)
end

-- The record of a job that is over and that no lane waits for: it ends with its binding.
function mend.job(name, more)
  local f = redis.call('HMGET', JOB .. name, 'state', 'spec')
  if not f[1] or job_lives(name) then return 0 end
  if f[1] == 'FINISHED' then
    local spec = cmsgpack.unpack(f[2])
    local at = redis.call('HGET', SESSION .. spec.session,
      'at:' .. spec.lane .. ':' .. string.format('%.0f', spec.index))
    if at and string.find(at, ' ' .. name .. ' ', 1, true) then return 0 end
  end
  return redis.call('PEXPIRE', JOB .. name, more, 'NX')
end

-- A session that is closed or was never opened, and its outbox: both end with the resume window.
function mend.session(name, more)
  if session_is_open(name) then return 0 end
  return redis.call('PEXPIRE', SESSION .. name, more, 'NX')
    + redis.call('PEXPIRE', OUTBOX .. name, more, 'NX')
end

-- Audio: forget the jobs that are over, and it with the last of them.
function mend.audio(name)
  local key, gone = BASE .. 'audio:' .. name, 0
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if field ~= 'audio' and not job_lives(field) then
      gone = gone + redis.call('HDEL', key, field)
    end
  end
  if redis.call('HLEN', key) <= 1 then gone = gone + redis.call('DEL', key) end
  return gone
end

-- A demand's queue (name; '' if nobody knows it), of one job (more) or of its first deadline.
function mend.queue(name, more)
  local queue, changed = BASE .. 'queue:' .. name, 0
  if more ~= '' then
    local f = redis.call('HMGET', JOB .. more, 'state', 'node', 'spec', 'due_at')
    local waits = f[1] == 'CREATED' and (f[2] or '') == ''
    local queued = redis.call('ZSCORE', queue, more)
    if waits and cmsgpack.unpack(f[3]).demand == name then
      if queued or redis.call('ZSCORE', PENDING, more) then
        changed = redis.call('ZADD', queue, f[4], more)
          + redis.call('ZADD', PENDING, f[4], more)
      end
    else
      changed = redis.call('ZREM', queue, more)
      if not waits then changed = changed + redis.call('ZREM', PENDING, more) end
    end
  end
  if name == '' then return changed end
  local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
  if not first[1] then return changed + redis.call('ZREM', WAITING, name) end
  return changed + redis.call('ZADD', WAITING, 'CH', first[2], name)
end

-- A node has a record and is listed, or neither; marks go with it.
function mend.node(name)
  if redis.call('HEXISTS', NODE .. name, 'status') == 1 then
    return redis.call('ZADD', BASE .. 'nodes', 0, name)
  end
  return redis.call('ZREM', BASE .. 'nodes', name) + redis.call('DEL', BASE .. 'marks:' .. name)
end

-- Streams end with their node, or when they expire.
function mend.streams(name)
  local key = BASE .. 'streams:' .. name
  if redis.call('EXISTS', NODE .. name) == 0 then return redis.call('DEL', key) end
  return redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
end

-- Only nodes of the pool rank among those of the pool that take streams.
function mend.streaming(name)
  local key, changed = BASE .. 'streaming:' .. name, 0
  for _, node in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    if redis.call('HGET', NODE .. node, 'pool') ~= name then
      changed = changed + redis.call('ZREM', key, node)
    end
  end
  return changed
end

-- A pool has the nodes that say they are in it, and is listed as long as it has any.
function mend.pool(name)
  local key, changed = POOL .. name, 0
  for _, node in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    if redis.call('HGET', NODE .. node, 'pool') ~= name then
      changed = changed + redis.call('ZREM', key, node)
    end
  end
  if redis.call('EXISTS', key) == 0 then
    changed = changed + redis.call('HDEL', BASE .. 'pools', name)
    redis.call('UNLINK', DEMANDS)
  end
  return changed
end

-- The record of an instance that is not listed.
function mend.instance(name)
  if redis.call('ZSCORE', BASE .. 'instances', name) then return 0 end
  return redis.call('DEL', BASE .. 'instance:' .. name)
end

-- A room is looked at by timer.
function mend.room(name)
  if redis.call('EXISTS', BASE .. 'room:' .. name) == 0 then
    return redis.call('ZREM', DUE, 'room|' .. name)
  end
  return redis.call('ZADD', DUE, 'NX', now, 'room|' .. name)
end

local function cell_mend(ARGV)
  local what, name, more = ARGV[2], ARGV[3], ARGV[4]
  return { Reply.OK, mend[what](name, more) > 0 and 1 or 0 }
end
