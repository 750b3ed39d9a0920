import { spawnSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { createPost, SpanExporter, toExport } from '../../../../src/telemetry/tracing/otlp.ts';
import type { Span, SpanOutcome } from '../../../../src/telemetry/tracing/tracer.ts';
import { type Collector, startCollector } from '../../../support/collector.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { until } from '../../../support/gate.ts';
import { PYTHON } from '../../../support/run.ts';

const SPAN: Span = {
  traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
  spanId: '00f067aa0ba902b7',
  flags: 3,
  tracestate: undefined,
  parentId: undefined,
  isParentRemote: false,
  kind: 'server',
  name: 'POST /hooks',
  startedAt: 1_700_000_000_000,
  endedAt: 1_700_000_000_012.345,
  attributes: { 'http.response.status_code': 200, 'sidegate.decision': 'allow' },
  isError: false,
  link: undefined,
};
const REFUSED: Span = { ...SPAN, attributes: { 'sidegate.decision': 'deny' } };

interface Bench {
  readonly exporter: SpanExporter;
  readonly clock: FakeClock;
  readonly counts: Record<SpanOutcome, number>;
  readonly told: string[];
}

function open(url: string, over: { maxQueued?: number; readHeaders?: () => Promise<[string, string][]> } = {}): Bench {
  const clock = new FakeClock();
  const counts = { exported: 0, dropped: 0, rejected: 0, failed: 0 };
  const told: string[] = [];
  const readHeaders = over.readHeaders ?? (async () => []);
  const post = createPost({ url: new URL(url), readHeaders, timeout: 10_000, ca: undefined, userAgent: 'sidegate/test' }, clock);
  const source = { resource: { 'service.name': 'sidegate' }, version: 'test' };
  const exporter = new SpanExporter({ source, interval: 5_000, maxQueued: over.maxQueued ?? 2_048 }, post, clock, {
    onSpans: (outcome, count) => {
      counts[outcome] += count;
    },
    onFailure: (why) => told.push(why),
    onRecovery: () => told.push('recovered'),
  });
  return { exporter, clock, counts, told };
}

async function withCollector(use: (collector: Collector) => Promise<void>): Promise<void> {
  const collector = await startCollector();
  try {
    await use(collector);
  } finally {
    await collector.close();
  }
}

describe('spans', () => {
  test('wait for others for the interval, and are sent in one export', () =>
    withCollector(async (collector) => {
      const { exporter, clock, counts } = open(`${collector.url}/v1/traces`);
      for (let i = 0; i < 3; i++) exporter.add(SPAN);
      await clock.advance(4_999);
      expect(collector.connections()).toBe(0);
      await clock.advance(1);
      await until(() => counts.exported === 3);
      expect(collector.exports).toHaveLength(1);
      expect(collector.exports[0]).toMatchObject({ path: '/v1/traces', headers: { 'content-type': 'application/json' } });
      expect(collector.spans[0]).toMatchObject({
        name: 'POST /hooks',
        start: 1_700_000_000_000_000_000n,
        end: 1_700_000_000_012_345_000n,
      });
    }));

  test('are sent early if there are enough for an export', () =>
    withCollector(async (collector) => {
      const { exporter, counts } = open(collector.url);
      for (let i = 0; i < 1_030; i++) exporter.add(SPAN);
      await until(() => counts.exported === 1_024);
      expect(collector.exports.map(({ text }) => (text.match(/"spanId"/g) ?? []).length)).toEqual([512, 512]);
      await exporter.close(1_000);
      expect(counts).toEqual({ exported: 1_030, dropped: 0, rejected: 0, failed: 0 });
    }));

  test('are dropped and counted if the collector accepts none, in limited memory', () =>
    withCollector(async (collector) => {
      collector.answer = () => undefined;
      const { exporter, clock, counts } = open(collector.url, { maxQueued: 600 });
      for (let i = 0; i < 10_000; i++) exporter.add(SPAN);
      // 512 are on their way, 600 wait.
      expect(counts.dropped).toBe(10_000 - 512 - 600);
      await until(() => collector.exports.length === 1);
      const closed = exporter.close(1_000);
      await clock.advance(1_000);
      await closed;
      expect(counts).toEqual({ exported: 0, dropped: 10_000 - 512 - 600, rejected: 0, failed: 1_112 });
    }));

  test('of rejected requests use at most half of the buffer', () =>
    withCollector(async (collector) => {
      const { exporter, counts } = open(collector.url, { maxQueued: 100 });
      for (let i = 0; i < 1_000; i++) exporter.add(REFUSED);
      expect(counts.dropped).toBe(950);
      for (let i = 0; i < 50; i++) exporter.add(SPAN);
      expect(counts.dropped).toBe(950);
      await exporter.close(1_000);
      expect(counts.exported).toBe(100);
    }));

  test('that arrive while the gate stops are dropped', () =>
    withCollector(async (collector) => {
      const { exporter, counts } = open(collector.url);
      await exporter.close(1_000);
      exporter.add(SPAN);
      expect(counts.dropped).toBe(1);
      expect(collector.connections()).toBe(0);
    }));
});

describe('a collector', () => {
  test('that is down is retried with increasing delays, and reported once', async () => {
    const first = await startCollector();
    const { port } = new URL(first.url);
    await first.close();
    const { exporter, clock, counts, told } = open(first.url);
    exporter.add(SPAN);
    await clock.advance(5_000);
    await until(() => told.length === 1);
    const collector = await startCollector(undefined, Number(port));
    await until(async () => {
      await clock.advance(1_000);
      return counts.exported === 1;
    });
    expect(told).toEqual([`127.0.0.1:${port}: the connection failed (ECONNREFUSED)`, 'recovered']);
    await collector.close();
  });

  test('that stays down loses its batch after the last attempt, and the next one is tried', async () => {
    const collector = await startCollector();
    collector.answer = (response) => void response.writeHead(503).end();
    const { exporter, clock, counts, told } = open(collector.url);
    exporter.add(SPAN);
    await until(async () => {
      await clock.advance(1_000);
      return counts.failed === 1;
    });
    expect(collector.exports).toHaveLength(5);
    exporter.add(SPAN);
    collector.answer = (response) => void response.end();
    await clock.advance(5_000);
    await until(() => counts.exported === 1);
    expect(told).toEqual([`${new URL(collector.url).host}: responded 503`, 'recovered']);
    await collector.close();
  });

  test.each([
    ['400', 400],
    ['401', 401],
    ['404', 404],
    ['500', 500],
    ['a redirect', 307],
  ])('that responds with %s does not get the same spans again', (_, status) =>
    withCollector(async (collector) => {
      collector.answer = (response) => void response.writeHead(status, { Location: `${collector.url}/else` }).end();
      const { exporter, clock, counts } = open(collector.url);
      exporter.add(SPAN);
      await clock.advance(5_000);
      await until(() => counts.rejected === 1);
      expect(collector.exports).toHaveLength(1);
    }),
  );

  test('that sends Retry-After is retried then', () =>
    withCollector(async (collector) => {
      collector.answer = (response) => void response.writeHead(429, { 'Retry-After': '20' }).end();
      const { exporter, clock, counts, told } = open(collector.url);
      exporter.add(SPAN);
      await clock.advance(5_000);
      await until(() => told.length === 1);
      collector.answer = (response) => void response.end('{}');
      await clock.advance(19_999);
      expect(collector.exports).toHaveLength(1);
      await clock.advance(1);
      await until(() => counts.exported === 1);
    }));

  test('that rejects some of them has these counted, and its message truncated', () =>
    withCollector(async (collector) => {
      const errorMessage = `too\nold${'x'.repeat(1_000)}`;
      collector.answer = (response) =>
        void response.end(JSON.stringify({ partialSuccess: { rejectedSpans: '2', errorMessage } }));
      const { exporter, clock, counts, told } = open(collector.url);
      for (let i = 0; i < 3; i++) exporter.add(SPAN);
      await clock.advance(5_000);
      await until(() => counts.rejected === 2);
      expect(counts.exported).toBe(1);
      expect(told).toEqual([`the collector rejected 2 spans: too old${'x'.repeat(193)}`]);
    }));

  test.each([
    ['never answers', () => undefined, 'no response within 10000 ms'],
    [
      'answers without an end',
      (response: { write(text: string): unknown }) => void response.write('{'),
      'the response stalled for 10000 ms',
    ],
  ])('that %s is aborted in time', (_, answer, why) =>
    withCollector(async (collector) => {
      collector.answer = answer;
      const { exporter, clock, told } = open(collector.url);
      exporter.add(SPAN);
      await clock.advance(5_000);
      await until(() => collector.exports.length === 1);
      await clock.advance(10_000);
      await until(() => told.length === 1);
      expect(told[0]).toContain(why);
      collector.answer = (response) => void response.end();
      await exporter.close(1_000);
    }),
  );

  test('that floods its response is disconnected', () =>
    withCollector(async (collector) => {
      collector.answer = (response) => void response.end('x'.repeat(1_000_000));
      const { exporter, clock, told } = open(collector.url);
      exporter.add(SPAN);
      await clock.advance(5_000);
      await until(() => told.length === 1);
      expect(told[0]).toContain('more than 65536 bytes');
      collector.answer = (response) => void response.end();
      await exporter.close(1_000);
    }));
});

test('headers are read for each export, and an unreadable one is an error like any other', () =>
  withCollector(async (collector) => {
    let value = 'one';
    const readHeaders = async (): Promise<[string, string][]> => {
      if (value === '') throw new Error('it is not there');
      return [['Authorization', value]];
    };
    const { exporter, clock, counts, told } = open(collector.url, { readHeaders });
    exporter.add(SPAN);
    await clock.advance(5_000);
    await until(() => counts.exported === 1);
    value = '';
    exporter.add(SPAN);
    await clock.advance(5_000);
    await until(() => told.length === 1);
    value = 'two';
    await until(async () => {
      await clock.advance(1_000);
      return counts.exported === 2;
    });
    expect(collector.exports.map(({ headers }) => headers.authorization)).toEqual(['one', 'two']);
    expect(told).toEqual(['it is not there', 'recovered']);
  }));

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const FULL_SPAN: Span = {
  traceId: TRACE,
  spanId: '00f067aa0ba902b7',
  flags: 3,
  tracestate: 'rojo=1',
  parentId: '1111111111111111',
  isParentRemote: true,
  kind: 'server',
  name: 'POST /hooks',
  startedAt: 1_700_000_000_000,
  endedAt: 1_700_000_000_012.345,
  attributes: { 'http.response.status_code': 503, 'url.scheme': 'https' },
  isError: true,
  link: { traceId: '22222222222222222222222222222222', spanId: '3333333333333333', flags: 1, tracestate: undefined },
};
const SOURCE = { resource: { 'service.name': 'sidegate' }, version: '1.2.3' };

/** Ids are hex in OTLP's JSON, and base64 in that of Protobuf; all else is the same. Unknown members are errors. */
const READER = `
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
IDS = ('traceId', 'spanId', 'parentSpanId')
def read(value):
    if isinstance(value, dict):
        return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in IDS else read(v) for k, v in value.items()}
    return [read(v) for v in value] if isinstance(value, list) else value
request = json_format.Parse(json.dumps(read(json.load(sys.stdin))), ExportTraceServiceRequest())
for one in request.resource_spans[0].scope_spans[0].spans:
    print(one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex() or '-', one.name, one.kind, one.flags, one.trace_state or '-',
          one.end_time_unix_nano - one.start_time_unix_nano, one.status.code, len(one.links), one.attributes[0].value.int_value)
`;

/** The reader that the project of the format gives out. */
const hasProto = PYTHON !== undefined && spawnSync(PYTHON, ['-c', 'import opentelemetry.proto']).status === 0;

describe('an export', () => {
  test.skipIf(!hasProto)('is decoded with the same values by the official definition of the format', () => {
    const client: Span = {
      ...FULL_SPAN,
      kind: 'client',
      parentId: undefined,
      isParentRemote: false,
      isError: false,
      link: undefined,
      tracestate: undefined,
    };
    const input = toExport([FULL_SPAN, client], SOURCE);
    const { stdout, stderr } = spawnSync(PYTHON as string, ['-c', READER], { input, encoding: 'utf8' });
    expect(stderr).toBe('');
    expect(stdout.trim().split('\n')).toEqual([
      `${TRACE} 00f067aa0ba902b7 1111111111111111 POST /hooks 2 771 rojo=1 12345000 2 1 503`,
      `${TRACE} 00f067aa0ba902b7 - POST /hooks 3 259 - 12345000 0 0 503`,
    ]);
  });

  test('keeps any text within its field', () => {
    const name = '"},{"\u2028\ud800\u0000é';
    const { resourceSpans } = JSON.parse(toExport([{ ...FULL_SPAN, name, attributes: { name } }], SOURCE));
    const [span] = resourceSpans[0].scopeSpans[0].spans;
    expect(span.name).toBe(name);
    expect(span.attributes).toEqual([{ key: 'name', value: { stringValue: name } }]);
  });
});
