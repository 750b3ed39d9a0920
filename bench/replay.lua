-- Replays signed deliveries by wrk, in order, and prints what came back as one JSON line.
-- Arguments: list file, body file, "once" (each delivery one time only: running out is an error) or "again" (round and round).
local threads = {}

function setup(thread)
  threads[#threads + 1] = thread
end

function init(args)
  local lines = {}
  for line in io.lines(args[1]) do lines[#lines + 1] = line end
  local file = assert(io.open(args[2], 'rb'))
  local body = file:read '*a'
  file:close()

  local before_id = 'POST /hooks/billing HTTP/1.1\r\nHost: hooks.example\r\nUser-Agent: bench/1.0\r\n'
    .. 'Accept: */*\r\nContent-Type: application/json\r\nContent-Length: ' .. #body .. '\r\nWebhook-Id: '
  local at, count, is_once = 0, #lines, args[3] == 'once'
  statuses, ran_out = {}, 0

  function request()
    at = at + 1
    if at > count then
      if is_once then ran_out = ran_out + 1 end
      at = 1
    end
    local line = lines[at]
    local first = line:find(' ', 1, true)
    local second = line:find(' ', first + 1, true)
    return before_id .. line:sub(1, first - 1) .. '\r\nWebhook-Timestamp: ' .. line:sub(first + 1, second - 1)
      .. '\r\nWebhook-Signature: ' .. line:sub(second + 1) .. '\r\n\r\n' .. body
  end

  function response(status)
    statuses[status] = (statuses[status] or 0) + 1
  end
end

function done(summary, latency)
  local parts, ran_out = {}, 0
  for _, thread in ipairs(threads) do
    for status, count in pairs(thread:get 'statuses') do parts[#parts + 1] = ('"%d":%d'):format(status, count) end
    ran_out = ran_out + thread:get 'ran_out'
  end
  local errors = summary.errors
  print(('RESULT {"requests":%d,"microseconds":%d,"failed":%d,"ranOut":%d,"p50":%d,"p99":%d,"statuses":{%s}}'):format(
    summary.requests, summary.duration, errors.connect + errors.read + errors.write + errors.timeout, ran_out,
    latency:percentile(50), latency:percentile(99), table.concat(parts, ',')))
end
