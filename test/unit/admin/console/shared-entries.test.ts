import { expect, test } from 'vitest';
import { toDetailView } from '../../../../src/admin/console/delivery-view.ts';
import type { DeliveryDetail } from '../../../../src/admin/console/schemas.ts';
import { SharedEntries } from '../../../../src/admin/console/shared-entries.ts';
import type { SharedStreams } from '../../../../src/state/shared-streams.ts';
import { Journal, type JournalEntry, type RequestDetails } from '../../../../src/telemetry/journal/journal.ts';
import type { RequestLine } from '../../../../src/telemetry/log/logger.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { makeRequestLine } from '../../../support/request-line.ts';
import { createSharedStreams } from '../../../support/shared-streams.ts';

const toDetail = (entry: JournalEntry): DeliveryDetail =>
  toDetailView(
    entry,
    { replica: 'a', redact: (text) => text ?? null, secrets: [], findRoute: () => undefined },
    { isCaptured: false, origin: '', bodyDenial: 'other_replica' },
  );
const toId = (i: number): string => `00000000-0000-4000-8000-${String(i).padStart(12, '0')}`;

const createStore = () => createSharedStreams(new FakeClock());

function open(store: SharedStreams, instance = 'one') {
  const clock = new FakeClock();
  const journal = new Journal({ size: 1_000, maxBytes: 10_000_000 });
  const counts: Record<string, number> = {};
  const onShared = (outcome: string, count: number): void => {
    counts[outcome] = (counts[outcome] ?? 0) + count;
  };
  const entries = new SharedEntries(instance, { clock, journal, shared: store, onShared });
  const addLine = (line: Partial<RequestLine>, details?: RequestDetails): void =>
    journal.add(1, makeRequestLine({ requestId: toId(journal.recorded + 1), ...line }), details);
  const add = (count: number, detail?: string): void => {
    for (let i = 0; i < count; i++) addLine(detail === undefined ? {} : { detail });
  };
  return { entries, counts, clock, journal, add, addLine, share: () => entries.share(store, toDetail) };
}

test('shares a request one turn after it finished, so that its analysis is there, and reads only those of others', async () => {
  const { store, batches } = createStore();
  const own = open(store);
  own.add(2);
  await own.share();
  expect(batches).toEqual([]);
  await own.share();
  expect((await open(store, 'other').entries.read()).map(({ detail }) => detail.id)).toEqual([toId(1), toId(2)]);
  expect(await own.entries.read()).toEqual([]);
  await own.share();
  expect([batches.length, own.counts]).toEqual([1, { dropped: 0, sent: 2 }]);
});

test('shares at most 200 at once and 64 KiB, the newest, and counts the others', async () => {
  const { store, batches } = createStore();
  const { share, add, counts } = open(store);
  await share();
  add(300);
  await share();
  await share();
  expect(batches[0]?.text.length).toBeLessThanOrEqual(65_536 + 1_000);
  const sent = counts['sent'] ?? 0;
  expect([sent > 50, sent + (counts['dropped'] ?? 0)]).toEqual([true, 300]);
  expect(JSON.parse(batches[0]?.text ?? '')[0].detail.id).toBe(toId(300));
  add(100, 'x'.repeat(1_000));
  await share();
  await share();
  expect(batches[1]?.text.length).toBeLessThanOrEqual(65_536 + 1_000);
});

test('publishes no batch if the journal has already forgotten all of its requests', async () => {
  const { store, batches } = createStore();
  const { share, add, journal, counts } = open(store);
  await share();
  add(3);
  await share();
  journal.takeAll();
  await share();
  expect([batches, counts]).toEqual([[], { dropped: 3 }]);
});

/** As large as untrusted clients can make them. */
const LARGE: RequestDetails = {
  path: `/${'p'.repeat(1_023)}...`,
  headers: Array.from({ length: 64 }, (_, i) => `h${i}\t${'v'.repeat(60)}`).join('\n'),
  signedAt: undefined,
  stoppedAt: undefined,
  queuedAs: undefined,
  isClaimed: false,
  bytesOut: undefined,
  body: undefined,
};
const REJECTED = { code: 'signature_mismatch', reason: 'bad_signature', status: 401 } as const;

test('shortens what untrusted clients made large, so that it does not push out other requests', async () => {
  const { store } = createStore();
  const { share, addLine, journal, counts } = open(store);
  await share();
  for (let i = 0; i < 5; i++) {
    addLine({ key: 'current' });
    addLine({ ...REJECTED, detail: 'small' });
    addLine({ ...REJECTED, detail: 'd'.repeat(1_024) }, LARGE);
    journal.explain(
      toId(journal.recorded),
      Array.from({ length: 20 }, () => 'f'.repeat(500)),
    );
  }
  await share();
  await share();
  expect(counts).toEqual({ dropped: 0, sent: 15 });
  const entries = await open(store, 'other').entries.read();
  const long = entries[2]?.detail;
  expect(long).toMatchObject({
    path: `/${'p'.repeat(255)}...`,
    detail: `${'d'.repeat(256)}...`,
    findings: ['f'.repeat(500), 'f'.repeat(500)],
    commands: { repeat: null },
  });
  expect([long?.headers[0]?.value, long?.headers.at(-1)?.name]).toEqual(['v'.repeat(60), '...']);
  for (const { detail } of entries) expect(JSON.stringify(detail).length).toBeLessThan(4_096);
});

