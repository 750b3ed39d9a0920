/**
 * The Lua script of the shared store: the operations of one turn of the event loop, in the order they came. Each touches one key,
 * so a Cluster runs them one by one on whatever node holds the key.
 *
 * An id's value is `p <token> <fingerprint>` while it is being processed and `h <fingerprint>` once it is handled; the key's own
 * expiry is the lease or the retention. A resource's is `<newest> <until> <token> <until>`: the newest version that was handled, and who
has the place now, each with the time by Redis's own clock from which on it counts as absent (`-` and 0: absent). A count of attempts is a number, and its expiry the end of its window or ban.
 *
 * KEYS[i]          the key of operation i
 * ARGV[4i-3 … 4i]  its name and arguments; times in ms
 * RETURNS          for each operation: what its function says, or { -1, error }: one that fails takes no other with it
 */
export const OPERATE = `
local operations = {}

-- 1: claimed for the token; else { value, remaining ms }
function operations.claim(key, token, fingerprint, lease)
  local value = redis.call('GET', key)
  if value then return { value, redis.call('PTTL', key) } end
  redis.call('SET', key, 'p ' .. token .. ' ' .. fingerprint, 'PX', lease)
  return 1
end

-- 1: handled from now on (the token held the claim, or nobody did); 0: the claim is someone else's, nothing changed
function operations.confirm(key, token, fingerprint, retention)
  local value = redis.call('GET', key)
  if value and string.find(value, 'p ' .. token .. ' ', 1, true) ~= 1 then return 0 end
  redis.call('SET', key, 'h ' .. fingerprint, 'PX', retention)
  return 1
end

-- 1: forgotten; 0: the token does not hold the claim, nothing changed
function operations.release(key, token)
  local value = redis.call('GET', key)
  if not value or string.find(value, 'p ' .. token .. ' ', 1, true) ~= 1 then return 0 end
  redis.call('DEL', key)
  return 1
end

-- 0: it was absent; else { value that was cleared, 0 }
function operations.forget(key)
  local value = redis.call('GET', key)
  if not value then return 0 end
  redis.call('DEL', key)
  return { value, 0 }
end

local function readPlace(key)
  local time = redis.call('TIME')
  local place = { now = time[1] * 1000 + math.floor(time[2] / 1000), newest = '-', newestUntil = 0, token = '-', leaseUntil = 0 }
  local newest, newestUntil, token, leaseUntil = string.match(redis.call('GET', key) or '', '^(%S+) (%d+) (%S+) (%d+)$')
  if newest and tonumber(newestUntil) > place.now then place.newest, place.newestUntil = newest, tonumber(newestUntil) end
  if token and tonumber(leaseUntil) > place.now then place.token, place.leaseUntil = token, tonumber(leaseUntil) end
  return place
end

-- Whole numbers are written out: Lua would round what is as large as a time.
local function writePlace(key, place)
  local left = math.max(place.newestUntil, place.leaseUntil) - place.now
  if left <= 0 then return redis.call('DEL', key) end
  local value = string.format('%s %.0f %s %.0f', place.newest, place.newestUntil, place.token, place.leaseUntil)
  redis.call('SET', key, value, 'PX', string.format('%.0f', left))
end

-- 1: the place is the token's; 0: a newer version was handled; else { '', ms for which it is another's }
function operations.enter(key, version, token, lease)
  local place = readPlace(key)
  if place.newest ~= '-' and version < place.newest then return 0 end
  if place.token ~= '-' and place.token ~= token then return { '', place.leaseUntil - place.now } end
  place.token, place.leaseUntil = token, place.now + tonumber(lease)
  writePlace(key, place)
  return 1
end

-- The place is free again if the token holds it, and the version, where there is one, was handled.
-- 1: the token held it, or it was free and there was something to record; 0: the place is another's, or there was nothing to do
function operations.leave(key, token, version, retention)
  local place = readPlace(key)
  local isMine, isFree = place.token == token, place.token == '-'
  if isMine then place.token, place.leaseUntil = '-', 0 end
  if version ~= '' and (place.newest == '-' or version >= place.newest) then
    local forgottenAt = place.now + tonumber(retention)
    if version == place.newest then forgottenAt = math.max(forgottenAt, place.newestUntil) end
    place.newest, place.newestUntil = version, forgottenAt
  end
  if isMine or version ~= '' then writePlace(key, place) end
  return (isMine or (isFree and version ~= '')) and 1 or 0
end

-- 0: an attempt was left, and is taken; else how long none is
function operations.attempt(key, failures, per, ban)
  local count = tonumber(redis.call('GET', key) or '0')
  if count >= tonumber(failures) then return redis.call('PTTL', key) end
  count = redis.call('INCR', key)
  if count >= tonumber(failures) then redis.call('PEXPIRE', key, ban)
  elseif count == 1 then redis.call('PEXPIRE', key, per) end
  return 0
end

-- 0: an attempt is given back, if there is one
function operations.refund(key, failures, per)
  local count = tonumber(redis.call('GET', key) or '0')
  if count == 0 then return 0 end
  redis.call('DECR', key)
  if count == tonumber(failures) then redis.call('PEXPIRE', key, per) end
  return 0
end

local replies = {}
for i, key in ipairs(KEYS) do
  local at = 4 * i
  local ok, reply = pcall(operations[ARGV[at - 3]], key, ARGV[at - 2], ARGV[at - 1], ARGV[at])
  if not ok then reply = { -1, type(reply) == 'table' and reply.err or tostring(reply) } end
  replies[i] = reply
end
return replies
`;
