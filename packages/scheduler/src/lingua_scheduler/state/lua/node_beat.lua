-- A heartbeat: health, load, changed abilities; both sides' view of running jobs is compared.
-- KEYS: due
-- ARGV: now_ms, policy, node, boot, beat (msgpack map: good, over, pressure, acks, running,
--   jobs), capability, conn (the socket of the heartbeat; '' = any)
--   pressure: the resources over their threshold, as text
--   running: number of jobs it runs; jobs: their `job|attempt` if the node lists them
--   capability: the msgpack map if it changed, else ''
-- Returns: {OK, status, pool, [lease the node does not run ...], [job it should not run ...],
--   [placement ...], drain (0 | 1)}
--   | {NO_NODE} also if a later socket replaced this one and was lost | {FENCED}
-- Writes: node, pool, pools, demands, due, streams (without those that expired), streaming
-- Cost: O(log n + leases)
--- @include "includes/cell"
--- @include "includes/lease"
--- @include "includes/serve_waiting"
--- @include "includes/node_pool"
--- @include "includes/node_state"

local function node_beat(ARGV)
  local policy, node, boot = policy_of(ARGV[2]), ARGV[3], ARGV[4]
  local beat, key = cmsgpack.unpack(ARGV[5]), NODE .. ARGV[3]
  local known_boot, known_status, known_pool, known_good, known_bad, known_missing, since,
    silence_ms, known_acks, orphans, drain, conn = unpack(redis.call('HMGET', key, 'boot',
      'status', 'pool', 'good', 'bad', 'missing', 'registered_at', 'silence_ms', 'acks', 'orphans',
      'drain', 'conn'))
  if not known_boot then return { Reply.NO_NODE } end
  if known_boot ~= boot then return { Reply.FENCED } end
  -- Otherwise its work would go to the instance of the other socket.
  if ARGV[7] ~= '' and known_status == 'offline' and conn ~= ARGV[7] then
    return { Reply.NO_NODE }
  end

  local status, good = known_status, tonumber(known_good)
  local bad = known_bad .. (beat.good and '0' or '1')
  bad = string.sub(bad, -policy.bad_beats_window)
  good = beat.good and good + 1 or 0
  local _, failures = string.gsub(bad, '1', '')
  local registered_at = tonumber(since)
  if status == 'offline' then
    status, good, registered_at = 'registering', beat.good and 1 or 0, now
  end
  if status == 'registering' then
    if good >= policy.good_beats then
      status, bad = 'ready', ''
    elseif now - registered_at >= policy.warmup_ms then
      status = 'degraded'
    end
  elseif status == 'degraded' and beat.good then
    status, bad = 'ready', ''
  elseif status == 'ready' and failures >= policy.bad_beats then
    status = 'degraded'
  end

  -- A lease that the node does not list in two heartbeats in a row is lost; a listed job without a
  -- lease is unknown.
  local lost, unknown, missing, extra = {}, {}, {}, 0
  local leases = redis.call('ZRANGEBYSCORE', LEASES .. node, '(' .. now, '+inf')
  if beat.jobs then
    local runs, holds = {}, {}
    for _, job in ipairs(beat.jobs) do runs[job] = true end
    for _, lease in ipairs(leases) do
      local job = string.match(lease, '^[^|]+|%d+')
      holds[job] = true
      if not runs[job] then
        missing[#missing + 1] = lease
        if string.find(known_missing, ',' .. lease .. ',', 1, true) then lost[#lost + 1] = lease end
      end
    end
    for _, job in ipairs(beat.jobs) do
      if not holds[job] then unknown[#unknown + 1] = job end
    end
    extra = #unknown
  else
    extra = math.max(0, beat.running - #leases)
  end

  local can = ARGV[6] ~= '' and ARGV[6] or redis.call('HGET', key, 'can')
  redis.call('HSET', key, 'status', status, 'good', good, 'bad', bad, 'beat_at', now,
    'registered_at', registered_at,
    'over', beat.over and 1 or 0, 'pressure', beat.pressure or '',
    'block', node_block(status, drain == '1', beat.over),
    'extra', extra, 'acks', (beat.acks or known_acks == '1') and 1 or 0,
    'missing', ',' .. table.concat(missing, ',') .. ',', 'can', can)
  local pool = pool_enter(node, cmsgpack.unpack(can), known_pool)
  if orphans == '' then node_arm(node, now + tonumber(silence_ms)) end
  return { Reply.OK, status, pool, lost, unknown, node_settled(node, policy, {}),
    drain == '1' and 1 or 0 }
end
