/** What the code itself keeps. Measured here, as this process runs no other file: collecting its garbage is fast, and all of its objects are known. */
import { expect, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { ResponseHeaderPolicy } from '../../src/gateway/upstream/headers.ts';
import { createVerifier } from '../../src/library/verifier.ts';
import { EndpointIndex } from '../../src/provider/endpoints/endpoint-index.ts';
import { ExpiringMap } from '../../src/state/memory.ts';
import { StoredBodies } from '../../src/telemetry/journal/stored-bodies.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/gate.ts';
import { measureHeap } from '../support/heap.ts';
import { anEndpoint } from '../support/provider/endpoint.ts';

const MIB = 1_048_576;
const [HOUR_MS, DAY_MS] = [3_600_000, 86_400_000];
const PUTS = 400_000;

test('the library gathers a body in chunks of one byte in little more than its size', async () => {
  const verifier = createVerifier({ scheme: 'github', secrets: ['It is a secret to everybody'] });
  await verifier.ready();
  let left = MIB;
  let [before, grown] = [0, Number.NaN];
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (left === MIB) before = measureHeap();
      if (left === 1) grown = measureHeap() - before;
      if (left-- === 0) controller.close();
      else controller.enqueue(Uint8Array.of(0x61));
    },
  });
  const headers = { 'Content-Type': 'application/json', 'X-Hub-Signature-256': `sha256=${'0'.repeat(64)}` };
  const request = new Request('https://hooks.example.com/in', { method: 'POST', headers, body, duplex: 'half' });
  expect(await verifier.verify(request)).toMatchObject({ code: 'signature_mismatch' });
  expect(grown).toBeLessThan(8 * MIB);
});

test('the process needs no more memory than the stored bodies count for', async () => {
  for (const size of [0, 10, 500, 8_192, 65_536]) {
    const bodies = new StoredBodies({ clock: new FakeClock(), maxBytes: 8 * MIB, onEvicted: () => undefined });
    const before = measureHeap();
    for (let i = 0; i < 12_000; i++)
      bodies.add('a', { content: Buffer.allocUnsafeSlow(size).fill('x'), isTruncated: false, redactions: 0 }, HOUR_MS);
    expect(bodies.bytes).toBeLessThanOrEqual(8 * MIB);
    // V8 frees the memory of buffers a moment after it has collected them.
    await until(() => measureHeap() - before <= bodies.bytes + MIB);
    bodies.shed();
  }
});

test.each([
  ['replaced', (map: ExpiringMap<{ expiresAt: number }>, expiresAt: number) => map.put('one', { expiresAt })],
  [
    'put and deleted',
    (map: ExpiringMap<{ expiresAt: number }>, expiresAt: number) => {
      map.put('one', { expiresAt });
      map.delete('one');
    },
  ],
])('an entry that is %s again and again takes the memory of one', (_name, repeat) => {
  const map = new ExpiringMap<{ expiresAt: number }>(systemClock, { maxEntries: 10, what: 'entries' });
  const now = systemClock.monotonic();
  const before = measureHeap();
  for (let i = 0; i < PUTS; i++) repeat(map, now + DAY_MS + (i % 3) * 1_000);
  expect(measureHeap() - before).toBeLessThan(4 * MIB);
  map.close();
});

test('the types of events that no endpoint selects take no memory, however many tenants send them', () => {
  const index = new EndpointIndex();
  const tenants = Array.from({ length: 2_000 }, (_, n) => `t${n}`);
  for (const tenant of tenants) index.set(anEndpoint(`of-${tenant}`, { tenant, events: ['invoice.*', 'customer.created'] }));
  const before = measureHeap();
  for (let kind = 0; kind < 100; kind++)
    for (const tenant of tenants) expect(index.route({ type: `a.kind${kind}`, tenant, data: {} })).toEqual([]);
  expect(measureHeap() - before).toBeLessThan(2 * MIB);
  // Until here, the index is in use.
  expect(index.route({ type: 'invoice.paid', tenant: 't0', data: {} })).toHaveLength(1);
});

test('an app or a destination of the forward proxy cannot fill the memory with the names of its headers', () => {
  const policy = new ResponseHeaderPolicy(new Set());
  const before = measureHeap();
  for (let i = 0; i < 900; i++) policy.toSenderHead(200, [`${i}-${'x'.repeat(16_000)}`.toUpperCase(), '1']);
  expect(measureHeap() - before).toBeLessThan(2 * MIB);
  // Until here, the policy is in use.
  expect(policy.toSenderHead(200, []).fields).toEqual([]);
});
