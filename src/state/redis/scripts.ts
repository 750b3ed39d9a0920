/**
 * The Lua script of the shared store: the operations of one turn of the event loop, in the order they came. Each touches one key,
 * or two with a common hash tag (`…Both`), so a Cluster runs them one by one on whatever node holds the slot.
 *
 * An id's value is `p <token> <fingerprint>` while it is being processed and `h <fingerprint>` once it is handled; the key's own
 * expiry is the lease or the retention. A resource's is `<newest> <until> <token> <until>`: the newest version that was handled, and who
has the place now, each with the time by Redis's own clock from which on it counts as absent (`-` and 0: absent). A count of attempts is a number, and its expiry the end of its window or ban.
 *
 * KEYS             the key of each operation, in order; then the second key of each `…Both`, in order
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

-- How long the key is banned, in ms; 0: it is not. Writes nothing, unless the expiry of a ban was lost.
local function readBan(key, failures, ban)
  if tonumber(redis.call('GET', key) or '0') < failures then return 0 end
  local left = redis.call('PTTL', key)
  if left == -1 then
    redis.call('PEXPIRE', key, ban)
    left = tonumber(ban)
  end
  return math.max(left, 1)
end

local function countAttempt(key, failures, per, ban)
  local count = redis.call('INCR', key)
  if count >= failures then redis.call('PEXPIRE', key, ban)
  elseif count == 1 then redis.call('PEXPIRE', key, per) end
end

-- 0: the attempt is counted for both keys; else { number of the banned key, ms for which it is banned }, and nothing is counted
function operations.attempt(key, failures, per, ban, other)
  failures = tonumber(failures)
  local left = readBan(key, failures, ban)
  if left > 0 then return { '1', left } end
  if other then
    left = readBan(other, failures, ban)
    if left > 0 then return { '2', left } end
    countAttempt(other, failures, per, ban)
  end
  countAttempt(key, failures, per, ban)
  return 0
end

local function uncountAttempt(key, failures, per)
  local count = tonumber(redis.call('GET', key) or '0')
  if count <= 1 then return redis.call('DEL', key) end
  redis.call('DECR', key)
  if count == tonumber(failures) then redis.call('PEXPIRE', key, per) end
end

-- 0: the attempt is uncounted
function operations.refund(key, failures, per, _, other)
  if other then uncountAttempt(other, failures, per) end
  uncountAttempt(key, failures, per)
  return 0
end

operations.attemptBoth, operations.refundBoth = operations.attempt, operations.refund

local replies, extra = {}, #ARGV / 4
for i = 1, #ARGV / 4 do
  local at, other = 4 * i, nil
  local name = ARGV[at - 3]
  if string.sub(name, -4) == 'Both' then
    extra = extra + 1
    other = KEYS[extra]
  end
  local ok, reply = pcall(operations[name], KEYS[i], ARGV[at - 2], ARGV[at - 1], ARGV[at], other)
  if not ok then reply = { -1, type(reply) == 'table' and reply.err or tostring(reply) } end
  replies[i] = reply
end
return replies
`;