test('shares verified requests in spite of a flood of others, and others in spite of many verified ones', async () => {
  for (const [few, many] of [
    [{ key: 'current' }, REJECTED],
    [REJECTED, { key: 'current' }],
  ] as const) {
    const { store } = createStore();
    const { share, addLine } = open(store);
    await share();
    for (let i = 0; i < 5; i++) addLine(few);
    for (let i = 0; i < 500; i++) addLine(many, LARGE);
    await share();
    await share();
    const sequences = (await open(store, 'other').entries.read()).map(({ sequence }) => sequence);
    expect(sequences.slice(0, 5)).toEqual([1, 2, 3, 4, 5]);
    expect(sequences).toEqual(sequences.toSorted((a, b) => a - b));
    expect([sequences.length > 20, sequences.at(-1)]).toEqual([true, 505]);
  }
});

test('counts what the store did not take, and ignores what another version wrote', async () => {
  const { store } = createStore();
  const failing = open({ ...store, publish: () => Promise.reject(new Error('away')) });
  failing.add(3);
  await failing.share();
  await failing.entries.share({ ...store, publish: () => Promise.reject(new Error('away')) }, toDetail);
  expect(failing.counts).toMatchObject({ failed: 3 });
  for (const text of ['', 'null', '[{}]', '{"sequence":1}']) await store.publish('deliveries', text);
  const other = open(store, 'other');
  other.add(1);
  await other.share();
  await other.share();
  expect(await failing.entries.read()).toHaveLength(1);
});

test('keeps what it knows while the store is away', async () => {
  const { store, state } = createStore();
  const other = open(store, 'other');
  other.add(1);
  await other.share();
  await other.share();
  const own = open(store);
  expect(await own.entries.read()).toHaveLength(1);
  state.isAway = true;
  expect(await own.entries.read()).toHaveLength(1);
});

test('reads each request once, even if two callers read at once, and counts those that it no longer keeps', async () => {
  const { store, batches } = createStore();
  const [own, other] = [open(store), open(store, 'other')];
  for (let i = 0; i < 12; i++) {
    other.add(200);
    await other.share();
  }
  await Promise.all([own.entries.read(), own.entries.read()]);
  const { received } = own.entries;
  expect(received).toBeGreaterThan(500);
  expect(own.entries.since(0).map(({ sequence }) => sequence)).toEqual(
    own.entries
      .since(0)
      .map(({ sequence }) => sequence)
      .toSorted((a, b) => a - b),
  );
  expect(own.entries.since(received - 2).map(({ sequence }) => sequence)).toEqual([2_199, 2_200]);
  expect(own.entries.since(received + 5)).toEqual([]);
  expect(batches.length).toBeGreaterThan(5);
});

test('keeps the console open with one write every five seconds, and again after an outage', async () => {
  const { store, state } = createStore();
  const { entries, clock } = open(store);
  for (let i = 0; i < 10; i++) {
    await entries.read();
    clock.pass(1_000);
  }
  expect(state.watches).toBe(2);
  state.isAway = true;
  await entries.read();
  expect(entries.isAvailable).toBe(false);
  state.isAway = false;
  await entries.read();
  expect([state.watches, entries.isAvailable]).toEqual([3, true]);
});

test('keeps at most 4 MiB of text, the newest, whatever replicas of another version write', async () => {
  const { store, batches } = createStore();
  const [own, other] = [open(store), open(store, 'other')];
  for (let i = 0; i < 100; i++) {
    other.add(2, 'x'.repeat(200));
    await other.share();
  }
  // A version that does not shorten them.
  const long = batches.map(({ id, text }) => ({ id, text: text.replaceAll('x'.repeat(200), 'x'.repeat(30_000)) }));
  batches.splice(0, batches.length, ...long);
  const kept = await own.entries.read();
  const lengths = kept.map((entry) => JSON.stringify(entry.detail).length);
  const total = lengths.reduce((sum, length) => sum + length, 0);
  expect([own.entries.received, kept.at(-1)?.sequence]).toEqual([198, 198]);
  expect([total > 3 * 1_048_576, total <= 4 * 1_048_576]).toEqual([true, true]);
  expect(own.entries.since(0)).toEqual(kept);
});
