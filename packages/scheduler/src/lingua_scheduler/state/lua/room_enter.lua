-- Lets a session into a room: a new one with a free code, an existing one, or one that the store
-- has lost and whose members return.
-- KEYS: due
-- ARGV: now_ms, policy (msgpack map: members_max, idle_ms, check_ms), mode (create | join |
--   restore), code, tenant, member (msgpack map: session, home, instance, lang, name; to restore
--   also joined_at, created_at, spoke_at, voices: speaker -> whether wanted)
-- Returns: {OK, now, [field, value, ...]} the whole room | {ALREADY, now, [...]} it is a member
--   | {FENCED, now, 'taken' | 'no_room' | 'full'}; another tenant's room is treated as missing
-- Writes: room, due
-- Cost: O(fields of the room)
--- @include "includes/cell"
--- @include "includes/room"

local function room_enter(ARGV)
  local policy, mode, code, tenant = policy_of(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
  local member, key = cmsgpack.unpack(ARGV[6]), room_key(ARGV[4])
  local session, is_back = member.session, mode == 'restore'
  local known = redis.call('HMGET', key, 'tenant', 'count', 'created_at', 'm:' .. session, 'joins',
    'joined_at')
  if mode == 'create' and known[1] then return room_refuses('taken') end
  if mode == 'join' and known[1] ~= tenant then return room_refuses('no_room') end
  if is_back and known[1]
    and (known[1] ~= tenant or tonumber(known[3]) ~= member.created_at) then
    return room_refuses('no_room')
  end
  if known[4] then return room_answer(Reply.ALREADY, key) end
  if known[1] and tonumber(known[2]) >= policy.members_max then return room_refuses('full') end
  if not known[1] then
    redis.call('HSET', key, 'tenant', tenant, 'created_at', is_back and member.created_at or wall,
      'spoke_at', is_back and member.spoke_at or now, 'version', math.max(now, wall))
  end
  local name, place = member.name, (known[5] or 0) + 1
  -- Stays are identified by their time of entry: no two of a room are equal.
  local joined_at = math.max(wall, (known[6] or 0) + 1)
  if is_back then joined_at = member.joined_at end
  redis.call('HSET', key, 'joins', place, 'count', (known[2] or 0) + 1,
    'joined_at', math.max(joined_at, tonumber(known[6] or 0)),
    'm:' .. session, table.concat({ place, string.format('%.0f', joined_at), member.home,
      name and '1' or '0' }, ' ') .. '\n' .. (name or ''),
    'l:' .. session, member.lang, 'i:' .. session, member.instance)
  for speaker, is_wanted in pairs(member.voices or {}) do
    redis.call('HSET', key, 'v:' .. session .. '|' .. speaker, is_wanted and '1' or '0')
  end
  room_changed(key)
  if not known[1] then room_arm(code, key, policy) end
  return room_answer(Reply.OK, key)
end
