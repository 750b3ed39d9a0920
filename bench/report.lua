-- What every load of wrk ends with: answers by status, as one JSON line. A script counts in `ran_out` what it could not send.
local threads = {}

function setup(thread)
  threads[#threads + 1] = thread
end

statuses, ran_out = {}, 0

function response(status)
  statuses[status] = (statuses[status] or 0) + 1
end

function done(summary, latency)
  local parts, missing = {}, 0
  for _, thread in ipairs(threads) do
    for status, count in pairs(thread:get 'statuses') do parts[#parts + 1] = ('"%d":%d'):format(status, count) end
    missing = missing + thread:get 'ran_out'
  end
  local errors = summary.errors
  print(('RESULT {"requests":%d,"microseconds":%d,"failed":%d,"ranOut":%d,"p50":%d,"p99":%d,"statuses":{%s}}'):format(
    summary.requests, summary.duration, errors.connect + errors.read + errors.write + errors.timeout, missing,
    latency:percentile(50), latency:percentile(99), table.concat(parts, ',')))
end
