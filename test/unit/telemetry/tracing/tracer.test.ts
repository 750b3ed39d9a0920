import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { isTraceField } from '../../../../src/core/field-policy.ts';
import { HeaderFields } from '../../../../src/core/head.ts';
import { TraceIds, Tracer, type TraceTrust, type TrustLevel } from '../../../../src/telemetry/tracing/tracer.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';
const toHeaders = (flags = '01') =>
  new HeaderFields(['traceparent', `00-${TRACE}-${SPAN}-${flags}`, 'tracestate', 'a=1', 'Tracestate', 'b=2']);
const CONTEXT = { traceId: TRACE, spanId: SPAN, flags: 1, tracestate: 'a=1,b=2' };
const TRUSTS: readonly TraceTrust[] = ['none', 'verified', 'always'];
const TRUST_LEVELS: readonly TrustLevel[] = ['verified', 'unverified', 'rejected'];

const begin = (
  part: 'pass' | 'propagate' | 'record',
  trust: TraceTrust,
  trustLevel: TrustLevel,
  headers: HeaderFields | undefined = toHeaders(),
) => new Tracer({ part, sampleRatio: 1 }).begin(trust, trustLevel, headers);

describe('a caller’s trace', () => {
  const continued = TRUSTS.flatMap((trust) => TRUST_LEVELS.map((trustLevel) => [trust, trustLevel] as const));

  test.each(continued)(
    'trust %s, %s: is continued only if all are trusted and the request was forwarded',
    (trust, trustLevel) => {
      for (const part of ['pass', 'propagate', 'record'] as const) {
        const isContinued = begin(part, trust, trustLevel)?.traceId === TRACE;
        expect(isContinued).toBe(trust === 'always' && trustLevel !== 'rejected');
      }
    },
  );

  test.each(continued)('trust %s, %s: is linked if it is not continued, but the caller is trusted', (trust, trustLevel) => {
    const trace = begin('record', trust, trustLevel);
    const isLinked = (trust === 'verified' && trustLevel === 'verified') || (trust === 'always' && trustLevel === 'rejected');
    expect(trace?.link).toEqual(isLinked ? CONTEXT : undefined);
    expect(trace?.parentId).toBe(trust === 'always' && trustLevel !== 'rejected' ? SPAN : undefined);
  });

  test('that is not sampled is not sampled here either, with any sample ratio', () => {
    expect(begin('record', 'always', 'verified', toHeaders('00'))).toMatchObject({
      flags: 0,
      isRecorded: false,
      appParentId: SPAN,
    });
  });

  test('continues with the span of the gate if it is recorded, else with that of the caller', () => {
    const recorded = begin('record', 'always', 'verified');
    expect(recorded).toMatchObject({ isRecorded: true, parentId: SPAN, tracestate: 'a=1,b=2', flags: 1 });
    expect(new Set([recorded?.spanId, recorded?.appParentId, SPAN]).size).toBe(3);
    for (const part of ['pass', 'propagate'] as const)
      expect(begin(part, 'always', 'verified')).toMatchObject({ spanId: SPAN, appParentId: SPAN, isRecorded: false });
  });

  test('that is malformed is dropped, with its tracestate', () => {
    for (const raw of [
      ['tracestate', 'a=1'],
      ['traceparent', 'junk', 'tracestate', 'a=1'],
    ]) {
      expect(begin('pass', 'always', 'verified', new HeaderFields(raw))).toBeUndefined();
      expect(begin('record', 'always', 'verified', new HeaderFields(raw))).toMatchObject({
        tracestate: undefined,
        link: undefined,
      });
    }
  });
});

describe('a trace of the gate’s own', () => {
  test('is not started if tracing is disabled', () => {
    for (const trust of TRUSTS)
      for (const trustLevel of TRUST_LEVELS) expect(begin('pass', trust, trustLevel, new HeaderFields([]))).toBeUndefined();
  });

  test('has new IDs each time, marked as random', () => {
    const tracer = new Tracer({ part: 'record', sampleRatio: 1 });
    const ids = new Set<string>();
    for (let i = 0; i < 1_000; i++) {
      const trace = tracer.begin('verified', 'unverified');
      expect(trace?.traceId).toMatch(/^[0-9a-f]{32}$/);
      expect(trace?.spanId).toMatch(/^[0-9a-f]{16}$/);
      expect(trace?.flags).toBe(3);
      ids
        .add(trace?.traceId ?? '')
        .add(trace?.spanId ?? '')
        .add(trace?.appParentId ?? '');
    }
    expect(ids.size).toBe(3_000);
  });

  test.each([
    [0, 0],
    [0.25, 0.25],
    [1, 1],
  ])('is sampled with the ratio %d', (sampleRatio, share) => {
    let at = 0;
    const ids = new TraceIds((pool) => {
      for (let i = 0; i < pool.length; i += 32) createHash('sha256').update(String(++at)).digest().copy(pool, i);
    });
    const tracer = new Tracer({ part: 'record', sampleRatio, ids });
    const traces = Array.from({ length: 4_000 }, () => tracer.begin('none', 'rejected'));
    const sampled = traces.filter((trace) => trace?.isRecorded === true).length;
    expect(sampled / traces.length).toBeCloseTo(share, 1);
    for (const trace of traces) expect(trace?.flags).toBe(trace?.isRecorded === true ? 3 : 2);
  });

  test('is never sampled because of the caller', () => {
    const tracer = new Tracer({ part: 'record', sampleRatio: 0 });
    for (const trustLevel of TRUST_LEVELS)
      for (const trust of ['none', 'verified'] as const)
        expect(tracer.begin(trust, trustLevel, toHeaders('01'))).toMatchObject({ isRecorded: false, flags: 2 });
    expect(tracer.begin('always', 'rejected', toHeaders('01'))).toMatchObject({ isRecorded: false, flags: 2 });
  });
});

test('an ID is never all zeros', () => {
  let fills = 0;
  const ids = new TraceIds((pool) => {
    pool.fill(0);
    if (++fills > 1) pool.fill(0x11);
  });
  expect(ids.span()).toBe('11'.repeat(8));
  expect(ids.trace()).toBe('11'.repeat(16));
});

test('fields of other tracing systems are detected by name and by prefix, and no others', () => {
  for (const name of [
    'traceparent',
    'tracestate',
    'baggage',
    'b3',
    'x-b3-traceid',
    'x-datadog-parent-id',
    'uber-trace-id',
    'sentry-trace',
  ])
    expect(isTraceField(name), name).toBe(true);
  for (const name of ['trace', 'x-request-id', 'b3x', 'webhook-id', 'x-b', 'traceparent2'])
    expect(isTraceField(name), name).toBe(false);
});
