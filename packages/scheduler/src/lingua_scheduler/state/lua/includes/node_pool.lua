-- A node's pool follows from its present abilities: the declared ones without the services marked
-- as unavailable. Nodes with equal abilities share a pool; a node is in exactly one. Capability
-- (msgpack map): langs (json text), breadth, services (type -> implementation ids), features
-- (sorted list), owner (tenant of a private node, or ''), labels (sorted list; older instances
-- write none). The name of a pool without labels is the same as in older releases.
--- @include "includes/cell"
--- @include "includes/node_score"

-- A service works while it is not marked by its type and has an implementation that is not marked.
local function services_left(services, marks)
  local left = {}
  for service, implementations in pairs(services) do
    local works = not marks[service] and #implementations == 0
    for _, id in ipairs(implementations) do
      if not marks[service] and not marks[id] then works = true end
    end
    if works then left[#left + 1] = service end
  end
  table.sort(left)
  return left
end

local function live_marks(node)
  local marks = {}
  local live = redis.call('ZRANGEBYSCORE', BASE .. 'marks:' .. node, '(' .. now, '+inf')
  for _, service in ipairs(live) do marks[service] = true end
  return marks
end

local function json_list(list)
  if #list == 0 then return '[]' end
  return cjson.encode(list)
end

local function pool_descriptor(can, services)
  local labels = can.labels or {}
  local breadth = can.breadth * 1000 + #services * 20 + #can.features
  return table.concat({ '{"breadth":', string.format('%d', breadth), ',',
    string.sub(can.langs, 2, -2),
    ',"services":', json_list(services), ',"features":', json_list(can.features),
    ',"owner":', cjson.encode(can.owner),
    #labels > 0 and ',"labels":' .. cjson.encode(labels) or '', '}' })
end

local function pool_leave(node, pool)
  local key = POOL .. pool
  redis.call('ZREM', key, node)
  redis.call('ZREM', BASE .. 'streaming:' .. pool, node)
  if redis.call('EXISTS', key) == 0 then
    redis.call('HDEL', BASE .. 'pools', pool)
    redis.call('UNLINK', DEMANDS)
  end
end

-- Puts the node into the pool of its present abilities; returns that pool.
local function pool_enter(node, can, former)
  local descriptor = pool_descriptor(can, services_left(can.services, live_marks(node)))
  local pool = string.sub(redis.sha1hex(descriptor), 1, 12)
  if pool == former then return pool end
  if redis.call('HSETNX', BASE .. 'pools', pool, descriptor) == 1 then
    redis.call('UNLINK', DEMANDS)
  end
  redis.call('HSET', NODE .. node, 'pool', pool)
  redis.call('ZADD', POOL .. pool, OFFLINE, node)
  if former then pool_leave(node, former) end
  return pool
end
