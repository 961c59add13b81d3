-- Where a node stands in its pool: nodes that can take work score below FULL, least loaded first
-- with ties broken by `tie` (0 <= tie < 1); the others score in the band of the filter that
-- removed them. One sorted set so answers "who is next", "is anyone free" and "why not" without
-- reading nodes. Bands: 1e6 full, 2e6 over threshold, 3e6 not ready, 4e6 draining, 5e6 offline.
local FULL, OFFLINE = 1000000, 5000000

-- n: block (the band, 0 = none), max, extra, pool, boot, acks, instance
local function node_read(node)
  return redis.call('HMGET', BASE .. 'node:' .. node,
    'block', 'max', 'extra', 'pool', 'boot', 'acks', 'instance')
end

local function node_score(n, leased, tie)
  if n[1] ~= '0' then return tonumber(n[1]) end
  local used, max = leased + n[3], tonumber(n[2])
  if used >= max then return FULL end
  return math.floor(1000 * used / max) + tie
end

local function leased_count(node)
  return redis.call('ZCOUNT', BASE .. 'leases:' .. node, '(' .. now, '+inf')
end

-- A job's own share of chance, stable for the job: the tie-break and where its search starts.
local function job_tie(job)
  return (tonumber(string.sub(job, 5, 10), 16) or 0) / 16777216
end
