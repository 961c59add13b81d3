-- The ranks of nodes in their pools, `pool:<pool>`. The calls of a batch use the first nodes of few
-- pools again and again: there they are read once, what changes is changed in what was read, and
-- the changes of a pool are written together, at the end of the batch or when more of the pool must
-- be read. One table, because a library has a limited number of locals.
--- @include "includes/call"
local ranks = {}

-- How many nodes of a pool are read when those that were read are not enough.
local RANKS_LOOK = 8

-- The pool as this batch knows it: nodes in their order, and their scores; `changed`: those whose
-- score is not written yet. Every other node of the pool comes after `last` and its score.
function ranks.known_of(pool)
  local known = kept.ranked[pool]
  if not known then
    known = { nodes = {}, scores = {}, changed = {}, last_score = -1, last = '' }
    kept.ranked[pool] = known
  end
  return known
end

-- Writes what has changed in a pool.
function ranks.write_pool(pool, known)
  local words = {}
  for node in pairs(known.changed) do
    words[#words + 1], words[#words + 2] = known.scores[node], node
  end
  if words[1] then
    redis.call('ZADD', POOL .. pool, unpack(words))
    known.changed = {}
  end
end

-- Reads the first `count` nodes of a pool, or all, and their scores.
function ranks.read(key, count)
  local found, nodes, scores = redis.call('ZRANGE', key, 0, count - 1, 'WITHSCORES'), {}, {}
  for i = 1, #found, 2 do
    nodes[#nodes + 1], scores[found[i]] = found[i], tonumber(found[i + 1])
  end
  return nodes, scores
end

-- Gives a node its score in its pool.
function ranks.set(pool, node, score)
  if not kept then
    redis.call('ZADD', POOL .. pool, text_of(score), node)
    return
  end
  local known = ranks.known_of(pool)
  local nodes, scores, at = known.nodes, known.scores, 1
  if scores[node] then
    while nodes[at] ~= node do at = at + 1 end
  else
    at = #nodes + 1
  end
  -- Its neighbours give way until it is between one that comes before and one that comes after.
  local other = nodes[at - 1]
  while other and (score < scores[other] or score == scores[other] and node < other) do
    nodes[at], at = other, at - 1
    other = nodes[at - 1]
  end
  other = nodes[at + 1]
  while other and (scores[other] < score or scores[other] == score and other < node) do
    nodes[at], at = other, at + 1
    other = nodes[at + 1]
  end
  nodes[at], scores[node], known.changed[node] = node, score, true
end

-- The first nodes of a pool, at least `count` of them, or all, and their scores. prefix: the
-- beginning of the key, which may be that of other ranks outside of batches.
function ranks.first(prefix, pool, count)
  if not kept then return ranks.read(prefix .. pool, count) end
  local known = ranks.known_of(pool)
  local nth, score = known.nodes[count], known.scores[known.nodes[count]]
  if known.is_whole or nth and (score < known.last_score
    or score == known.last_score and nth <= known.last) then
    return known.nodes, known.scores
  end
  ranks.write_pool(pool, known)
  if known.last ~= '' then count = math.max(count, RANKS_LOOK) end
  local nodes, scores = ranks.read(prefix .. pool, count)
  known.nodes, known.scores, known.is_whole = nodes, scores, #nodes < count
  known.last = nodes[#nodes] or ''
  known.last_score = scores[known.last] or -1
  return nodes, scores
end

-- Writes what has changed, for those who read the server itself, and at the end of a batch.
function ranks.write()
  for pool, known in pairs(kept and kept.ranked or {}) do ranks.write_pool(pool, known) end
end
