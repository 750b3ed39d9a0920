/** What explains that an event was handled twice, and what does not. */
import { expect, test } from 'vitest';
import { type Evidence, explain, toHandling } from './causes.ts';
import type { Life } from './gate-lives.ts';
import type { LedgerEntry } from './ledger.ts';
import type { LoggedRequest } from './logs.ts';

const KILLED_AT = 20_000;

const toLife = (gate: number, over: Partial<Life> = {}): Life => ({
  gate,
  pid: gate,
  logFile: '',
  startedAt: 0,
  endedAt: Number.POSITIVE_INFINITY,
  end: undefined,
  pauses: [],
  steps: [],
  scrape: undefined,
  baseline: { descriptors: 0, residentBytes: 0 },
  ...over,
});
const KILLED = { end: 'killed', endedAt: KILLED_AT } as const;

const toEntry = (gate: number, at: number): LedgerEntry => ({
  at,
  isHandled: true,
  gate,
  life: 0,
  requestId: `of gate ${gate}`,
  id: 'direct-1',
  isIntact: true,
  action: 'handle',
});

/** The causes of an event that gate 0 and gate 1 forwarded, each with its entry in the ledger. */
function findCause(
  entries: readonly LedgerEntry[],
  {
    lives,
    requests = [],
    faults = [],
  }: { lives: readonly Life[]; requests?: readonly LoggedRequest[]; faults?: Evidence['faults'] },
): string | undefined {
  const byId = new Map(requests.map((request) => [`of gate ${request.life.gate}`, request]));
  const logs = { requests: byId, statuses: new Map(), errors: [], lostSettlements: new Set<string>() };
  const evidence: Evidence = { logs, faults, lives };
  const [first, second] = entries.map((entry) => toHandling(entry, evidence)).sort((a, b) => a.forwardedAt - b.forwardedAt);
  if (first === undefined || second === undefined) throw new Error('two entries are needed');
  return explain(first, second, evidence).cause;
}

const toLogged = (life: Life, startedAt: number, over: Partial<LoggedRequest> = {}): LoggedRequest => ({
  life,
  status: 200,
  code: 'forwarded',
  reason: 'ok',
  startedAt,
  forwardedAt: startedAt + 300,
  ...over,
});

test('a request without a log line is explained only by the death of the process that forwarded it', () => {
  const entries = [toEntry(0, 19_500), toEntry(1, 26_000)];
  const killed = 'the gate was killed with the request in flight';
  expect(findCause(entries, { lives: [toLife(0, KILLED), toLife(1)] })).toBe(killed);
  expect(findCause(entries, { lives: [toLife(0), toLife(1, KILLED)] })).toBeUndefined();
  expect(findCause(entries, { lives: [toLife(0, { ...KILLED, end: 'stopped' }), toLife(1)] })).toBeUndefined();
  // The next process of the gate was not killed.
  const next = [{ ...toEntry(0, 19_500), life: 1 }, toEntry(1, 26_000)];
  expect(findCause(next, { lives: [toLife(0, KILLED), toLife(0), toLife(1)] })).toBeUndefined();
  // It had the time to log it.
  const early = [toEntry(0, 15_000), toEntry(1, 26_000)];
  expect(findCause(early, { lives: [toLife(0, KILLED), toLife(1)] })).toBeUndefined();
});

test('what a killed gate forwarded is the first request, also if the app got it after the second one', () => {
  const lives = [toLife(0, KILLED), toLife(1)];
  const requests = [toLogged(lives[1] as Life, 23_000)];
  const entries = [toEntry(0, 24_500), toEntry(1, 24_400)];
  expect(findCause(entries, { lives, requests })).toBe('the gate was killed with the request in flight');
});

test('a store that was emptied may have replied to a claim before, and the gate may forward the event after', () => {
  const lives = [toLife(0), toLife(1)];
  const requests = [toLogged(lives[0] as Life, 10_000), toLogged(lives[1] as Life, 11_000)];
  const entries = [toEntry(0, 10_400), toEntry(1, 11_400)];
  const fault = { kind: 'Redis restarted empty', target: 'store', from: 9_900, to: 10_200, forgets: 'all' } as const;
  expect(findCause(entries, { lives, requests, faults: [fault] })).toBe('the store lost the ID');
  expect(findCause(entries, { lives, requests, faults: [{ ...fault, from: 9_700, to: 9_800 }] })).toBeUndefined();
  expect(findCause(entries, { lives, requests, faults: [{ ...fault, from: 11_500, to: 11_600 }] })).toBeUndefined();
  expect(findCause(entries, { lives, requests })).toBeUndefined();
});

test('a second request within the lease is not explained by an outcome that was unknown', () => {
  const lives = [toLife(0), toLife(1)];
  const timeout = { status: 504, reason: 'upstream_timeout' };
  const toCause = (again: number): string | undefined =>
    findCause([toEntry(0, 10_400), toEntry(1, again + 400)], {
      lives,
      requests: [toLogged(lives[0] as Life, 10_000, timeout), toLogged(lives[1] as Life, again)],
    });
  expect(toCause(11_000)).toBeUndefined();
  expect(toCause(13_000)).toBe('outcome unknown to the gate: upstream_timeout, without a fault');
});
