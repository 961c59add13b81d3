-- Where a node stands in its pool: nodes that can take work score below FULL, least loaded first,
-- ties broken by `tie` (0 <= tie < TIES); the others score in the band of the filter that removed
-- them. One sorted set so answers "who is next", "is anyone free" and "why not" without reading
-- nodes. Scores are whole numbers, which the server stores and prints several times faster.
-- Bands: 2e9 full, 3e9 over threshold, 4e9 not ready, 5e9 draining, 6e9 offline.
local TIES, FULL, OFFLINE = 1048576, 2000000000, 6000000000

-- n: block (the band, 0 = none), max, extra, pool, boot, acks, instance
local function node_read(node)
  return redis.call('HMGET', BASE .. 'node:' .. node,
    'block', 'max', 'extra', 'pool', 'boot', 'acks', 'instance')
end

local function node_score(n, leased, tie)
  if n[1] ~= '0' then return tonumber(n[1]) end
  local used, max = leased + n[3], tonumber(n[2])
  if used >= max then return FULL end
  return math.floor(1000 * used / max) * TIES + tie
end

local function leased_count(node)
  return redis.call('ZCOUNT', BASE .. 'leases:' .. node, now + 1, '+inf')
end

-- A job's own share of chance, stable for the job: the tie-break and where its search starts.
local function job_tie(job)
  return tonumber(string.sub(job, 5, 9), 16) or 0
end
