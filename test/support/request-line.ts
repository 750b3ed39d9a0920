/** The log line of a request. */
import type { RequestLine } from '../../src/telemetry/log/logger.ts';

/** A forwarded request, with the fields of `over` instead. */
export function makeRequestLine(over: Partial<RequestLine> = {}): RequestLine {
  return {
    requestId: 'r',
    route: 'a',
    method: 'POST',
    status: 200,
    code: 'forwarded',
    reason: 'ok',
    level: 'info',
    client: '127.0.0.1',
    durationMs: 1,
    bytesIn: 2,
    ...over,
  };
}
