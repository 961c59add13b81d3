-- The score of a node in its pool: nodes that can take work score below FULL, least loaded first,
-- ties broken by `tie` (0 <= tie < TIES); the others score in the band of the filter that removed
-- them. Thus one sorted set answers which node is next, whether one is free, and why not, without
-- reading nodes. Scores are whole numbers, which the server stores and prints several times faster.
-- Bands: 2e9 full, 3e9 over threshold, 4e9 not ready, 5e9 draining, 6e9 offline.
--- @include "includes/cell"
local TIES, FULL, OFFLINE = 1048576, 2000000000, 6000000000

-- The fields of a node that placement reads; block is the band, 0 = none; max and extra are
-- numbers, the others texts.
local N_BLOCK, N_MAX, N_EXTRA, N_POOL, N_BOOT, N_ACKS, N_INSTANCE = 1, 2, 3, 4, 5, 6, 7

-- The instances that have the sockets of nodes, by the node's key, as last read here: placement
-- prefers nodes of the session's own instance. One that is out of date costs a message.
local HOSTS_MAX = 32768
local hosts, host_count = {}, 0

local function host_note(key, instance)
  if not hosts[key] then
    if host_count >= HOSTS_MAX then hosts, host_count = {}, 0 end
    host_count = host_count + 1
  end
  hosts[key] = instance
end

local function host_of(node)
  local key = NODE .. node
  if not hosts[key] then host_note(key, redis.call('HGET', key, 'instance') or '') end
  return hosts[key]
end

local function node_read(node)
  local known = kept and kept.nodes[node]
  if known then return known end
  local key = NODE .. node
  local n = redis.call('HMGET', key, 'block', 'max', 'extra', 'pool', 'boot', 'acks', 'instance')
  if hosts[key] ~= n[N_INSTANCE] then host_note(key, n[N_INSTANCE] or '') end
  n[N_MAX], n[N_EXTRA] = number_of(n[N_MAX]), number_of(n[N_EXTRA])
  if kept then kept.nodes[node] = n end
  return n
end

-- The score of a node without a block.
local function load_score(used, max, tie)
  if used >= max then return FULL end
  return math.floor(1000 * used / max) * TIES + tie
end

local function node_score(n, leased, tie)
  if n[N_BLOCK] ~= '0' then return tonumber(n[N_BLOCK]) end
  return load_score(leased + n[N_EXTRA], n[N_MAX], tie)
end

local function leased_count(node)
  local known = kept and kept.leased[node]
  if known then return known end
  local count = redis.call('ZCOUNT', LEASES .. node, now + 1, '+inf')
  if kept then kept.leased[node] = count end
  return count
end

-- A lease of the node was added, which has not expired.
local function leased_one_more(node, count)
  if kept then kept.leased[node] = count end
end

-- A lease of the node was removed. If others have expired, this one may have, too: then it was not
-- among those that count.
local function leased_one_less(node)
  local known = kept and kept.leased[node]
  if not known then return end
  if kept.clean[node] then
    kept.leased[node] = known - 1
    return
  end
  -- If no more are left than were counted before, without this one, then none has expired.
  local left = redis.call('ZCARD', LEASES .. node)
  kept.leased[node] = left == known - 1 and left or nil
  kept.clean[node] = leased_count(node) == left
end

-- A job's own pseudo-random number, stable for the job: the tie-break and the start of its search.
local function job_tie(job)
  return tonumber(string.sub(job, 5, 9), 16) or 0
end
