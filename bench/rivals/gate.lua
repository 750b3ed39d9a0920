-- The rival on nginx + LuaJIT: the same job as sidegate's webhook route, written for speed.
-- Checks as strict as sidegate's, HMAC by libcrypto through FFI with a keyed context that is made once, dedup in two phases
-- with a fencing token, confirms off the sender's critical path and pipelined, as sidegate's are.
local ffi = require 'ffi'
local redis = require 'nginx.redis'
local semaphore = require 'ngx.semaphore'
local find = ngx.re.find
local decode_base64, encode_base64 = ngx.decode_base64, ngx.encode_base64

ffi.cdef [[
typedef struct evp_mac_st EVP_MAC;
typedef struct evp_mac_ctx_st EVP_MAC_CTX;
typedef struct { const char *key; unsigned int data_type; void *data; size_t data_size; size_t return_size; } OSSL_PARAM;
EVP_MAC *EVP_MAC_fetch(void *libctx, const char *algorithm, const char *properties);
EVP_MAC_CTX *EVP_MAC_CTX_new(EVP_MAC *mac);
int EVP_MAC_init(EVP_MAC_CTX *ctx, const unsigned char *key, size_t keylen, const OSSL_PARAM params[]);
int EVP_MAC_update(EVP_MAC_CTX *ctx, const unsigned char *data, size_t datalen);
int EVP_MAC_final(EVP_MAC_CTX *ctx, unsigned char *out, size_t *outl, size_t outsize);
int CRYPTO_memcmp(const void *a, const void *b, size_t len);
]]
local C = ffi.C

local TOLERANCE, LEASE, RETENTION = 300, '60000', '259200000'
local WAIT_AT_MOST, MOST_SIGNATURES = 4, 10
local OSSL_PARAM_UTF8_STRING = 4

local CLAIM = [[
local value = redis.call('GET', KEYS[1])
if value then return value end
redis.call('SET', KEYS[1], 'p ' .. ARGV[1], 'PX', ARGV[2])
return false]]
local CONFIRM = [[
local value = redis.call('GET', KEYS[1])
if value and value ~= 'p ' .. ARGV[1] then return 0 end
redis.call('SET', KEYS[1], 'h', 'PX', ARGV[2])
return 1]]
local RELEASE = [[
if redis.call('GET', KEYS[1]) ~= 'p ' .. ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])]]

local _M = {}
local redis_port, mac
local claim_sha, confirm_sha, release_sha
local out, out_length = ffi.new 'unsigned char[32]', ffi.new 'size_t[1]'

