-- Opens the stream of an utterance that is being spoken: takes a lease of a node that listens. A
-- node that is full of jobs may take it.
-- KEYS: due
-- ARGV: now_ms, policy, lease_ms, stream id, spec (msgpack map), park
--   spec: demand, lane, session (none: of another cell, which has checked it), fence, turn,
--   preferred, only (1 = no node but the preferred one)
--   park: 0 = any node here; 1 = unless the turn has nodes in other cells, which are asked first; 2
--   = only the turn's nodes (the preferred node is in another cell)
-- Returns: {STREAM_OPENED, node, instance, expires_at} also when repeated
--   | {refusal, label, affinity (`cell/node,...`: asked first)}
-- Writes: streams, streaming, stream, session (the pool of the language)
-- Cost: O(log n) in nodes, O(pools of the demand) when all streams are taken
--- @include "includes/cell"
--- @include "includes/place"
--- @include "includes/streams"

-- A node of the pools; one that turns out not to listen leaves the ranks, and another is tried.
local STREAM_TRIES = 8

local function pick_listener(stream, spec, pools, owner, in_turn, expires_at, policy)
  local tie, prefix = streams.tie(stream), BASE .. 'streaming:'
  local sticky = policy.sticky_pools and spec.session and spec or nil
  local avoid = policy.spread and spec.session and not in_turn
    and spread_from(spec, policy.spread_ms)
  for _ = 1, STREAM_TRIES do
    local node, pool
    if avoid then
      node, pool = pick_apart(pools, NONE, 0, tie, avoid, owner, sticky, prefix)
    end
    if not node then node, pool = pick(pools, NONE, 0, tie, owner, sticky, prefix) end
    if not node then break end
    local instance = streams.take(node, stream, expires_at, policy, spec.demand, pools)
    if instance then return node, instance end
    redis.call('ZREM', prefix .. pool, node)
    streams.rank(node, tie)
  end
  if string.sub(pools, 1, 1) == ';' then
    return nil, { Reply.NO_AVAILABLE_NODE, 'no_free_stream', '' }
  end
  local code, label = refusal(pools)
  return nil, { code, label, '' }
end

local function stream_open(ARGV)
  local policy, stream, spec = policy_of(ARGV[2]), ARGV[4], cmsgpack.unpack(ARGV[5])
  local park, owner, elsewhere, expires_at = ARGV[6], '', {}, now + ARGV[3]
  if spec.session then
    local s = redis.call('HMGET', SESSION .. spec.session, 'epoch', 'closed', 'fence', 'owner')
    if not s[1] then return { Reply.NO_SESSION, 'no_session', '' } end
    if s[2] then return { Reply.SESSION_CLOSED, 'session_closed', '' } end
    if spec.fence and tonumber(s[3]) ~= spec.fence then return { Reply.FENCED, 'owner', '' } end
    owner = s[4] or ''
  end
  local known = redis.call('GET', BASE .. 'stream:' .. stream)
  local held = known and tonumber(redis.call('ZSCORE', BASE .. 'streams:' .. known, stream) or 0)
  if held and held > now then
    return { Reply.STREAM_OPENED, known, redis.call('HGET', NODE .. known, 'instance'), held }
  end
  local nodes, named, pools = turn_nodes(spec), {}, demand_pools(spec.demand)
  for _, holder in ipairs(nodes) do
    local cell, node = string.match(holder, '^(.-)/(.*)$')
    if cell == CELL then named[#named + 1] = node else elsewhere[#elsewhere + 1] = holder end
  end
  named[#named + 1] = spec.preferred
  for _, node in ipairs(named) do
    local instance = streams.take(node, stream, expires_at, policy, spec.demand, pools)
    if instance then return { Reply.STREAM_OPENED, node, instance, expires_at } end
  end
  if spec.only then return { Reply.NO_AVAILABLE_NODE, 'no_free_stream', '' } end
  if park == '2' or park == '1' and #elsewhere > 0 then
    return { Reply.NO_AVAILABLE_NODE, 'affinity_elsewhere', table.concat(elsewhere, ',') }
  end
  local node, found = pick_listener(stream, spec, pools, owner, #nodes > 0, expires_at, policy)
  if not node then return found end
  return { Reply.STREAM_OPENED, node, found, expires_at }
end
