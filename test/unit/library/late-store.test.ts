/** A store of an app that replies late or never, in a worker whose time a test moves. */
import { createHmac } from 'node:crypto';
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type {
  DedupSettings,
  EventStore,
  RawRequest,
  StoreClaimResult,
  Verifier,
  VerifierOptions,
} from '../../../src/library/types.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { type LibraryModule, loadInWorker } from '../../support/library.ts';

const KEY = 'MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const SENT_AT = 1_800_000_000;
const BODY = '{"type":"invoice.paid"}';
const NEW = { state: 'new' } as const;

const clock = new FakeClock();
let worker: LibraryModule;
let errors: string[] = [];
/** Calls of the store, with what settles each. */
let calls: { readonly name: string; readonly reply: PromiseWithResolvers<unknown> }[] = [];

beforeAll(async () => {
  worker = await loadInWorker(clock);
});
beforeEach(() => {
  errors = [];
  calls = [];
});

function call<Result>(name: string): Promise<Result> {
  const reply = Promise.withResolvers<unknown>();
  calls.push({ name, reply });
  return reply.promise as Promise<Result>;
}

const store: EventStore = {
  claim: () => call<StoreClaimResult>('claim'),
  confirm: () => call<boolean>('confirm'),
  release: () => call<boolean>('release'),
};

function open(settings: Partial<DedupSettings> = {}, callbacks: Partial<VerifierOptions> = {}): Verifier {
  return worker.createVerifier({
    scheme: 'standard-webhooks',
    secrets: [`whsec_${KEY}`],
    dedup: { store, ...settings },
    now: () => SENT_AT * 1_000,
    onStoreError: (error) => errors.push(String(error)),
    ...callbacks,
  });
}

function sign(): RawRequest {
  const signature = createHmac('sha256', Buffer.from(KEY, 'base64')).update(`msg_1.${SENT_AT}.${BODY}`).digest('base64');
  const headers = {
    'Content-Type': 'application/json',
    'Webhook-Id': 'msg_1',
    'Webhook-Timestamp': String(SENT_AT),
    'Webhook-Signature': `v1,${signature}`,
  };
  return { headers, body: BODY };
}

