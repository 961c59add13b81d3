-- Registers a node. The same process (boot id) keeps its leases; a new process under the same id
-- fences the old one, whose leases are returned to be moved. Streams end with their socket. An
-- operator's drain is kept.
-- KEYS: due
-- ARGV: now_ms, policy, node, boot, conn (this socket), capability (msgpack map), about (msgpack
--   map: instance, max, streams (how many it takes), silence_ms, acks, draining, info, again: the
--   same socket, which the store may have lost; a newer socket keeps its place)
-- Returns: {REGISTERED, status, pool, [lease of the fenced process ...], [placement ...]}
--   | {RESUMED, status, pool, [as before ...], [placement ...], [lease it still has ...]}
--   | {FENCED}
-- Writes: node, nodes, pool, pools, demands, due, streams, streaming
-- Cost: O(log n + leases)
--- @include "includes/cell"
--- @include "includes/lease"
--- @include "includes/serve_waiting"
--- @include "includes/node_pool"
--- @include "includes/node_state"
--- @include "includes/streams"

local function node_register(ARGV)
  local policy, node, boot, conn = policy_of(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
  local can, about = cmsgpack.unpack(ARGV[6]), cmsgpack.unpack(ARGV[7])
  local key = NODE .. node
  local known_boot, known_status, known_pool, known_drain, known_orphans, known_conn, hold = unpack(
    redis.call('HMGET', key, 'boot', 'status', 'pool', 'drain', 'orphans', 'conn', 'hold'))
  if about.again and known_conn and known_conn ~= conn then return { Reply.FENCED } end
  local same = known_boot == boot
  local status, orphans = 'registering', ''
  if same and known_status ~= 'offline' then status = known_status end
  if not same and known_boot then orphans = table.concat(node_leases(node), ',') end
  if same then orphans = known_orphans or '' end
  local drain = about.draining or hold == '1' or (same and known_drain == '1')
  redis.call('HSET', key, 'boot', boot, 'conn', conn, 'status', status, 'instance', about.instance,
    'max', about.max, 'silence_ms', about.silence_ms, 'acks', about.acks and 1 or 0,
    'drain', drain and 1 or 0, 'over', 0, 'block', node_block(status, drain, false),
    'extra', 0, 'good', 0, 'bad', '', 'registered_at', now,
    'beat_at', now, 'orphans', orphans, 'missing', '', 'can', ARGV[6], 'info', about.info)
  local listens = (about.streams or 0) > 0
  if listens then
    redis.call('HSET', key, 'streams', about.streams .. ' ' .. conn)
  else
    redis.call('HDEL', key, 'streams')
  end
  if known_pool and (known_conn ~= conn or not listens) then streams.drop(node, known_pool) end
  redis.call('ZADD', BASE .. 'nodes', 0, node)
  local pool = pool_enter(node, can, known_pool or nil)
  node_arm(node, orphans ~= '' and now + policy.claim_ms or now + about.silence_ms)
  local lost, held = {}, {}
  for _, lease in ipairs(same and node_leases(node) or {}) do
    local lost_already = string.find(',' .. orphans .. ',', ',' .. lease .. ',', 1, true)
    if not lost_already then held[#held + 1] = lease end
  end
  local placed = node_settled(node, policy, {})
  for lease in string.gmatch(orphans, '[^,]+') do lost[#lost + 1] = lease end
  if not same then return { Reply.REGISTERED, status, pool, lost, placed } end
  return { Reply.RESUMED, status, pool, lost, placed, held }
end
