/**
 * The Lua script of the shared store. One call runs a batch of operations, in the order in which they were submitted; against a
 * Cluster every call has exactly one operation, because all keys of a call must be in one slot. An operation uses one key, or two
 * keys with the same hash tag (`…Both`).
 *
 * Values by kind of key:
 * - ID: `p <token> <fingerprint>` while it is claimed, `h <fingerprint>` once it is handled. The key's TTL is the lease or the
 *   retention.
 * - Resource (ordering): `<version> <until> <token> <until>`, the newest handled version and the token of the event that the app is
 *   handling. Each `until` is the time, by the clock of Redis, from which the part before it counts as absent. An absent part is
 *   `-` and 0. The key's TTL is the later of the two.
 * - Login attempts: the number of failed attempts. The key's TTL is the window, or the ban once the limit is reached.
 *
 * - KEYS: the key of each operation, in order; then the second key of each `…Both`, in order.
 * - ARGV[4i-3 … 4i]: the name and the three arguments of operation i; times in ms.
 * - RETURNS: for each operation the result of its function, or { -1, error }. The failure of one does not affect the others.
 */
export const OPERATE = `
local operations = {}
local command

-- Remembers the command: if the ACL forbids it, Redis does not name it.
local function call(name, ...)
  command = name
  return redis.call(name, ...)
end

-- 1: claimed for the token; otherwise { value, remaining ms }
function operations.claim(key, token, fingerprint, lease)
  local value = call('GET', key)
  if value then return { value, call('PTTL', key) } end
  call('SET', key, 'p ' .. token .. ' ' .. fingerprint, 'PX', lease)
  return 1
end

-- 1: recorded as handled (the token held the claim, or nobody did); 0: another token holds the claim, or the ID is already handled
function operations.confirm(key, token, fingerprint, retention)
  local value = call('GET', key)
  if value and string.find(value, 'p ' .. token .. ' ', 1, true) ~= 1 then return 0 end
  call('SET', key, 'h ' .. fingerprint, 'PX', retention)
  return 1
end

-- 1: the claim was removed; 0: the token does not hold the claim, and nothing changed
function operations.release(key, token)
  local value = call('GET', key)
  if not value or string.find(value, 'p ' .. token .. ' ', 1, true) ~= 1 then return 0 end
  call('DEL', key)
  return 1
end

-- 0: the key was absent; otherwise { the value that was removed, 0 }
function operations.forget(key)
  local value = call('GET', key)
  if not value then return 0 end
  call('DEL', key)
  return { value, 0 }
end

local function readResource(key)
  local time = call('TIME')
  local resource = { now = time[1] * 1000 + math.floor(time[2] / 1000), newest = '-', newestUntil = 0, token = '-', leaseUntil = 0 }
  local newest, newestUntil, token, leaseUntil = string.match(call('GET', key) or '', '^(%S+) (%d+) (%S+) (%d+)$')
  if newest and tonumber(newestUntil) > resource.now then resource.newest, resource.newestUntil = newest, tonumber(newestUntil) end
  if token and tonumber(leaseUntil) > resource.now then resource.token, resource.leaseUntil = token, tonumber(leaseUntil) end
  return resource
end

-- Formats the times explicitly: by default Lua would write numbers this large with fewer digits.
local function writeResource(key, resource)
  local left = math.max(resource.newestUntil, resource.leaseUntil) - resource.now
  if left <= 0 then return call('DEL', key) end
  local value = string.format('%s %.0f %s %.0f', resource.newest, resource.newestUntil, resource.token, resource.leaseUntil)
  call('SET', key, value, 'PX', string.format('%.0f', left))
end

-- 1: the token holds the resource; 0: a newer version was handled; otherwise { '', ms until the other token's lease ends }
function operations.enter(key, version, token, lease)
  local resource = readResource(key)
  if resource.newest ~= '-' and version < resource.newest then return 0 end
  if resource.token ~= '-' and resource.token ~= token then return { '', resource.leaseUntil - resource.now } end
  resource.token, resource.leaseUntil = token, resource.now + tonumber(lease)
  writeResource(key, resource)
  return 1
end

-- Frees the resource if the token holds it, and records the version, if there is one, as handled.
-- 1: the token held it, or it was free and the version was recorded; 0: another token holds it, or there was nothing to do
function operations.leave(key, token, version, retention)
  local resource = readResource(key)
  local isHolder, isFree = resource.token == token, resource.token == '-'
  if isHolder then resource.token, resource.leaseUntil = '-', 0 end
  if version ~= '' and (resource.newest == '-' or version >= resource.newest) then
    local forgottenAt = resource.now + tonumber(retention)
    if version == resource.newest then forgottenAt = math.max(forgottenAt, resource.newestUntil) end
    resource.newest, resource.newestUntil = version, forgottenAt
  end
  if isHolder or version ~= '' then writeResource(key, resource) end
  return (isHolder or (isFree and version ~= '')) and 1 or 0
end

-- The remaining ban of the key in ms, or 0. Writes only if the TTL of a ban is missing.
local function readBan(key, failures, ban)
  if tonumber(call('GET', key) or '0') < failures then return 0 end
  local left = call('PTTL', key)
  if left == -1 then
    call('PEXPIRE', key, ban)
    left = tonumber(ban)
  end
  return math.max(left, 1)
end

local function countAttempt(key, failures, per, ban)
  local count = call('INCR', key)
  if count >= failures then call('PEXPIRE', key, ban)
  elseif count == 1 then call('PEXPIRE', key, per) end
end

-- 0: the attempt was counted for all keys; otherwise { number of the banned key, remaining ban in ms }, and nothing was counted
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

local function revertAttempt(key, failures, per)
  local count = tonumber(call('GET', key) or '0')
  if count <= 1 then return call('DEL', key) end
  call('DECR', key)
  if count == tonumber(failures) then call('PEXPIRE', key, per) end
end

-- 0: the count of the attempt was reverted
function operations.refund(key, failures, per, _, other)
  if other then revertAttempt(other, failures, per) end
  revertAttempt(key, failures, per)
  return 0
end

-- The remaining ban of the key in ms, or 0
function operations.ban(key, failures, ban)
  return readBan(key, tonumber(failures), ban)
end

-- 1: the failed attempts of the key were forgotten; 0: it had none
function operations.lift(key)
  return call('DEL', key)
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
  if not ok then reply = { -1, (type(reply) == 'table' and reply.err or tostring(reply)) .. ' (' .. command .. ')' } end
  replies[i] = reply
end
return replies
`;
