import { expect, test } from 'vitest';
import { createLogger } from '../../../../src/telemetry/log/logger.ts';
import { makeRequestLine } from '../../../support/request-line.ts';

const LINE = makeRequestLine();

function start(level: 'info' | 'error' = 'info'): {
  log: ReturnType<typeof createLogger>;
  lines: () => Record<string, unknown>[];
} {
  const lines: string[] = [];
  const log = createLogger({ level, version: '1.2.3', destination: { write: (line: string) => void lines.push(line) } });
  return { log, lines: () => lines.map((line) => JSON.parse(line) as Record<string, unknown>) };
}

test('writes one JSON line for a request, with its level as a word', () => {
  const { log, lines } = start();
  log.request(LINE);
  log.request({ ...LINE, level: 'error', code: 'store_unavailable', reason: 'dedup_unavailable', status: 503, detail: 'a\nb' });
  expect(lines()).toMatchObject([
    { msg: 'request', level: 'info', service: 'sidegate', version: '1.2.3', requestId: 'r', code: 'forwarded' },
    { msg: 'request', level: 'error', detail: 'a\nb' },
  ]);
});

test.each([
  ['line ends and quotes', 'a\r\n"b"\u2028\u2029\\'],
  ['control characters', '\u0000\u001b[31m\u007f'],
  ['half a surrogate pair', '\ud800x\udfff'],
])('writes %s of a client into one valid line', (_what, text) => {
  const written: string[] = [];
  const log = createLogger({ level: 'info', version: '"1"', destination: { write: (line: string) => void written.push(line) } });
  log.request({ ...LINE, client: text, webhookId: text, detail: text });
  expect(written).toHaveLength(1);
  expect(written[0]?.match(/\n/g)).toHaveLength(1);
  expect(JSON.parse(written[0] ?? '')).toMatchObject({ version: '"1"', client: text, webhookId: text, detail: text });
});

test('writes a request like other events: time, service and level once each, and no field that the request does not have', () => {
  const written: string[] = [];
  const log = createLogger({ level: 'info', version: '1', destination: { write: (line: string) => void written.push(line) } });
  log.request({ ...LINE, user: undefined, detail: undefined });
  for (const field of ['"time":', '"service":', '"level":', '"msg":']) expect(written[0]?.split(field)).toHaveLength(2);
  const { time, ...rest } = JSON.parse(written[0] ?? '') as Record<string, unknown>;
  expect(time).toBeTypeOf('number');
  expect(rest).toEqual({ ...LINE, service: 'sidegate', version: '1', msg: 'request' });
});

test('writes nothing below its level', () => {
  const { log, lines } = start('error');
  log.request(LINE);
  log.warn('store_warning');
  log.error('store_down', { message: 'away' });
  expect(lines()).toMatchObject([{ msg: 'store_down', level: 'error' }]);
});

test('never shows a field with the name of a secret', () => {
  const { log, lines } = start();
  log.info('starting', {
    authorization: 'canary',
    password: 'canary',
    secret: 'canary',
    'webhook-signature': 'canary',
    fine: 'shown',
  });
  expect(JSON.stringify(lines())).not.toContain('canary');
  expect(JSON.stringify(lines())).toContain('shown');
});