function _M.init(port, secret)
  redis_port = port
  local key = decode_base64((secret:gsub('^whsec_', '')))
  local digest = 'SHA256'
  local params = ffi.new('OSSL_PARAM[2]')
  params[0].key, params[0].data_type = 'digest', OSSL_PARAM_UTF8_STRING
  params[0].data, params[0].data_size = ffi.cast('void *', digest), #digest
  mac = C.EVP_MAC_CTX_new(C.EVP_MAC_fetch(nil, 'HMAC', nil))
  assert(C.EVP_MAC_init(mac, key, #key, params) == 1, 'no HMAC-SHA256')
end

local function open_redis()
  local client = redis:new()
  client:set_timeout(1000)
  local ok, problem = client:connect('127.0.0.1', redis_port)
  if not ok then return nil, problem end
  return client
end

local function refuse(status, code, header, value)
  ngx.status = status
  ngx.header['Content-Type'] = 'application/problem+json'
  if header then ngx.header[header] = value end
  ngx.print('{"type":"about:blank","status":', status, ',"code":"', code, '","requestId":"', ngx.var.request_id, '"}')
  return ngx.exit(ngx.HTTP_OK)
end

local function challenge(code)
  return refuse(401, code, 'WWW-Authenticate', 'Webhook-Signature realm="billing"')
end

local function sign(id, timestamp, body)
  local prefix = id .. '.' .. timestamp .. '.'
  C.EVP_MAC_init(mac, nil, 0, nil)
  C.EVP_MAC_update(mac, prefix, #prefix)
  C.EVP_MAC_update(mac, body, #body)
  C.EVP_MAC_final(mac, out, out_length, 32)
end

-- Every entry is tried; an unknown version or a malformed entry is skipped.
local function is_signed(list)
  local position, entries, is_match = 1, 0, false
  while position <= #list + 1 do
    local stop = list:find(' ', position, true) or #list + 1
    entries = entries + 1
    if entries > MOST_SIGNATURES then return false end
    if list:sub(position, position + 2) == 'v1,' then
      local text = list:sub(position + 3, stop - 1)
      local bytes = decode_base64(text)
      if bytes and #bytes == 32 and encode_base64(bytes) == text and C.CRYPTO_memcmp(bytes, out, 32) == 0 then
        is_match = true
      end
    end
    position = stop + 1
  end
  return is_match
end

local function claim(key, token)
  local client = open_redis()
  if not client then return nil end
  local value, problem = client:evalsha(claim_sha, 1, key, token, LEASE)
  if value == false and problem and problem:find('NOSCRIPT', 1, true) then
    value = client:eval(CLAIM, 1, key, token, LEASE)
  end
  if not value then return nil end
  client:set_keepalive(60000, 256)
  return value
end

-- Polls until the first run's outcome is known.
local function wait_for_outcome(key, token)
  local deadline, pause = ngx.now() + WAIT_AT_MOST, 0.02
  while ngx.now() < deadline do
    ngx.sleep(pause)
    pause = math.min(pause * 2, 0.25)
    local value = claim(key, token)
    if not value or value == ngx.null or value == 'h' then return value end
  end
  return 'p'
end

function _M.access()
  local headers = ngx.req.get_headers()
  if ngx.var.is_args ~= '' then return refuse(400, 'malformed_request') end
  if headers['content-encoding'] then return refuse(415, 'unsupported_media_type') end
  local content_type = headers['content-type']
  if type(content_type) ~= 'string' or not find(content_type, [[^application/json\s*(?:;|$)]], 'joi') then
    return refuse(415, 'unsupported_media_type')
  end
  local id, timestamp, list = headers['webhook-id'], headers['webhook-timestamp'], headers['webhook-signature']
  if not id or not timestamp or not list then return challenge 'missing_signature' end
  if type(id) ~= 'string' or type(timestamp) ~= 'string' or type(list) ~= 'string' then return challenge 'malformed_signature' end
  -- Visible ASCII without the dot, which would let bytes move between id, timestamp and body.
  if not find(id, [[^[\x21-\x2d\x2f-\x7e]{1,256}$]], 'jo') then return challenge 'malformed_signature' end
  if not find(timestamp, [[^[0-9]{1,12}$]], 'jo') then return challenge 'malformed_signature' end
  if math.abs(ngx.time() - tonumber(timestamp)) > TOLERANCE then return challenge 'timestamp_outside_tolerance' end

  ngx.req.read_body()
  local body = ngx.req.get_body_data() or ''
  sign(id, timestamp, body)
  if not is_signed(list) then return challenge 'signature_mismatch' end

  local key, token = 'bench:' .. id, ngx.var.request_id
  local value = claim(key, token)
  if value and value ~= ngx.null and value ~= 'h' then value = wait_for_outcome(key, token) end
  if not value then return refuse(503, 'store_unavailable', 'Retry-After', '5') end
  if value == 'h' then return refuse(200, 'duplicate') end
  if value ~= ngx.null then return refuse(503, 'in_progress', 'Retry-After', '5') end
  ngx.ctx.claim = { key, token }
end

local queue, queued, wake = {}, 0, semaphore.new()

-- Runs when the answer has been sent. Sockets are barred in this phase, so the outcome is queued for the worker below.
function _M.log()
  local held = ngx.ctx.claim
  if not held then return end
  local status = tonumber(ngx.var.upstream_status)
  -- Unknown outcome (a timeout, or a connection that broke after it was made): the lease runs out by itself.
  if not status or ngx.var.upstream_header_time == '-' and ngx.var.upstream_connect_time ~= '-' then return end
  queued = queued + 1
  held[3] = status >= 200 and status < 300
  queue[queued] = held
  if queued == 1 then wake:post(1) end
end

local function settle(client, batch, count)
  client:init_pipeline(count)
  for i = 1, count do
    local held = batch[i]
    if held[3] then client:evalsha(confirm_sha, 1, held[1], held[2], RETENTION)
    else client:evalsha(release_sha, 1, held[1], held[2]) end
  end
  return client:commit_pipeline()
end

-- Confirms all that piled up in one write, and tries again while Redis is away.
local function settle_for_ever(premature)
  if premature then return end
  local client
  while not ngx.worker.exiting() do
    if queued > 0 or wake:wait(1) then
      local batch, count = queue, queued
      queue, queued = {}, 0
      while count > 0 and not ngx.worker.exiting() do
        client = client or open_redis()
        if client and settle(client, batch, count) then break end
        client = nil
        ngx.sleep(0.1)
      end
    end
  end
end

local function load_scripts(premature)
  if premature then return end
  local client = assert(open_redis())
  claim_sha = assert(client:script('load', CLAIM))
  confirm_sha = assert(client:script('load', CONFIRM))
  release_sha = assert(client:script('load', RELEASE))
  client:set_keepalive(60000, 256)
end

function _M.init_worker()
  ngx.timer.at(0, load_scripts)
  ngx.timer.at(0, settle_for_ever)
end

return _M
