import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { Agent, createServer, request as openRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { inspect } from 'node:util';
import { runInNewContext } from 'node:vm';
import { sign as signGitHub } from '@octokit/webhooks-methods';
import { Webhook } from 'standardwebhooks';
import Stripe from 'stripe';
import { Webhook as SvixWebhook } from 'svix';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../src/config/load/load.ts';
import { systemClock } from '../../../src/core/clock.ts';
import type { EventStore, RawRequest, VerifierOptions } from '../../../src/library/types.ts';
import * as source from '../../../src/library/verifier.ts';
import { HANDSHAKES } from '../../../src/verify/handshakes/catalogue.ts';
import { findPreset, PRESETS } from '../../../src/verify/presets/catalogue.ts';
import type { HandshakeName, SchemeDescription } from '../../../src/verify/schemes/description.ts';
import { measureHeap } from '../../support/heap.ts';
import { type LibraryModule, loadInWorker } from '../../support/library.ts';
import { readHandshakes } from '../../support/oracles/vectors.ts';

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const OLD_SECRET = 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD';
const NOW = 1_800_000_000_000;
const BODY = '{"type":"invoice.paid","data":{"amount":2000}}';

interface Over {
  readonly id?: string;
  readonly at?: number;
  readonly body?: string;
  readonly secret?: string;
}

/** Signed by the library of Standard Webhooks. */
function sign({
  id = 'msg_1',
  at = NOW,
  body = BODY,
  secret = SECRET,
}: Over = {}): RawRequest & { headers: Record<string, string> } {
  const headers = {
    'Webhook-Id': id,
    'Webhook-Timestamp': String(at / 1000),
    'Webhook-Signature': new Webhook(secret).sign(id, new Date(at), body),
    'Content-Type': 'application/json',
  };
  return { method: 'POST', url: 'https://hooks.example.com/in', headers, body };
}

let worker: LibraryModule;
beforeAll(async () => {
  worker = await loadInWorker();
});

describe.each([
  ['on Node', () => source],
  ['in a worker', () => worker],
] as const)('%s', (_, library) => {
  const create = (over: Partial<VerifierOptions> = {}) =>
    library().createVerifier({ scheme: 'standard-webhooks', secrets: [SECRET], now: () => NOW, ...over });
  const judge = async (request: Request | RawRequest, over?: Partial<VerifierOptions>): Promise<string> => {
    const result = await create(over).verify(request);
    return result.ok ? 'ok' : `${result.status} ${result.reason}`;
  };

  test('returns the event of a Request', async () => {
    const { url = '', ...init } = sign();
    const result = await create().verify(new Request(url, init as RequestInit));
    expect(result).toMatchObject({ ok: true, eventId: 'msg_1', keyName: 'secret-1', timestamp: NOW, kind: undefined });
    if (!result.ok) throw new Error(result.detail);
    expect(result.json()).toEqual(JSON.parse(BODY));
    expect(Buffer.from(result.body).toString()).toBe(BODY);
  });

  test('accepts what the libraries of senders sign', async () => {
    const { headers } = sign();
    const svix = new SvixWebhook(SECRET).sign('msg_1', new Date(NOW), BODY);
    const svixHeaders = { 'svix-id': 'msg_1', 'svix-timestamp': String(NOW / 1000), 'svix-signature': svix };
    const stripe = Stripe.webhooks.generateTestHeaderString({ payload: BODY, secret: SECRET, timestamp: NOW / 1000 });
    const github = await signGitHub('it is a secret of GitHub', BODY);
    const json = { 'content-type': 'application/json' };
    expect(await judge({ headers, body: BODY })).toBe('ok');
    expect(await judge({ headers: { ...json, ...svixHeaders }, body: BODY }, { scheme: 'svix' })).toBe('ok');
    expect(await judge({ headers: { ...json, 'stripe-signature': stripe }, body: BODY }, { scheme: 'stripe' })).toBe('ok');
    const given = { ...json, 'x-hub-signature-256': github, 'x-github-delivery': 'd-1', 'x-github-event': 'push' };
    const options = { scheme: 'github', secrets: ['it is a secret of GitHub'] };
    expect(await judge({ headers: given, body: BODY }, options)).toBe('ok');
  });

  test('rejects a body that was parsed and written again', async () => {
    const { headers } = sign();
    expect(await judge({ headers, body: JSON.stringify(JSON.parse(BODY), null, 1) })).toBe('401 bad_signature');
    expect(await judge({ headers, body: new TextEncoder().encode(`\ufeff${BODY}`) })).toBe('401 bad_signature');
  });

  test.each([
    [301_000, {}, '401 timestamp_old'],
    [300_000, {}, 'ok'],
    [-301_000, {}, '401 timestamp_future'],
    [11_000, { tolerance: '10s' }, '401 timestamp_old'],
    [11_000, { tolerance: { past: 20_000, future: 0 } }, 'ok'],
    [-1_000, { tolerance: { past: '20s', future: 0 } }, '401 timestamp_future'],
  ])('judges a timestamp %i ms old with %o: %s', async (age, over, expected) => {
    expect(await judge(sign({ at: NOW - age }), over)).toBe(expected);
  });

  test.each(['1800000000garbage', '+1800000000', '1.8e9', '', '0x6b49d200', '99999999999999999999'])(
    'rejects the timestamp %o',
    async (text) => {
      const { headers, body } = sign();
      expect(await judge({ headers: { ...headers, 'Webhook-Timestamp': text }, body })).toMatch(/^401 (?:malformed|missing)/);
    },
  );

  test('verifies with several secrets, and with each only until its end', async () => {
    const secrets = [SECRET, { secret: OLD_SECRET, name: 'old', notAfter: NOW + 1 }];
    const result = await create({ secrets }).verify(sign({ secret: OLD_SECRET }));
    expect(result).toMatchObject({ ok: true, keyName: 'old' });
    const ended = [SECRET, { secret: OLD_SECRET, notAfter: NOW }];
    expect(await judge(sign({ secret: OLD_SECRET }), { secrets: ended })).toBe('401 bad_signature');
  });

  test('rejects repeated signature headers, which Headers would join', async () => {
    const { headers, body } = sign();
    const pairs = Object.entries(headers);
    const repeated = pairs.filter(([name]) => name === 'Webhook-Signature');
    expect(await judge({ headers: [...pairs, ...repeated], body })).toBe('401 malformed_signature');
    expect(await judge({ headers: [...pairs, ['webhook-id', 'msg_1']], body })).toBe('401 malformed_signature');
    const joined = new Headers([...pairs, ['webhook-id', 'msg_2']]);
    expect(await judge({ headers: joined, body })).toMatch(/^401 /);
  });

  test.each([
    [['Webhook-Id', 'msg\r\nX-Injected: 1'], '400 malformed'],
    [['Webhook Id', 'x'], '400 malformed'],
    [['Content-Length', '1e3'], '400 malformed'],
    [['Content-Encoding', 'gzip'], '415 content_encoding'],
    [['Connection', 'webhook-signature'], '401 malformed_signature'],
  ] as const)('rejects the header %o: %s', async (pair, expected) => {
    const { headers, body } = sign();
    expect(await judge({ headers: [...Object.entries(headers), pair], body })).toBe(expected);
  });

  test('accepts a header in UTF-8 that the platform decoded, and verifies a signed one by its bytes', async () => {
    const { headers, body } = sign();
    expect(await judge({ headers: { ...headers, 'CF-IPCity': 'Sr\u012bperumb\u016bd\u016br' }, body })).toBe('ok');
    const id = 'msg_\u012b';
    expect(await judge(sign({ id }))).toBe(await judge({ ...sign({ id: 'msg_+' }), headers: sign({ id }).headers }));
  });

  test.each(['/../in', '/in%zz', '/in#a b', '/a b'])('rejects the target %o', async (url) => {
    expect(await judge({ ...sign(), url: url.replace('#', '%00') })).toBe('400 malformed');
  });

  test('rejects other methods, media types and unsigned queries', async () => {
    const signed = sign();
    expect(await judge({ ...signed, method: 'PUT' })).toBe('405 method_not_allowed');
    expect(await judge({ ...signed, headers: { ...signed.headers, 'Content-Type': 'text/plain' } })).toBe(
      '415 unsupported_media_type',
    );
    expect(await judge({ ...signed, url: '/in?a=1' })).toBe('400 query_not_signed');
    expect(await judge({ ...signed, url: '/in?a=1' }, { allowQuery: true })).toBe('ok');
  });

  test.each([
    ['meta', 'X-Hub-Signature-256', 'sha256=', '400 query_not_signed'],
    ['asana', 'X-Hook-Signature', '', 'ok'],
  ])(
    'accepts the token of a handshake in the query only if its sender has it there: %s',
    async (scheme, header, prefix, expected) => {
      const secret = 'it is a secret of the app';
      const mac = createHmac('sha256', secret).update(BODY).digest('hex');
      const headers = { 'Content-Type': 'application/json', [header]: prefix + mac };
      const options = { scheme, secrets: [secret], handshake: { verifyToken: 'token-of-the-url' } };
      expect(await judge({ url: '/in?token=token-of-the-url', headers, body: BODY }, options)).toBe(expected);
      expect(await judge({ url: '/in?a=1', headers, body: BODY }, options)).toBe('400 query_not_signed');
    },
  );

  test('reads no more of an endless body than the limit', async () => {
    let pulled = 0;
    let isCanceled = false;
    const endless = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          pulled += 65_536;
          controller.enqueue(new Uint8Array(65_536));
        },
        cancel() {
          isCanceled = true;
        },
      },
      { highWaterMark: 0 },
    );
    const init = { method: 'POST', headers: sign().headers, body: endless, duplex: 'half' } as RequestInit;
    expect(await judge(new Request('https://hooks.example.com/', init), { maxBody: 1_000_000 })).toBe('413 body_too_large');
    expect([pulled, isCanceled]).toEqual([16 * 65_536, true]);
  });

  test('reads a body in chunks of one byte, and of any other size', async () => {
    const body = JSON.stringify({ text: 'a'.repeat(100_000) });
    const { headers } = sign({ body });
    for (const size of [1, 999, 16_384, 16_385, 70_000]) {
      const bytes = Buffer.from(body);
      const stream = new ReadableStream<Uint8Array>({
        pull(controller) {
          const at = bytes.length - rest.length;
          if (rest.length > 0) controller.enqueue(Uint8Array.from(bytes.subarray(at, at + size)));
          else controller.close();
          rest = rest.subarray(size);
        },
      });
      let rest = bytes.subarray(0);
      const request = new Request('https://hooks.example.com/in', { method: 'POST', headers, body: stream, duplex: 'half' });
      const result = await create().verify(request);
      expect([size, result.ok && result.text() === body]).toEqual([size, true]);
    }
  });

  test('rejects a large body by its declared length, and one in memory, unread', async () => {
    expect(await judge({ ...sign(), body: new Uint8Array(1_048_577) })).toBe('413 body_too_large');
    const body = `{"text":"${'x'.repeat(1_048_500)}"}`;
    expect(await judge(sign({ body }))).toBe('ok');
  });

  test('reports a body that was read before', async () => {
    const { url = '', ...init } = sign();
    const request = new Request(url, init as RequestInit);
    await request.text();
    const wasRead = { ok: false, status: 500, detail: expect.stringContaining('the body of the request was read already') };
    expect(await create().verify(request)).toMatchObject(wasRead);
    for (const [text, read] of [[BODY, 1] as const, ['', 0] as const]) {
      const body = Readable.from(text === '' ? [] : [Buffer.from(text)]);
      expect(await body.toArray()).toHaveLength(read);
      expect(await create().verify({ ...sign(), body })).toMatchObject(wasRead);
    }
  });

  describe('with a token, which no byte of the body can contradict', () => {
    const open = () => create({ scheme: 'bearer', secrets: ['it is a token of the sender'], maxBody: 1_000 });
    const toRequest = (body: unknown, headers: Record<string, string> = {}) =>
      ({
        method: 'POST',
        url: '/in',
        headers: { 'Content-Type': 'application/json', Authorization: 'Bearer it is a token of the sender', ...headers },
        body,
      }) as RawRequest;
    const bytes = new TextEncoder().encode(BODY);
    const halves = () => [bytes.slice(0, 9), bytes.slice(9)];
    /** As packages bring it: it has only what the standard says. */
    const toForeignStream = (chunks: unknown[], onCancel = (): void => undefined) => ({
      locked: false,
      getReader: () => ({
        read: async () => (chunks.length > 0 ? { done: false, value: chunks.shift() } : { done: true, value: undefined }),
        cancel: async () => onCancel(),
      }),
    });

    test.each([
      ['a stream', () => new Blob([BODY]).stream()],
      ['a stream of another class', () => toForeignStream(halves())],
      ['a stream of Node', () => Readable.from(halves())],
      ['a stream of text', () => Readable.from(['{"type":"invoice.paid",', '"data":{"amount":2000}}'])],
      ['a stream of views', () => toForeignStream([bytes.buffer.slice(0, 2), new DataView(bytes.buffer, 2)])],
      ['text', () => BODY],
      ['bytes', () => bytes],
      ['a part of a buffer', () => new Uint8Array([1, 2, ...bytes, 3]).subarray(2, -1)],
      ['an ArrayBuffer', () => bytes.buffer],
      ['bytes of another realm', () => runInNewContext('Uint8Array.from(bytes)', { bytes: [...bytes] })],
      ['an ArrayBuffer of another realm', () => runInNewContext('Uint8Array.from(bytes).buffer', { bytes: [...bytes] })],
    ])('reads %s', async (_, toBody) => {
      const result = await open().verify(toRequest(toBody()));
      expect(result.ok && result.text()).toBe(BODY);
    });

    test.each([
      ['a parsed object', { type: 'invoice.paid' }],
      ['a parsed list', [{ type: 'invoice.paid' }]],
      ['nothing', undefined],
      ['a number', 7],
      ['true', true],
      ['a Blob', new Blob([BODY])],
      ['a form', new URLSearchParams({ a: '1' })],
    ])(
      'rejects %s, which is not the bytes that were received, and does not throw: clients choose what a framework parses',
      async (_, body) => {
        for (const headers of [{}, { 'Content-Length': '7' }] as Record<string, string>[])
          expect(await open().verify(toRequest(body, headers))).toMatchObject({
            ok: false,
            status: 500,
            detail: expect.stringMatching(/the body of the request is neither bytes nor text nor a stream of them\b.*\bPass /),
          });
      },
    );

    test.each([
      ['nothing', undefined],
      ['an empty object', {}],
    ])('reads %s, as frameworks give it, as no content if the client sent none', async (_, body) => {
      const result = await open().verify(toRequest(body, { 'Content-Length': '0' }));
      expect(result.ok && result.text()).toBe('');
    });

    test('accepts no stream of parsed objects', async () => {
      const result = await open().verify(toRequest(Readable.from([{ type: 'invoice.paid' }])));
      expect(result).toMatchObject({ ok: false, status: 500, detail: expect.stringContaining('neither bytes nor text') });
    });

    test.each([
      ['a stream', () => toForeignStream(halves())],
      ['a stream of Node', () => Readable.from(halves())],
      ['an empty stream', () => Readable.from([])],
      ['no body', () => null],
      ['bytes', () => bytes],
    ])('rejects %s with fewer bytes than Content-Length says', async (_, toBody) => {
      const result = await open().verify(toRequest(toBody(), { 'Content-Length': String(bytes.length + 1) }));
      expect(result).toMatchObject({
        ok: false,
        status: 408,
        reason: 'body_aborted',
        detail: expect.stringMatching(/of 47 bytes/),
      });
    });

    test('rejects a stream that fails', async () => {
      const cutOff = new Readable({ read: () => cutOff.destroy(new Error('aborted')) });
      const result = await open().verify(toRequest(cutOff));
      expect(result).toMatchObject({ ok: false, status: 408, reason: 'body_aborted' });
    });

    test('reads no more of a stream of another class than the limit, and leaves it to the app, which still has to respond', async () => {
      let canceled = 0;
      const chunk = new Uint8Array(600);
      const stream = toForeignStream([chunk, chunk, chunk], () => void canceled++);
      expect(await open().verify(toRequest(stream))).toMatchObject({ status: 413 });
      const readable = Readable.from([chunk, chunk, chunk]);
      expect(await open().verify(toRequest(readable))).toMatchObject({ status: 413 });
      expect([canceled, readable.destroyed]).toEqual([1, false]);
    });

    test('lets a connection of Node be used again after a request whose body is beyond the limit', async () => {
      const verifier = open();
      const server = createServer(async (request, response) => {
        const { method = '', url = '', headers } = request;
        if (method === 'GET') return response.end();
        const result = await verifier.verify({ method, url, headers, body: request });
        return response.writeHead(result.ok ? 200 : result.status).end();
      });
      await once(server.listen(0, '127.0.0.1'), 'listening');
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      const { port } = server.address() as AddressInfo;
      const ask = (method: string, pieces: readonly string[]): Promise<number | undefined> =>
        new Promise((resolve, reject) => {
          const request = openRequest(
            { host: '127.0.0.1', port, agent, method, headers: toRequest('').headers as Record<string, string> },
            (response) => response.resume().once('end', () => resolve(response.statusCode)),
          );
          request.on('error', reject);
          for (const piece of pieces) request.write(piece);
          request.end();
        });
      try {
        expect(await ask('POST', ['a'.repeat(2_000), 'b'.repeat(300_000)])).toBe(413);
        expect(await ask('GET', [])).toBe(200);
      } finally {
        agent.destroy();
        server.close();
      }
    });

    test.each([[null], [undefined], [{}]])('a request by OPTIONS has no body, as platforms say by %j', async (body) => {
      const verifier = create({ handshake: { type: 'cloudevents', allowedOrigins: ['eventgrid.azure.net'] } });
      const request = { method: 'OPTIONS', headers: { 'WebHook-Request-Origin': 'eventgrid.azure.net' }, body };
      expect(await verifier.verify(request as unknown as RawRequest)).toMatchObject({ status: 200, code: 'handshake' });
    });

    test.each([[null], [undefined], [{}]])('a request by GET has no body, as platforms say by %j', async (body) => {
      const verifyToken = 'it is a token of the endpoint';
      const verifier = create({ scheme: 'meta', secrets: ['it is a secret to everybody'], handshake: { verifyToken } });
      const url = `/in?hub.mode=subscribe&hub.challenge=42&hub.verify_token=${encodeURIComponent(verifyToken)}`;
      const request = { method: 'GET', url, headers: {}, body };
      expect(await verifier.verify(request as unknown as RawRequest)).toMatchObject({ status: 200, code: 'handshake' });
    });
  });

  test('responds with the problem, and reveals no detail', async () => {
    const result = await create().verify(sign({ secret: OLD_SECRET }));
    if (result.ok) throw new Error('it was accepted');
    const { response } = result;
    expect([response.status, response.headers.get('content-type'), response.headers.get('cache-control')]).toEqual([
      401,
      'application/problem+json',
      'no-store',
    ]);
    expect(await response.json()).toEqual({
      type: 'urn:sidegate:refusal:signature_mismatch',
      title: 'Signature mismatch',
      status: 401,
      code: 'signature_mismatch',
    });
  });

  describe('while another class of promises is the global one, as with zone.js,', () => {
    const global = globalThis.Promise;
    beforeEach(() => {
      globalThis.Promise = class<T> extends global<T> {};
    });
    afterEach(() => {
      globalThis.Promise = global;
    });

    test.each([true, false])('accepts a valid delivery and rejects a forged one (with a store: %o)', async (hasStore) => {
      const over = hasStore ? { dedup: library().memoryStore() } : {};
      expect(await judge(sign({ secret: OLD_SECRET }), over)).toBe('401 bad_signature');
      const result = await create(over).verify(sign());
      expect(result).toMatchObject({ ok: true, keyName: 'secret-1', eventId: 'msg_1' });
      const headers = { 'Content-Type': 'application/json', 'X-Telegram-Bot-Api-Secret-Token': 'wrong' };
      const telegram = { scheme: 'telegram', secrets: ['it is a secret of Telegram'] };
      expect(await judge({ headers, body: '{"update_id":1}' }, telegram)).toBe('401 bad_signature');
    });
  });

  test('says by `ready` that the platform is too old', async () => {
    const { withResolvers } = Promise;
    try {
      Reflect.deleteProperty(Promise, 'withResolvers');
      const ready = source.createVerifier({ scheme: 'stripe', secrets: [SECRET] }).ready();
      await expect(ready).rejects.toThrow(/^Promise\.withResolvers is missing: /);
    } finally {
      Promise.withResolvers = withResolvers;
    }
  });

  describe('with a store', () => {
    const open = (over: Partial<VerifierOptions> = {}) => create({ dedup: library().memoryStore(), ...over });

    test('runs the handler once for concurrent duplicates', async () => {
      const verifier = open();
      let runs = 0;
      const handle = () =>
        verifier.handle(sign(), async () => {
          runs++;
          await Promise.resolve();
        });
      const responses = await Promise.all(Array.from({ length: 20 }, handle));
      expect(runs).toBe(1);
      expect(responses.map(({ status }) => status).toSorted()).toEqual([...Array<number>(19).fill(200), 204]);
      expect((await handle()).status).toBe(200);
    });

    test('rejects a duplicate of an event in progress at once, if it should', async () => {
      const verifier = open({ dedup: { store: library().memoryStore(), inProgress: 'reject', lease: '10s' } });
      const first = await verifier.verify(sign());
      const second = await verifier.verify(sign());
      expect(second).toMatchObject({ ok: false, status: 503, code: 'in_progress', reason: 'in_progress' });
      if (!first.ok || second.ok) throw new Error('wrong results');
      expect(second.response.headers.get('retry-after')).toMatch(/^\d+$/);
      await first.confirm();
      await first.release();
      expect(await verifier.verify(sign())).toMatchObject({ ok: false, status: 200, code: 'duplicate' });
    });

    test('rejects each confirmation of an event that the store did not record', async () => {
      const down = (): Promise<never> => Promise.reject(new Error('down'));
      const store: EventStore = { claim: () => Promise.resolve({ state: 'new' }), confirm: down, release: down };
      const first = await open({ dedup: store }).verify(sign());
      if (!first.ok) throw new Error('wrong result');
      await expect(first.confirm()).rejects.toThrow('down');
      await expect(first.confirm()).rejects.toThrow('down');
    });

    test('lets the retry of a failed event pass', async () => {
      const verifier = open();
      await expect(verifier.handle(sign(), () => Promise.reject(new Error('no database')))).rejects.toThrow('no database');
      expect((await verifier.handle(sign(), () => new Response('', { status: 500 }))).status).toBe(500);
      expect((await verifier.handle(sign(), () => new Response('', { status: 302 }))).status).toBe(302);
      expect((await verifier.handle(sign(), () => new Response('', { status: 202 }))).status).toBe(202);
      expect((await verifier.handle(sign(), () => expect.unreachable())).status).toBe(200);
    });

    test('settles by the status of a response whose class is not the global one', async () => {
      const server = createServer((_request, response) => response.writeHead(500).end('no database')).listen(0, '127.0.0.1');
      await once(server, 'listening');
      const { port } = server.address() as AddressInfo;
      const verifier = open();
      const global = globalThis.Response;
      // As adapters do that make a faster class for their server.
      globalThis.Response = class extends global {};
      try {
        const failed = await verifier.handle(sign(), () => fetch(`http://127.0.0.1:${port}/`));
        expect([failed.status, await failed.text()]).toEqual([500, 'no database']);
        expect((await verifier.handle(sign(), () => global.json({}, { status: 503 }))).status).toBe(503);
        expect((await verifier.handle(sign(), () => new Response('saved').clone())).status).toBe(200);
      } finally {
        globalThis.Response = global;
        server.close();
      }
      expect(await verifier.verify(sign())).toMatchObject({ ok: false, code: 'duplicate' });
    });

    test.each([
      [{ status: 500 }],
      [{ status: 200, headers: {}, data: {} }],
      [{ statusCode: 500, body: '' }],
      [true],
      [500],
      ['failed'],
      [[500]],
    ])('runs again after a handler that returned %j, which says neither that it succeeded nor that it failed', async (value) => {
      const verifier = open();
      const handled = verifier.handle(sign(), () => value as unknown as Response);
      await expect(handled).rejects.toThrow('return a Response, or nothing if the event was handled');
      expect((await verifier.handle(sign(), () => undefined)).status).toBe(204);
    });

    test('recognizes signed bytes under another ID that is not signed', async () => {
      const secret = 'it is a secret of GitHub';
      const signature = `sha256=${createHmac('sha256', secret).update(BODY).digest('hex')}`;
      const toRequest = (id: string): RawRequest => ({
        headers: {
          'X-Hub-Signature-256': signature,
          'X-GitHub-Delivery': id,
          'X-GitHub-Event': 'push',
          'Content-Type': 'application/json',
        },
        body: BODY,
      });
      const verifier = open({ scheme: 'github', secrets: [secret] });
      expect((await verifier.handle(toRequest('a'), () => undefined)).status).toBe(204);
      const replay = await verifier.verify(toRequest('b'));
      expect(replay).toMatchObject({ ok: false, reason: 'replayed_under_new_id' });
    });

    test('responds to Xero without content', async () => {
      const verifier = await create({ scheme: 'xero', secrets: [SECRET] });
      const headers = { 'X-Xero-Signature': 'AAAA', 'Content-Type': 'application/json' };
      const result = await verifier.verify({
        method: 'POST',
        url: 'https://hooks.example.com/in',
        headers,
        body: '{"events":[]}',
      });
      if (result.ok) throw new Error('it was accepted');
      expect([result.status, await result.response.text()]).toEqual([401, '']);
    });

    test('says that a duplicate has other content than the event that was handled under its signed ID', async () => {
      const verifier = open();
      expect((await verifier.handle(sign(), () => undefined)).status).toBe(204);
      const result = await verifier.verify(sign({ body: '{"type":"invoice.voided"}' }));
      expect(result).toMatchObject({ ok: false, status: 200, code: 'duplicate', reason: 'id_reused' });
    });

    test('keeps the events of several tenants apart, in one store, unless they have one namespace', async () => {
      const store = library().memoryStore();
      const handled: string[] = [];
      const deliver = async (
        secret: string,
        dedup: NonNullable<VerifierOptions['dedup']>,
        secrets = [secret],
      ): Promise<number> => {
        const response = await open({ secrets, dedup }).handle(sign({ secret }), () => void handled.push(secret));
        return response.status;
      };
      for (const secret of [SECRET, OLD_SECRET, SECRET]) await deliver(secret, store);
      expect(handled).toEqual([SECRET, OLD_SECRET]);
      // During a rotation, by whichever secret it is verified: an attacker could remove one of two signatures.
      await deliver(SECRET, store, [OLD_SECRET, SECRET]);
      await deliver(OLD_SECRET, store, [OLD_SECRET, SECRET]);
      for (const secret of [SECRET, OLD_SECRET]) await deliver(secret, { store, namespace: 'billing' });
      expect(handled).toEqual([SECRET, OLD_SECRET, SECRET]);
    });

    test('claims nothing for a request that no secret verifies', async () => {
      const claimed: string[] = [];
      const inner = library().memoryStore();
      const store: EventStore = {
        claim: (claim) => {
          claimed.push(claim.key);
          return inner.claim(claim);
        },
        confirm: (...given) => inner.confirm(...given),
        release: (...given) => inner.release(...given),
      };
      await open({ dedup: store }).verify(sign({ secret: OLD_SECRET }));
      expect(claimed).toEqual([]);
      await open({ dedup: store }).verify(sign());
      expect(claimed).toEqual([expect.stringMatching(/^standard-webhooks:[\w-]{43}:i:msg_1$/)]);
    });

    test('responds with 503 while the store is down, and reports an outcome that it did not record', async () => {
      const down = new Error('connection refused');
      const store: EventStore = {
        claim: () => Promise.reject(down),
        confirm: () => Promise.reject(down),
        release: () => Promise.reject(down),
      };
      const errors: unknown[] = [];
      const onStoreError = (error: unknown): void => void errors.push(error);
      const result = await open({ dedup: store, onStoreError }).verify(sign());
      expect(result).toMatchObject({
        ok: false,
        status: 503,
        code: 'store_unavailable',
        detail: expect.stringMatching(/connection refused$/),
      });
      expect(errors.splice(0).map(String)).toEqual([expect.stringMatching(/connection refused$/)]);
      const half = { ...store, claim: () => Promise.resolve({ state: 'new' as const }) };
      const verifier = open({ dedup: half, onStoreError });
      expect((await verifier.handle(sign(), () => undefined)).status).toBe(204);
      expect(errors.map(String)).toEqual([expect.stringMatching(/connection refused$/)]);
    });

    test.each([
      undefined,
      null,
      true,
      {},
      { state: 'handled' },
      { state: 'in-progress', fingerprint: 'a', remainingMs: 'soon' },
      { state: 'old' },
    ])('takes a store whose claim resolves with %j for one that failed', async (claimed) => {
      const errors: unknown[] = [];
      const claim = (): Promise<never> => Promise.resolve(claimed as never);
      const store = { claim, confirm: () => Promise.resolve(true), release: () => Promise.resolve(true) };
      const verifier = open({ dedup: store, onStoreError: (error) => errors.push(error) });
      expect((await verifier.handle(sign(), () => undefined)).status).toBe(503);
      expect(errors.map(String)).toEqual([expect.stringContaining('claim resolved with')]);
    });

    test('keeps nothing of the deliveries that it rejects while the store is down', async () => {
      const errors: WeakRef<Error>[] = [];
      const fail = async (): Promise<never> => {
        const down = new Error('down');
        errors.push(new WeakRef(down));
        throw down;
      };
      const verifier = open({ dedup: { store: { claim: fail, confirm: fail, release: fail } } });
      for (let sent = 0; sent < 200; sent++) expect((await verifier.verify(sign())).ok).toBe(false);
      await new Promise((resolve) => setImmediate(resolve));
      measureHeap();
      expect(errors.length).toBe(400);
      expect(errors.filter((each) => each.deref() !== undefined).length).toBeLessThan(20);
    });

    test('reports that the store is full, whose new events get 503', async () => {
      const errors: unknown[] = [];
      const dedup = library().memoryStore({ maxIds: 1 });
      const verifier = open({ dedup, onStoreError: (error) => errors.push(error) });
      const statuses = [];
      for (const id of ['msg_1', 'msg_2', 'msg_1']) statuses.push((await verifier.handle(sign({ id }), () => undefined)).status);
      expect(statuses).toEqual([204, 503, 200]);
      expect(errors.map(String)).toEqual([expect.stringMatching(/the memory store is full \(1 /)]);
    });

    test('keeps a quarter of the memory for the events of other secrets', async () => {
      const errors: unknown[] = [];
      const dedup = library().memoryStore({ maxIds: 4 });
      const deliver = async (id: string, secret: string): Promise<number> => {
        const verifier = open({ secrets: [secret], dedup, onStoreError: (error) => errors.push(error) });
        return (await verifier.handle(sign({ id, secret }), () => undefined)).status;
      };
      for (const id of ['msg_1', 'msg_2', 'msg_3']) expect(await deliver(id, SECRET)).toBe(204);
      expect([await deliver('msg_4', SECRET), await deliver('msg_4', OLD_SECRET)]).toEqual([503, 204]);
      expect(errors.map(String)).toEqual([expect.stringMatching(/the memory store is full for this sender \(3 of 4 IDs\)$/)]);
    });
  });

  describe('wrong settings', () => {
    const problem = async (over: Partial<VerifierOptions>): Promise<string> => {
      const { message, name } = await create(over)
        .ready()
        .then(
          () => new Error('none'),
          (thrown: unknown) => thrown as Error,
        );
      return `${name}: ${message}`;
    };

    test.each([
      [{ secrets: [] }, /secrets: the list is empty/],
      [{ secrets: [''] }, /secrets\[0\] is empty/],
      [{ secrets: [' \r\n'] }, /secrets\[0\] is empty/],
      [{ scheme: 'meta', handshake: { verifyToken: '\n' } }, /handshake\.verifyToken is empty/],
      [{ scheme: 'twilio', publicUrl: 'https://a.example', urlCredentials: '' }, /urlCredentials is empty/],
      [{ secrets: [undefined as unknown as string] }, /secrets\[0\]: not a string; is a variable of the environment unset/],
      [{ secrets: ['whsec_%%%%'] }, /secrets\[0\]: the secret is not canonical base64/],
      [{ secrets: ['-----BEGIN CERTIFICATE-----\nMIIB'] }, /secrets\[0\]: the library does not parse certificates/],
      [{ scheme: 'strype' }, /scheme: "strype" is not a preset/],
      [{ tolerance: '5 minutes' }, /tolerance: "5 minutes" is not a duration/],
      [{ tolerance: Number.NaN }, /tolerance: NaN is not a number/],
      [{ scheme: 'twilio' }, /publicUrl: twilio signs the URL/],
      [{ scheme: 'plaid' }, /scheme: plaid signs with JSON Web Tokens/],
      [{ scheme: 'aws-sns' }, /scheme: aws-sns signs with certificates that must be fetched/],
      [{ scheme: 'unsigned' }, /scheme: unsigned has no signature/],
      [{ scheme: 'paypal' }, /receiverId: paypal signs the ID under which the sender knows the receiver/],
      [{ allowWeakDigest: 'yes' }, /allowWeakDigest: the string is not true or false/],
      [{ receiverId: 'a' }, /receiverId: standard-webhooks does not sign it/],
      [{ handshake: { verifyToken: 'a' } }, /handshake: standard-webhooks has no handshake/],
      [
        { scheme: 'slack', handshake: { verifyToken: 'a' } },
        /handshake\.verifyToken: the slack handshake does not use verifyToken; remove verifyToken/,
      ],
      [{ scheme: 'stripe', handshake: { type: 'x' } }, /handshake\.type: the handshake of X signs any token with the key/],
      [{ scheme: null }, /^VerifierError: scheme: null is not the name or the description of a scheme$/],
      [{ scheme: undefined }, /scheme: undefined is not the name/],
      [{ secrets: SECRET }, /^VerifierError: secrets: the string is not a list$/],
      [{ secrets: undefined }, /secrets: undefined is not a list/],
      [{ secrets: [null] }, /secrets\[0\]: null is not an object/],
      [{ secrets: [{ secret: SECRET, notAfter: '2020-01-01' }] }, /secrets\[0\]\.notAfter: the string is not a number of millis/],
      [{ secrets: [{ secret: SECRET, notAfter: Number.NaN }] }, /secrets\[0\]\.notAfter: NaN is not/],
      [{ secrets: [{ secret: SECRET, notAfter: NOW / 1_000 }] }, /secrets\[0\]\.notAfter: 1800000000 is not a number of millis/],
      [{ secrets: [{ secret: SECRET, notAfter: NOW }] }, /secrets: each has ended by its notAfter/],
      [{ secrets: [{ secret: SECRET, name: 'secret-2' }, OLD_SECRET] }, /secrets: two are named secret-2; use a unique name/],
      [{ secrets: [{ secret: SECRET, notBefore: 1 }] }, /secrets\[0\]\.notBefore: unknown; the settings are secret, name, enc/],
      [{ secrets: [{ secret: SECRET, encoding: 'base32' }] }, /secrets\[0\]\.encoding: the string is not utf8 or base64 or hex/],
      [{ maxBody: '1mb' }, /^VerifierError: maxBody: the string is not an integer above 0 and at most 1 GiB$/],
      [{ maxBody: Number.NaN }, /^VerifierError: maxBody: NaN is not an integer above 0 and at most 1 GiB$/],
      [{ maxBody: Number.POSITIVE_INFINITY }, /maxBody: Infinity is not/],
      [{ maxBody: 0 }, /maxBody: 0 is not/],
      [{ maxBody: null }, /maxBody: null is not/],
      [{ contentTypes: 'application/json' }, /contentTypes: the string is not a list of media types in lower case/],
      [{ contentTypes: ['APPLICATION/JSON'] }, /contentTypes: the object is not a list of media types in lower case/],
      [{ contentTypes: ['*/*'] }, /contentTypes: /],
      [{ contentTypes: [] }, /contentTypes: /],
      [{ allowQuery: 'false' }, /allowQuery: the string is not true or false/],
      [{ tolerance: null }, /tolerance: null is not a value/],
      [{ tolerance: { past: '5m' } }, /tolerance: undefined is not a number of milliseconds/],
      [{ tolerance: { past: '5m', future: '5m', both: '5m' } }, /tolerance\.both: unknown; the settings are past, future/],
      [{ tolerence: '1s' }, /^VerifierError: tolerence: unknown; the settings are scheme, secrets, tolerance, /],
      [{ now: NOW }, /now: 1800000000000 is not a function/],
      [{ now: (): number => Number.NaN }, /now: NaN is not a number of milliseconds since 1970/],
      [{ now: (): string => String(NOW) }, /now: the string is not a number/],
      [{ now: async (): Promise<number> => NOW }, /now: the object is not a number/],
      [{ onStoreError: 'log' }, /onStoreError: the string is not a function/],
      [{ scheme: 'twilio', publicUrl: 'hooks.example.com' }, /publicUrl: the string is not scheme and host, such as https:/],
      [{ scheme: 'twilio', publicUrl: 'https://hooks.example.com/' }, /publicUrl: the string is not scheme and host/],
      [{ handshake: 'on' }, /handshake: the string is not off or an object/],
      [{ handshake: false }, /handshake: false is not off/],
      [{ handshake: { type: 'toString' } }, /handshake\.type: "toString" is unknown; the types are slack, zoom/],
      [{ scheme: 'meta', handshake: { token: 'a' } }, /handshake\.token: unknown; the settings are type, verifyToken/],
      [{ handshake: { type: 'cloudevents', allowedOrigins: 'eventgrid.azure.net' } }, /allowedOrigins: the string is not a list/],
      [{ handshake: { type: 'cloudevents', allowedRate: '9' } }, /allowedRate: the string is not an integer above 0/],
      [{ dedup: null }, /dedup: null is not a store, or an object with one/],
      [{ dedup: {} }, /dedup\.store: undefined is not an object with the methods claim, confirm, release/],
      [{ dedup: { store: undefined } }, /dedup\.store: undefined is not/],
      [{ dedup: { store: new Map() } }, /dedup\.store: the object is not an object with the methods/],
    ] as const)('are reported: %o', async (over, expected) => {
      const text = await problem(over as unknown as Partial<VerifierOptions>);
      expect(text).toMatch(expected);
      expect(text).toMatch(/^VerifierError: /);
      expect(text).not.toContain(SECRET.slice('whsec_'.length));
    });

    const CUSTOM: SchemeDescription = {
      name: 'custom',
      signature: { header: 'X-Signature', encoding: 'hex', forms: [{ prefix: '', algorithm: 'hmac-sha256' }] },
      signed: ['body'],
      separator: '',
      id: { json: '$.id' },
      secret: { encoding: 'utf8' },
      tolerance: { past: 300_000, future: 300_000 },
      contentTypes: ['application/json'],
    };

    test.each([
      [{ name: undefined }, /^VerifierError: scheme\.name: undefined is not 1 to 128 visible ASCII characters$/],
      [{ sepparator: '.' }, /scheme\.sepparator: unknown; the settings are name, from, signature, /],
      [{ separator: undefined }, /scheme\.separator: undefined is not text/],
      [{ signed: undefined }, /scheme\.signed: undefined is not a list/],
      [{ signed: 'body' }, /scheme\.signed: the string is not a list/],
      [
        { signed: ['boddy'] },
        /scheme\.signed\[0\]: the string is not id, timestamp, body, .*, or an object such as \{ header: 'X-Name' \}/,
      ],
      [{ signed: ['body', { headers: 'X-Id' }] }, /scheme\.signed\[1\]: the object is not id, timestamp, body, /],
      [{ signed: ['timestamp', 'body'] }, /scheme\.signed: the place of the signed timestamp is missing; timestamp: \{ header/],
      [
        { id: { json: '$.a[*].id' }, signed: ['id', 'body'], separator: '\n' },
        /^VerifierError: id: the signed ID must be in one place/,
      ],
      [{ signed: [{ header: 'X-Id' }] }, /scheme\.signed: the body is not signed, so anyone could change it/],
      [{ signature: { header: 'X-S', encoding: 'base32', forms: [] } }, /scheme\.signature\.encoding: the string is not hex or /],
      [{ signature: { header: 'X-S', encoding: 'hex' } }, /scheme\.signature\.forms: undefined is not a list/],
      [{ signature: { header: 'X-S', encoding: 'hex', forms: [] } }, /scheme\.signature\.forms: the list is empty/],
      [
        { signature: { header: 'X-S', encoding: 'hex', forms: [{ prefix: '', algorithm: 'md5' }] } },
        /scheme\.signature\.forms\[0\]\.algorithm: the string is not hmac-sha1 or /,
      ],
      [
        { signature: { header: 'X-S', encoding: 'hex', forms: [{ algorithm: 'token' }] } },
        /forms\[0\]\.prefix: undefined is not/,
      ],
      [{ signature: { ...CUSTOM.signature, list: '.' } }, /scheme\.signature\.list: the string is not , or ; or/],
      [
        { signature: { ...CUSTOM.signature, parts: { separator: '.', count: 2 } } },
        /signature\.parts\.signature: undefined is not a pos/,
      ],
      [{ timestamp: { header: 'X-Time' } }, /scheme\.timestamp\.from: undefined is not an object such as/],
      [
        { timestamp: { from: { header: 'X-Time' }, unit: 'min' } },
        /scheme\.timestamp\.unit: the string is not s or ms or rfc3339/,
      ],
      [{ id: 'X-Id' }, /scheme\.id: the string is not an object such as \{ header: 'X-Name' \}, with header, query, /],
      [{ id: { json: 'id' } }, /^VerifierError: scheme: .*id/],
      [{ secret: undefined }, /scheme\.secret: undefined is not an object/],
      [{ secret: {} }, /scheme\.secret\.encoding: undefined is not utf8 or base64 or hex/],
      [{ tolerance: '5m' }, /scheme\.tolerance: the string is not an object/],
      [{ tolerance: undefined }, /scheme\.tolerance: undefined is not an object/],
      [{ contentTypes: undefined }, /scheme\.contentTypes: undefined is not a list of media types/],
      [{ contentTypes: ['Application/JSON'] }, /scheme\.contentTypes: the object is not a list of media types in lower case/],
      [{ unsignedBody: false }, /scheme\.unsignedBody: false is not true/],
      [{ unsignedBody: true }, /^VerifierError: scheme\.unsignedBody: the signature covers the whole body; remove unsignedBody$/],
      [{ signed: [{ header: 'X-Id' }], unsignedBody: true }, /^VerifierError: dedup: .* without dedup, one captured signature/],
      [{ signed: ['crc32'] }, /allowWeakDigest: custom signs only a CRC-32 of the body/],
      [{ timestamp: { from: { header: 'X-Time' }, unit: 's' } }, /scheme\.timestamp: the timestamp is not signed, so a replay/],
      [
        { signature: { ...CUSTOM.signature, encoding: 'text' } },
        /scheme\.signature\.encoding: encoding: text and algorithm: token/,
      ],
      [{ signature: { ...CUSTOM.signature, header: '', json: '$.sig' } }, /scheme\.signed: the body contains its own signature/],
      [{ methods: [] }, /scheme\.methods: the object is not a list of methods/],
      [{ jwksUrl: 'https://a.example' }, /scheme\.jwksUrl: the string is not supported: list the public keys in secrets/],
    ])('include those of a custom scheme: %o', async (over, expected) => {
      const scheme = { ...CUSTOM, ...over } as SchemeDescription;
      expect(await problem({ scheme, secrets: ['it is a secret of the sender'] })).toMatch(expected);
    });

    /** Dedup for senders that do not sign the whole body, which need it. */
    const toDedup = ({ unsignedBody }: SchemeDescription) => (unsignedBody === true ? library().memoryStore() : undefined);

    test('do not exist for the descriptions of the presets', async () => {
      const failed: string[] = [];
      for (const scheme of PRESETS) {
        const text = await problem({ scheme, secrets: ['x'], publicUrl: 'https://hooks.example.com', dedup: toDedup(scheme) });
        if (!/secrets\[0\]|: none$|bytes could move between/.test(text)) failed.push(scheme.name);
      }
      expect(failed.toSorted()).toEqual(UNSUPPORTED);
    });

    test.each([
      [undefined, false],
      ['check', false],
      ['check', true],
      ['trust', true],
      [undefined, true],
    ] as const)(
      'are those of the gate, by what each preset signs (unsignedId: %s, allowWeakDigest: %s)',
      async (unsignedId, allowWeakDigest) => {
        const publicUrl = 'https://hooks.example.com';
        for (const { name: scheme, jwt, signature, isSignedInContent, signed } of PRESETS) {
          if (jwt !== undefined || signature === undefined || isSignedInContent === true) continue;
          const settings = { scheme, publicUrl, allowWeakDigest, ...(signed.includes('receiverId') && { receiverId: 'a' }) };
          const times = { retention: '30d', unsignedId };
          const webhook = {
            ...settings,
            keys: [{ name: 'k', secret: { env: 'SECRET' } }],
            dedup: unsignedId === undefined ? 'off' : times,
          };
          const route = { name: 'r', match: { path: '/hook' }, upstream: 'http://127.0.0.1:3000', webhook };
          const { problems } = parseConfig('gate.yaml', stringify({ routes: [route] }), systemClock);
          const wrong = problems.find(({ severity }) => severity === 'error')?.message ?? '';
          const dedup = unsignedId === undefined ? undefined : { ...times, store: library().memoryStore() };
          const text = await problem({ ...settings, secrets: ['x'], dedup });
          expect(/secrets\[0\]|: none$/.test(text) ? '' : text, scheme).toContain(wrong);
          expect(wrong === '' && !/secrets\[0\]|: none$/.test(text), `${scheme}: ${text}`).toBe(false);
        }
      },
    );

    test('include dedup for a scheme without an ID of events', async () => {
      expect(await problem({ scheme: 'bearer', dedup: library().memoryStore() })).toMatch(
        /scheme: bearer has no ID that identifies/,
      );
    });

    test('warn of a body that anyone can change until the event is handled', async () => {
      const verifier = create({ scheme: 'mailgun', secrets: ['it is a secret of mailgun'], dedup: library().memoryStore() });
      expect((await verifier.ready()).join()).toMatch(/^scheme: mailgun signs no part of the body|^scheme: mailgun signs only/);
    });

    test('include a custom scheme in which bytes can move', async () => {
      const base = findPreset('github') as SchemeDescription;
      const scheme = {
        ...base,
        name: 'custom',
        signed: ['id', 'body'],
        separator: '',
        id: { header: 'X-Id' },
      } as SchemeDescription;
      expect(await problem({ scheme })).toMatch(/bytes could move between/);
    });

    test('do not exist for the presets that the library supports', async () => {
      const failed: string[] = [];
      for (const scheme of PRESETS) {
        const settings = { secrets: ['x'], publicUrl: 'https://hooks.example.com', dedup: toDedup(scheme) };
        const text = await problem({ scheme: scheme.name, ...settings });
        if (!/secrets\[0\]|: none$/.test(text)) failed.push(scheme.name);
      }
      expect(failed.toSorted()).toEqual(UNSUPPORTED);
    });

    test.each([
      [
        { retention: '901s' },
        /dedup\.retention: an event is forgotten while its delivery can still be replayed; set at least 902s/,
      ],
      [{ retention: 0 }, /dedup\.retention: /],
      [{ lease: '100ms' }, /dedup\.lease: the claim ends while the event is handled; set it above 100ms/],
      [{ retention: '1h', lease: '1h' }, /dedup\.retention: .* above dedup\.lease/],
      [{ retention: Number.NaN }, /dedup\.retention: NaN is not a number of milliseconds/],
      [{ maxWait: null }, /dedup\.maxWait: null is not a value/],
      [{ inProgress: 'skip' }, /dedup\.inProgress: the string is not wait or reject/],
      [{ unsignedId: 'off' }, /dedup\.unsignedId: the string is not check or trust/],
      [{ namespace: '' }, /dedup\.namespace: the string is not 1 to 128 visible ASCII characters/],
      [{ ttl: '3d' }, /dedup\.ttl: unknown; the settings are store, retention, /],
    ] as const)('include %o of dedup', async (settings, expected) => {
      const dedup = { store: library().memoryStore(), ...settings } as VerifierOptions['dedup'];
      expect(await problem({ dedup } as Partial<VerifierOptions>)).toMatch(expected);
    });

    test('include none at all', async () => {
      const verifier = library().createVerifier(undefined as unknown as VerifierOptions);
      await expect(verifier.ready()).rejects.toThrow(/^options: undefined is not an object$/);
    });

    test('include the tolerance of a custom scheme', async () => {
      const base = findPreset('stripe') as SchemeDescription;
      const scheme = { ...base, tolerance: { past: Number.NaN, future: 0 } };
      expect(await problem({ scheme })).toMatch(/^VerifierError: scheme\.tolerance\.past: NaN is not a number of milliseconds$/);
    });

    test('do not include what fails once, as when no file can be opened', async () => {
      let fails = true;
      const now = (): number => {
        if (fails) throw new Error('EMFILE');
        return NOW;
      };
      const verifier = create({ now });
      await expect(verifier.verify(sign())).rejects.toThrow('EMFILE');
      fails = false;
      expect((await verifier.verify(sign())).ok).toBe(true);
    });

    test('warn of a secret that has ended', async () => {
      const secrets = [SECRET, { secret: OLD_SECRET, name: 'old', notAfter: NOW }];
      expect(await create({ secrets }).ready()).toEqual(['secrets: old has ended by its notAfter; remove it']);
    });

    test('include a clock that stops to tell the time', async () => {
      let now = NOW;
      const verifier = create({ now: () => now });
      expect((await verifier.verify(sign())).ok).toBe(true);
      now = Number.NaN;
      await expect(verifier.verify(sign({ at: NOW - 3_600_000 }))).rejects.toThrow(/^now: NaN is not a number/);
    });

    test.each([0, Number.NaN, -5, '10', Number.POSITIVE_INFINITY, null])('include %o as the size of a memory store', (maxIds) => {
      expect(() => library().memoryStore({ maxIds: maxIds as number })).toThrow(
        expect.objectContaining({
          name: 'VerifierError',
          message: expect.stringMatching(/^memoryStore\.maxIds: .* is not an integer/),
        }),
      );
    });

    test('do not include settings that are undefined, nor a store with fields of any name', async () => {
      class Store {
        readonly store = new Map();
        readonly #inner = library().memoryStore({});
        claim(...given: Parameters<EventStore['claim']>) {
          return this.#inner.claim(...given);
        }
        confirm(...given: Parameters<EventStore['confirm']>) {
          return this.#inner.confirm(...given);
        }
        release(...given: Parameters<EventStore['release']>) {
          return this.#inner.release(...given);
        }
      }
      const names = [
        'tolerance',
        'handshake',
        'maxBody',
        'contentTypes',
        'allowQuery',
        'publicUrl',
        'onStoreError',
        'onRejected',
      ];
      const unset = Object.fromEntries(names.map((name) => [name, undefined]));
      const verifier = create({ ...unset, dedup: new Store() });
      expect(await verifier.ready()).toEqual([]);
      expect((await verifier.handle(sign(), () => undefined)).status).toBe(204);
      expect((await verifier.handle(sign(), () => undefined)).status).toBe(200);
    });

    test('reports what `handle` rejects', async () => {
      const rejected: unknown[] = [];
      const verifier = create({ onRejected: (each) => rejected.push(each) });
      expect((await verifier.handle(sign(), () => undefined)).status).toBe(204);
      const { status } = await verifier.handle(sign({ secret: OLD_SECRET }), () => undefined);
      expect([status, rejected]).toEqual([401, [expect.objectContaining({ status: 401, code: 'signature_mismatch' })]]);
    });

    test('include the default retention for a sender that sends the same bytes for a later event', async () => {
      const over = { scheme: 'paystack', secrets: ['it is a secret of Paystack'] };
      expect(await problem({ ...over, dedup: library().memoryStore() })).toMatch(
        /^VerifierError: dedup\.retention: paystack can send the same bytes for another event; set a short one/,
      );
      const dedup = { store: library().memoryStore(), retention: '10m' };
      expect((await create({ ...over, dedup }).ready()).filter((text) => text.startsWith('dedup'))).toEqual([]);
    });

    test('include a tolerance beyond the retention', async () => {
      const over = { tolerance: '30d', dedup: library().memoryStore() };
      expect(await problem(over)).toMatch(/^VerifierError: dedup\.retention: an event is forgotten/);
    });

    test('warn of a short retention, and of waits that are longer than the lease', async () => {
      const dedup = { store: library().memoryStore(), retention: '902s', lease: '4s' };
      expect(await create({ dedup }).ready()).toEqual([
        'dedup.retention: senders may retry for three days; a retry after the retention is handled again',
        'dedup.maxWait: deliveries wait longer than the lease lasts',
      ]);
    });

    test('warn of a rotation that forgets events', async () => {
      const warn = (over: Partial<VerifierOptions>) => create({ secrets: [SECRET, OLD_SECRET], ...over }).ready();
      const store = library().memoryStore();
      expect(await warn({ dedup: store })).toEqual([expect.stringMatching(/^dedup\.namespace: /)]);
      expect(await warn({ dedup: { store, namespace: 'billing' } })).toEqual([]);
      expect(await warn({})).toEqual([]);
    });

    test('warn of unsigned IDs that are trusted', async () => {
      const dedup = { store: library().memoryStore(), unsignedId: 'trust' } as const;
      expect(await create({ dedup }).ready()).toEqual([]);
      expect(await create({ scheme: 'github', secrets: ['it is a secret of GitHub'], dedup }).ready()).toEqual([
        'dedup.retention: github does not sign the time, so a captured delivery is handled again after three days',
        'dedup.unsignedId: github does not sign the ID, so a captured delivery is handled again under each invented ID',
      ]);
    });

    test('do not include a newline at the end of a secret, which does not belong to it', async () => {
      expect(await judge(sign(), { secrets: [`${SECRET}\r\n`] })).toBe('ok');
    });

    test('warn of a secret that is a placeholder, or starts with whitespace', async () => {
      const secrets = ['<the-secret-of-the-webhook>', '\nit is a secret of GitHub'];
      expect(await create({ scheme: 'github', secrets }).ready()).toEqual([
        expect.stringMatching(/secrets\[0\] looks like a placeholder/),
        expect.stringMatching(/secrets\[1\] starts with whitespace/),
      ]);
    });

    test('warn of a weak secret', async () => {
      expect(await create({ scheme: 'github', secrets: ['short'] }).ready()).toEqual([expect.stringMatching(/^secrets\[0\]: /)]);
    });
  });

  test('prints no secret', async () => {
    const verifier = create({ dedup: library().memoryStore() });
    const result = await verifier.verify(sign());
    const bare = SECRET.slice('whsec_'.length);
    for (const each of [
      verifier,
      result,
      await create({ secrets: ['whsec_x'] })
        .ready()
        .catch((thrown: unknown) => thrown),
    ])
      expect(inspect(each, { depth: 20, showHidden: true }) + JSON.stringify(each)).not.toContain(bare);
  });

  const handshakes = readHandshakes().map((each) => ({ ...each, title: `${each.preset}, ${each.source}` }));
  test.each(handshakes)('responds to the handshake of $title', async ({ preset, secret, signed, answer, atEpochSeconds }) => {
    const type = preset as HandshakeName;
    const known = findPreset(preset);
    const isKnown = known !== undefined && known.jwt === undefined && known.handshake === type && type !== 'front';
    const custom: SchemeDescription = {
      ...(findPreset('github') as SchemeDescription),
      name: 'custom',
      secret: { encoding: 'utf8' },
      ...(HANDSHAKES[type].mac === 'hmac-sha1' && {
        signature: { header: 'X-Sig', encoding: 'hex', forms: [{ prefix: '', algorithm: 'hmac-sha1' }] },
      }),
    };
    const verifier = library().createVerifier({
      scheme: isKnown ? preset : custom,
      secrets: [{ secret: secret.text, ...(secret.encoding && { encoding: secret.encoding }) }],
      publicUrl: 'https://hooks.example.com',
      now: () => atEpochSeconds * 1000,
      handshake: {
        type,
        ...(HANDSHAKES[type].parameter !== undefined && { parameter: 'token' }),
        ...(HANDSHAKES[type].token === 'needed' && { verifyToken: secret.text }),
        ...(type === 'braintree' && { publicKey: 'integration_public_key' }),
      },
    });
    const isGraph = type === 'microsoft-graph';
    const url = isGraph ? `${signed.url}&token=${encodeURIComponent(secret.text)}` : signed.url;
    const types = Object.keys(signed.headers).some((name) => name.toLowerCase() === 'content-type');
    const mac = createHmac('sha256', secret.text).update(signed.body).digest('hex');
    const headers = {
      ...signed.headers,
      ...(!types && { 'Content-Type': 'application/json' }),
      // The values of these have no signature, as their senders leave it to other means.
      ...(['event-grid', 'front'].includes(type) && { 'X-Hub-Signature-256': `sha256=${mac}` }),
    };
    const result = await verifier.verify({ method: signed.method, url, headers, body: signed.body });
    if (result.ok) throw new Error('it is an event');
    expect([result.code, result.detail, result.response.status]).toEqual(['handshake', type, answer.status]);
    const text = await result.response.text();
    if (answer.json !== undefined) expect(JSON.parse(text)).toEqual(answer.json);
    else if (signed.method !== 'HEAD') expect(text).toBe(answer.text);
    for (const [name, value] of Object.entries(answer.headers ?? {})) expect(result.response.headers.get(name)).toBe(value);
  });
});

/** Tokens, certificates, or no signature. */
const UNSUPPORTED = [
  'apple-app-store',
  'aws-sns',
  'azure-event-grid',
  'azure-event-grid-cloudevents',
  'google-pubsub',
  'monday',
  'netlify',
  'paypal',
  'paypal-sandbox',
  'plaid',
  'unsigned',
  'vonage',
  'wix',
];
