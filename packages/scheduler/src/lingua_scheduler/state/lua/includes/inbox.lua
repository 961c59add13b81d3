-- The base of scripts that use the keys of one instance: its inbox, its clock, its key names.
-- KEYS[1] is `<prefix>:v1:{i:<instance>}:inbox`; every other key is derived from it, so that all
-- share one hash tag. ARGV[1] is now in ms; 0 asks the server.
local INBOX = KEYS[1]
local BASE = string.sub(INBOX, 1, -6)
local GROUP = 'scheduler'
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
