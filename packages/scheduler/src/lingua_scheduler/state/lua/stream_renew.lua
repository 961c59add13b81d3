-- Renews the streams of an instance in one cell.
-- KEYS: due
-- ARGV: now_ms, policy, lease_ms, then for each: node, stream id
-- Returns: {OK, [id of a stream that is gone ...]}
-- Writes: streams
-- Cost: O(streams * log n); callers send at most 500 per call
--- @include "includes/cell"

local function stream_renew(ARGV)
  local policy, expires_at, gone = policy_of(ARGV[2]), now + ARGV[3], {}
  for i = 4, #ARGV, 2 do
    local key, stream = BASE .. 'streams:' .. ARGV[i], ARGV[i + 1]
    local held = redis.call('ZSCORE', key, stream)
    if held and tonumber(held) > now then
      redis.call('ZADD', key, expires_at, stream)
      redis.call('PEXPIRE', key, policy.binding_ms)
    else
      gone[#gone + 1] = stream
    end
  end
  return { Reply.OK, gone }
end
