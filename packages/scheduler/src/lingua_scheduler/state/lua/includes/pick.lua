-- The placement policy inside one cell: the same order as jobs/placement.py, its pure twin. Among
-- equally broad pools the first two with a free node are compared, starting at a pool chosen by the
-- job's own pseudo-random number, or at the pool that last served the session and its languages,
-- which loses only to a clearly less loaded one. Within a pool the least loaded node wins; of its
-- least loaded nodes, one whose socket is on the instance of the job's session wins unless another
-- one is clearly less loaded. O(log n) in nodes.
--- @include "includes/cell"
--- @include "includes/lease"
--- @include "includes/demand"
--- @include "includes/ranks"
-- How much more loaded what is preferred may be, in units of the score: a quarter of the slots.
local STICKY, NEARER = 250 * TIES, 250 * TIES
-- How many nodes of a pool are considered when the least loaded one is on another instance.
local NEAR_LOOK = 8
-- The group of pools of the last pick, the narrowest is 1.
local rank
local LOOKED_MAX = 32

-- `skip` maps node -> boot: an attempt failed there, and only that process of the node is excluded;
-- boot '*' excludes every process of the node, node '*' every node.
local function skipped(skip, node)
  local boot = skip['*'] or skip[node]
  if not boot then return false end
  return boot == '*' or boot == redis.call('HGET', NODE .. node, 'boot')
end

-- Adds a considered node for operators.
local function look_note(pool, node, score)
  if #looked < LOOKED_MAX then looked[#looked + 1] = pool .. ' ' .. node .. ' ' .. score end
end

-- The node that a pool offers, with its score, and whether it is on the instance `near` ('' = any
-- node is as good). The second look is for nodes beside the least loaded one. prefix: the beginning
-- of the key that ranks the pool's nodes.
local function pool_top(pool, skip, skips, near, prefix)
  local count, from = 1 + skips, 1
  local best, best_score, seen = nil, nil, 0
  for _ = 1, near == '' and 1 or 2 do
    local nodes, scores = ranks.first(prefix, pool, count)
    for i = from, math.min(count, #nodes) do
      local node = nodes[i]
      local score = scores[node]
      local out = skips > 0 and score < FULL and skipped(skip, node)
      if looked then look_note(pool, node, out and 'tried' or string.format('%.0f', score)) end
      if score >= FULL or best and score - best_score >= NEARER then return best, best_score end
      if not out then
        if near == '' or host_of(node) == near then return node, score, near ~= '' end
        if not best then best, best_score = node, score end
        seen = seen + 1
        if seen == NEAR_LOOK then return best, best_score end
      end
    end
    if #nodes < count then break end
    from, count = count + 1, skips + NEAR_LOOK
  end
  return best, best_score
end

-- The place of the pool that last served the session and these languages in a group, or nil; the
-- session's key, nil if it does not exist; and the languages.
local function sticky_place(group, spec)
  local session, pair = SESSION .. spec.session, string.match(spec.demand, '^[^|]*')
  local known = redis.call('HMGET', session, 'epoch', 'pool:' .. spec.lane)
  local of, pool = string.match(known[2] or '', '^(.-) (.*)$')
  return of == pair and group.place[pool] or nil, known[1] and session, pair
end

-- near: the instance of the job's session; '' if it is not known. spec: of the job, if its session
-- is in this cell and has sticky pools; else nil. prefix: nil = by the load of jobs. Returns the
-- node and its pool.
local function pick(pools, skip, skips, tie, near, spec, prefix)
  local groups = pool_groups(pools)
  for number = 1, #groups do
    local group = groups[number]
    local count = #group
    local first, best, best_score, seen = math.floor(tie * count / TIES), nil, FULL, 0
    local session, pair, kept, chosen
    rank = number
    if spec and count > 1 then
      kept, session, pair = sticky_place(group, spec)
      if kept then first = kept - 1 end
    end
    for i = 0, count - 1 do
      local place = (first + i) % count + 1
      local node, score, is_near = pool_top(group[place], skip, skips, near, prefix or POOL)
      if node then
        if is_near then score = score - NEARER end
        if place == kept then score = score - STICKY end
        if score < best_score then best, best_score, chosen = node, score, place end
        seen = seen + 1
        if seen == 2 then break end
      end
    end
    if best then
      if session and chosen ~= kept then
        redis.call('HSET', session, 'pool:' .. spec.lane, pair .. ' ' .. group[chosen])
      end
      return best, group[chosen]
    end
  end
  return nil
end

-- Why a node of a score gets no work; and of how many pools this is told.
local POOLS_EXPLAINED_MAX = 16
local BANDS = {
  { 'status_not_ready', 4000000000, OFFLINE }, { 'offline', OFFLINE, OFFLINE + 1 },
  { 'capacity_exceeded', FULL, 3000000000 },
  { 'resource_threshold_exceeded', 3000000000, 4000000000 },
}

-- Why no node was picked: a reply code and the label of the largest group of removed nodes.
local function refusal(pools)
  if string.sub(pools, 1, 1) ~= ';' then
    local label = string.sub(pools, 2)
    if label == 'no_nodes' or label == 'lang_pair_unsupported'
      or label == 'tts_lang_unsupported' then
      return Reply.NO_POOL_FOR_LANG_PAIR, label
    end
    return Reply.NO_AVAILABLE_NODE, label
  end
  local counts, online, seen = { 0, 0, 0, 0 }, 0, 0
  ranks.write()
  for pool in string.gmatch(string.match(pools, '^[^#]+'), '%x+') do
    local key = POOL .. pool
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
