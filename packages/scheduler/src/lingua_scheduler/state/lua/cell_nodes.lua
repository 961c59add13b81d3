-- One page of the cell's nodes, by id, with the fields that placement uses.
-- KEYS: due
-- ARGV: now_ms, after (node id, '' = from the start), limit
-- Returns: {OK, now, [[node, status, drain, over, max, extra, pool, boot, acks, instance, leased,
--   score, beat_at, info, hold, pressure, streams used, streams it takes] ...]}
-- Writes: nothing
-- Cost: O(limit)
--- @include "includes/cell"
--- @include "includes/node_score"
--- @include "includes/streams"

local function cell_nodes(ARGV)
  local from = ARGV[2] == '' and '-' or '(' .. ARGV[2]
  local ids = redis.call('ZRANGEBYLEX', BASE .. 'nodes', from, '+', 'LIMIT', 0, tonumber(ARGV[3]))
  local rows = {}
  for _, node in ipairs(ids) do
    local n = redis.call('HMGET', NODE .. node, 'status', 'drain', 'over', 'max',
      'extra', 'pool', 'boot', 'acks', 'instance', 'beat_at', 'info', 'hold', 'pressure',
      'streams', 'conn')
    -- A name without a record is damage that `lingua doctor` finds; the others are still listed.
    if n[6] then
      local score = redis.call('ZSCORE', POOL .. n[6], node)
      local heard = redis.call('ZCOUNT', BASE .. 'streams:' .. node, now + 1, '+inf')
      rows[#rows + 1] = { node, n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9],
        leased_count(node), score, n[10], n[11], n[12] or '0', n[13] or '',
        heard, streams.max(n[14], n[15]) }
    end
  end
  return { Reply.OK, now, rows }
end
