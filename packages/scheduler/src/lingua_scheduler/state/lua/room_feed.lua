-- Notes that an instance has readers of a room's captions in a language, for a limited time; or
-- that it has none any more. They are no members: they do not keep the room.
-- KEYS: due
-- ARGV: now_ms, policy (as room_enter; also feed_ms, feeds_max), code, tenant, language, instance,
--   readers (-1 = it has no feed any more)
-- Returns: {OK, now, [field, value, ...]} the whole room, which changed | {ALREADY, now, [...]} it
--   did not | {FENCED, now, 'no_room' | 'full'}; another tenant's room is treated as missing
-- Writes: room
-- Cost: O(fields of the room)
--- @include "includes/cell"
--- @include "includes/room"

local function room_feed(ARGV)
  local policy, key, field = policy_of(ARGV[2]), room_key(ARGV[3]), 'r:' .. ARGV[5]
  local instance, readers = ARGV[6], tonumber(ARGV[7])
  local known = redis.call('HMGET', key, 'tenant', field)
  if known[1] ~= ARGV[4] then return room_refuses('no_room') end
  local others, mine = feeds_kept(known[2], instance), nil
  for name, count in string.gmatch(known[2] or '', '(%S+) %d+ (%d+)') do
    if name == instance then mine = tonumber(count) end
  end
  local feeds = others
  if readers >= 0 then
    if not known[2] then
      local count = 0
      for _, name in ipairs(redis.call('HKEYS', key)) do
        if string.sub(name, 1, 2) == 'r:' then count = count + 1 end
      end
      if count >= policy.feeds_max then return room_refuses('full') end
    end
    local own = instance .. ' ' .. string.format('%.0f', now + policy.feed_ms) .. ' ' .. ARGV[7]
    feeds = others == '' and own or others .. ' ' .. own
  end
  feeds_write(key, field, feeds, known[2])
  if mine == (readers >= 0 and readers or nil) then return room_answer(Reply.ALREADY, key) end
  room_changed(key)
  return room_answer(Reply.OK, key)
end