/** The call of the store with this name, once it is made. WebCrypto takes its time before. */
async function untilCall(name: string): Promise<PromiseWithResolvers<unknown>> {
  for (;;) {
    const at = calls.findIndex((each) => each.name === name);
    if (at !== -1) return (calls.splice(at, 1)[0] as (typeof calls)[number]).reply;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const NO_REPLY = expect.stringMatching(/no reply in 5 s$/);

test('rejects a delivery whose claim is granted after its lease, and gives the claim back', async () => {
  const response = open({ lease: '3s' }).handle(sign(), () => expect.unreachable());
  const claim = await untilCall('claim');
  await clock.advance(3_000);
  claim.resolve(NEW);
  expect((await response).status).toBe(503);
  expect(await (await response).json()).toMatchObject({ code: 'in_progress' });
  (await untilCall('release')).resolve(true);
  expect(errors).toEqual([expect.stringMatching(/the claim came after its lease$/)]);
});

test('handles a delivery whose claim is granted within its lease', async () => {
  const response = open({ lease: '3s' }).handle(sign(), () => undefined);
  const claim = await untilCall('claim');
  await clock.advance(2_999);
  claim.resolve(NEW);
  (await untilCall('confirm')).resolve(true);
  expect((await response).status).toBe(204);
  expect([errors, clock.timers]).toEqual([[], 0]);
});

test('responds with 503 if a claim gets no reply, reports it, and gives back what the store may have granted', async () => {
  const result = open().verify(sign());
  const claim = await untilCall('claim');
  await clock.advance(5_000);
  expect(await result).toMatchObject({ ok: false, status: 503, code: 'store_unavailable', detail: NO_REPLY });
  expect(errors).toEqual([NO_REPLY]);
  await untilCall('release');
  claim.reject(new Error('connection lost'));
  await clock.advance(5_000);
  expect(clock.timers).toBe(0);
});

test('gives back a claim that the store grants after the release, which found nothing', async () => {
  const result = open().verify(sign());
  const claim = await untilCall('claim');
  await clock.advance(5_000);
  expect(await result).toMatchObject({ ok: false, status: 503 });
  (await untilCall('release')).resolve(false);
  claim.resolve(NEW);
  (await untilCall('release')).resolve(true);
});

test('responds with 503 if a claim gets no reply while it waits for the one of another delivery', async () => {
  const response = open().handle(sign(), () => expect.unreachable());
  const { resolve } = await untilCall('claim');
  resolve({ state: 'in-progress', remainingMs: 60_000, fingerprint: 'x' });
  await clock.advance(0);
  await clock.advance(20);
  await untilCall('claim');
  await clock.advance(5_000);
  expect((await response).status).toBe(503);
  expect(errors).toEqual([NO_REPLY]);
});

test('gives the response of the handler if its outcome gets no reply, and reports it', async () => {
  const response = open().handle(sign(), () => new Response('handled'));
  (await untilCall('claim')).resolve(NEW);
  await untilCall('confirm');
  await clock.advance(5_000);
  expect(await (await response).text()).toBe('handled');
  expect(errors).toEqual([NO_REPLY]);
});

test('throws the error of the handler if the release gets no reply, and reports it', async () => {
  const response = open().handle(sign(), () => Promise.reject(new Error('no database')));
  const thrown = expect(response).rejects.toThrow('no database');
  (await untilCall('claim')).resolve(NEW);
  await untilCall('release');
  await clock.advance(5_000);
  await thrown;
  expect(errors).toEqual([NO_REPLY]);
});

describe.each([
  [
    'throws',
    (): void => {
      throw new Error('no log');
    },
  ],
  ['rejects', () => Promise.reject(new Error('no log'))],
  ['never resolves', () => new Promise<void>(() => undefined)],
])('an onStoreError that %s changes nothing', (_title, onStoreError) => {
  test('while claims fail', async () => {
    const response = open({}, { onStoreError }).handle(sign(), () => expect.unreachable());
    (await untilCall('claim')).reject(new Error('down'));
    expect((await response).status).toBe(503);
    (await untilCall('release')).resolve(false);
  });

  test('after the event was handled, or was not', async () => {
    const handled = open({}, { onStoreError }).handle(sign(), () => new Response('handled'));
    (await untilCall('claim')).resolve(NEW);
    (await untilCall('confirm')).reject(new Error('down'));
    expect(await (await handled).text()).toBe('handled');
    const failed = open({}, { onStoreError }).handle(sign(), () => Promise.reject(new Error('no database')));
    const thrown = expect(failed).rejects.toThrow('no database');
    (await untilCall('claim')).resolve(NEW);
    (await untilCall('release')).reject(new Error('down'));
    await thrown;
  });
});

test('a body that arrives byte by byte is given up after five minutes, whatever its stream does then', async () => {
  let reads = 0;
  // As HTTP/2 servers of Node hand it out: nothing ends it.
  const body = {
    async *[Symbol.asyncIterator]() {
      for (;;) {
        reads++;
        await new Promise<void>((resolve) => clock.after(1_000, resolve));
        yield Buffer.from('x');
      }
    },
  };
  const result = open().verify({ ...sign(), body: body as unknown as AsyncIterable<Uint8Array> });
  for (let second = 0; second < 301; second++) {
    await clock.advance(1_000);
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(await result).toMatchObject({ ok: false, status: 408, reason: 'body_aborted' });
  const before = reads;
  await clock.advance(2_000);
  expect(reads).toBeLessThanOrEqual(before + 1);
  expect(clock.timers).toBe(0);
});

test.each([60_000n, '60000'])('a store may return remainingMs as %o', async (remainingMs) => {
  const response = open({ inProgress: 'reject' }).handle(sign(), () => expect.unreachable());
  (await untilCall('claim')).resolve({ state: 'in-progress', remainingMs, fingerprint: 'x' });
  expect((await response).status).not.toBe(500);
  expect(errors).toEqual([]);
});
