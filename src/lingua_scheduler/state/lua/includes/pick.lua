-- The placement policy inside one cell: the same order as jobs/placement.py, its pure twin.
-- Among equally broad pools two that have a free node are compared, beginning at a place the job's
-- own chance decides; within a pool the least loaded node is exact. O(log n) in nodes.
--- @include "includes/lease"
--- @include "includes/demand"

-- `skip` maps node -> boot: an attempt failed there, and only that process of the node is excluded;
-- boot '*' excludes the node whatever its process.
local function skipped(skip, node)
  local boot = skip[node]
  if not boot then return false end
  return boot == '*' or boot == redis.call('HGET', BASE .. 'node:' .. node, 'boot')
end

local function pool_top(pool, skip, skips)
  local top = redis.call('ZRANGE', BASE .. 'pool:' .. pool, 0, skips, 'WITHSCORES')
  for i = 1, #top, 2 do
    local score = tonumber(top[i + 1])
    if score >= FULL then return nil end
    if skips == 0 or not skipped(skip, top[i]) then return top[i], score end
  end
  return nil
end

local function pick(pools, skip, skips, tie)
  local from = 1
  while string.byte(pools, from) == 59 do
    local to = string.find(pools, '[;#]', from + 1)
    local group = string.sub(pools, from + 1, to - 1)
    local count = (#group + 1) / POOL_WIDTH
    from = to
    local first, best, best_score, seen = math.floor(tie * count / TIES), nil, FULL, 0
    for i = 0, count - 1 do
      local at = ((first + i) % count) * POOL_WIDTH
      local node, score = pool_top(string.sub(group, at + 1, at + POOL_WIDTH - 1), skip, skips)
      if node then
        if score < best_score then best, best_score = node, score end
        seen = seen + 1
        if seen == 2 then break end
      end
    end
    if best then return best end
  end
  return nil
end

-- Why nobody could be picked: a reply code and the label of the largest group of removed nodes.
local function refusal(pools)
  local POOLS_EXPLAINED_MAX = 16
  local BANDS = {
    { 'status_not_ready', 4000000000, OFFLINE }, { 'offline', OFFLINE, OFFLINE + 1 },
    { 'capacity_exceeded', FULL, 3000000000 },
    { 'resource_threshold_exceeded', 3000000000, 4000000000 },
  }
  if string.sub(pools, 1, 1) ~= ';' then
    local label = string.sub(pools, 2)
    if label == 'no_nodes' or label == 'lang_pair_unsupported'
      or label == 'tts_lang_unsupported' then
      return Reply.NO_POOL_FOR_LANG_PAIR, label
    end
    return Reply.NO_AVAILABLE_NODE, label
  end
  local counts, online, seen = { 0, 0, 0, 0 }, 0, 0
  for pool in string.gmatch(string.match(pools, '^[^#]+'), '%x+') do
    local key = BASE .. 'pool:' .. pool
    seen = seen + 1
    if seen <= POOLS_EXPLAINED_MAX then
      for i, band in ipairs(BANDS) do
        counts[i] = counts[i] + redis.call('ZCOUNT', key, band[2], '(' .. band[3])
      end
    end
    online = online + redis.call('ZCOUNT', key, '-inf', '(' .. OFFLINE)
  end
  if online == 0 then return Reply.EMPTY_POOL, 'offline' end
  local label, most = 'excluded', 0
  for i, band in ipairs(BANDS) do
    if counts[i] > most then label, most = band[1], counts[i] end
  end
  return Reply.NO_AVAILABLE_NODE, label
end
