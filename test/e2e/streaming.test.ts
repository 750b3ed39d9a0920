import { createHash, randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, request as openRequest, type ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { useServer } from '../support/fixtures.ts';
import { startGate, type TestGate, until } from '../support/gate.ts';

const MEBIBYTE = 1024 * 1024;
let gate: TestGate;
let answer: (request: IncomingMessage, response: ServerResponse) => void;
const server = createServer((request, response) => answer(request, response));
server.on('checkContinue', (request, response) => answer(request, response));
const app = useServer(server);

beforeEach(async () => {
  answer = (_request, response) => response.end('handled');
  const upstream = `http://127.0.0.1:${app.port}`;
  gate = await startGate({
    routes: [
      { name: 'open', match: { pathPrefix: '/' }, upstream, timeout: '1s', idleTimeout: '2s', allow: 'anyone' },
      { name: 'patient', match: { pathPrefix: '/patient' }, upstream, timeout: '1m', allow: 'anyone' },
    ],
    limits: { bodyIdleTimeout: '1s' },
  });
});
afterEach(async () => {
  server.closeAllConnections();
  await gate.stop();
});

const open = (method: string, headers: Record<string, string | number> = {}, path = '/x') =>
  openRequest({ host: '127.0.0.1', port: gate.port, method, path, headers, agent: false });
const answered = (request: ReturnType<typeof open>): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => request.once('response', resolve).once('error', reject));
const read = async (stream: IncomingMessage): Promise<Buffer> => Buffer.concat((await stream.toArray()) as Buffer[]);

describe('a body', () => {
  test.each([
    ['with its length', true],
    ['in chunks', false],
  ])('of 64 MiB %s reaches the app unchanged', async (_, hasLength) => {
    const block = randomBytes(MEBIBYTE);
    let framing: unknown;
    answer = async (request, response) => {
      framing = [request.headers['content-length'], request.headers['transfer-encoding']];
      const hash = createHash('sha256');
      for await (const chunk of request) hash.update(chunk as Buffer);
      response.end(hash.digest('hex'));
    };
    const request = open('PUT', hasLength ? { 'Content-Length': 64 * MEBIBYTE } : {});
    const got = answered(request);
    const expected = createHash('sha256');
    for (let i = 0; i < 64; i++) {
      expected.update(block);
      if (!request.write(block)) await new Promise((resolve) => request.once('drain', resolve));
    }
    request.end();
    expect((await read(await got)).toString()).toBe(expected.digest('hex'));
    expect(framing).toEqual(hasLength ? [String(64 * MEBIBYTE), undefined] : [undefined, 'chunked']);
    expect(gate.log().at(-1)).toMatchObject({ status: 200, bytesIn: 64 * MEBIBYTE });
  });

  test('that the app does not read stays with its sender', async () => {
    const stalled = new Promise<IncomingMessage>((resolve) => {
      answer = (request) => resolve(request.pause());
    });
    const request = open('PUT', { 'Content-Length': 64 * MEBIBYTE }, '/patient');
    const got = answered(request);
    const block = randomBytes(MEBIBYTE);
    let taken = 0;
    const upload = async (): Promise<void> => {
      for (; taken < 64; taken++) if (!request.write(block)) await new Promise((resolve) => request.once('drain', resolve));
      request.end();
    };
    const uploaded = upload();
    const stream = await stalled;
    // Until sockets and pauses hold all that they take.
    let [last, looks] = [0, 0];
    await until(async () => {
      looks = taken === last ? looks + 1 : 0;
      last = taken;
      await new Promise((resolve) => setTimeout(resolve, 20));
      return looks === 10;
    });
    expect(taken).toBeLessThan(32);
    stream.on('end', () => server.closeAllConnections()).resume();
    await uploaded;
    expect((await got).statusCode).toBe(502);
  });

  test('of a request reaches apps unchanged, whether they stall or not', async () => {
    let release: () => void = () => undefined;
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    answer = async (request, response) => {
      const hash = createHash('sha256');
      for await (const chunk of request) {
        hash.update(chunk as Buffer);
        if (request.headers['x-app'] === 'stalls') await released;
      }
      response.end(hash.digest('hex'));
    };
    const upload = async (app: string): Promise<boolean> => {
      const request = open('PUT', { 'Content-Length': 24 * MEBIBYTE, 'X-App': app }, '/patient');
      const got = answered(request);
      const hash = createHash('sha256');
      for (let i = 0; i < 24; i++) {
        const block = randomBytes(MEBIBYTE);
        hash.update(block);
        if (!request.write(block)) await new Promise((resolve) => request.once('drain', resolve));
      }
      request.end();
      return (await read(await got)).toString() === hash.digest('hex');
    };
    // Those who stall have more under way than the system takes, while memory is freed and taken for others.
    const stalling = [upload('stalls'), upload('stalls')];
    const fast = await Promise.all([upload('reads'), upload('reads')]);
    release();
    expect([...fast, ...(await Promise.all(stalling))]).toEqual([true, true, true, true]);
  });

  test.each([
    ['with its length', true, MEBIBYTE],
    ['in chunks', false, MEBIBYTE],
    // More than one of these fits in what a socket holds back.
    ['with its length and piece by piece', true, 40_000],
  ])('of a response %s arrives unchanged, whether senders stall or not', async (_, hasLength, size) => {
    const count = Math.ceil((24 * MEBIBYTE) / size);
    const sent: string[] = [];
    answer = async (_request, response) => {
      if (hasLength) response.setHeader('Content-Length', count * size);
      const hash = createHash('sha256');
      for (let i = 0; i < count; i++) {
        const block = randomBytes(size);
        hash.update(block);
        if (!response.write(block)) await new Promise((resolve) => response.once('drain', resolve));
        await new Promise((resolve) => setImmediate(resolve));
      }
      response.end();
      sent.push(hash.digest('hex'));
    };
    const download = async (until?: Promise<unknown>): Promise<string> => {
      const hash = createHash('sha256');
      for await (const chunk of await answered(open('GET', {}, '/patient').end())) {
        hash.update(chunk as Buffer);
        await until;
      }
      return hash.digest('hex');
    };
    // Those who stall have more under way than the system takes, while the memory of others goes round.
    const fast = Promise.all([download(), download()]);
    const got = [...(await Promise.all([download(fast), download(fast)])), ...(await fast)];
    // A sender that knows the length has it all a moment before the app has ended.
    await until(() => sent.length === got.length);
    expect(got.toSorted()).toEqual(sent.toSorted());
  });

  test('of a DELETE in chunks is forwarded in chunks', async () => {
    let got = '';
    answer = async (request, response) => {
      got = `${request.headers['transfer-encoding']} ${(await read(request)).toString()}`;
      response.end();
    };
    const request = open('DELETE', { 'Transfer-Encoding': 'chunked' });
    request.write('abc');
    request.end('def');
    expect((await answered(request)).statusCode).toBe(200);
    expect(got).toBe('chunked abcdef');
  });

  test('that is missing is not announced for GET, and has length 0 for POST', async () => {
    const seen: unknown[] = [];
    answer = (request, response) => {
      seen.push([request.headers['content-length'], request.headers['transfer-encoding']]);
      response.end();
    };
    await send(gate.port, { method: 'GET', path: '/' });
    await send(gate.port, { method: 'POST', path: '/' });
    expect(seen).toEqual([
      [undefined, undefined],
      ['0', undefined],
    ]);
  });
});

describe('events', () => {
  test('arrive one by one, as the app sends them', async () => {
    let push: (text: string) => void = () => undefined;
    answer = (_request, response) => {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      response.flushHeaders();
      push = (text) => response.write(text);
    };
    const request = open('GET').end();
    const incoming = await answered(request);
    expect(incoming.headers['content-type']).toBe('text/event-stream');
    for (const event of ['data: 1\n\n', 'data: 2\n\n']) {
      const next = new Promise<Buffer>((resolve) => incoming.once('data', resolve));
      push(event);
      expect((await next).toString()).toBe(event);
    }
    request.destroy();
  });

  test('may pause up to idleTimeout; then the client is disconnected without a clean end', async () => {
    answer = (_request, response) => void response.writeHead(200).write('first');
    const incoming = await answered(open('GET').end());
    await expect(read(incoming)).rejects.toThrow('aborted');
    expect(gate.log().at(-1)).toMatchObject({ reason: 'upstream_timeout', detail: 'the response stalled for 2000 ms' });
  });
});

describe('a sender that waits for 100', () => {
  test('gets it from the gate, and the app is not involved', async () => {
    let expectation: string | undefined = 'none';
    answer = async (request, response) => {
      expectation = request.headers.expect;
      response.end((await read(request)).toString());
    };
    const request = open('POST', { Expect: '100-continue', 'Content-Length': 5 });
    request.flushHeaders();
    await new Promise((resolve) => request.once('continue', resolve));
    const got = answered(request);
    request.end('hello');
    expect((await read(await got)).toString()).toBe('hello');
    expect(expectation).toBeUndefined();
  });
});

describe('a sender that disconnects', () => {
  const untilClosed = (request: IncomingMessage): Promise<void> =>
    new Promise((resolve) => request.socket.once('close', () => resolve()));

  test('during its body ends the exchange with the app, which sees no clean end', async () => {
    let closed: Promise<void> | undefined;
    let isComplete: boolean | undefined;
    answer = (request) => {
      closed = untilClosed(request);
      request.on('close', () => {
        isComplete = request.complete;
      });
      request.resume();
    };
    const request = open('POST', { 'Transfer-Encoding': 'chunked' }).on('error', () => undefined);
    request.write('part');
    await until(() => closed !== undefined);
    request.destroy();
    await closed;
    expect(isComplete).toBe(false);
    await until(() => gate.log().some((line) => line['code'] === 'malformed_request'));
    expect(await gate.metric('sidegate_http_requests_in_flight')).toBe(0);
  });

  test('while it waits for the response also ends the exchange', async () => {
    let closed: Promise<void> | undefined;
    answer = (request) => {
      closed = untilClosed(request);
    };
    const request = open('GET').on('error', () => undefined);
    request.end();
    await until(() => closed !== undefined);
    request.destroy();
    await closed;
    await until(() => gate.log().some((line) => line['reason'] === 'sender_gone' && line['status'] === 499));
  });

  test('during the response also ends the exchange, and the next request is served', async () => {
    let closed: Promise<void> | undefined;
    answer = (request, response) => {
      closed = untilClosed(request);
      response.writeHead(200).write('first');
    };
    const request = open('GET').on('error', () => undefined);
    request.end();
    (await answered(request)).on('error', () => undefined);
    request.destroy();
    await closed;
    answer = (_request, response) => response.end('again');
    expect((await send(gate.port, { method: 'GET', path: '/' })).text).toBe('again');
  });
});

describe('an app', () => {
  test('can respond before it has the body, and the connection ends after its response', async () => {
    answer = (_request, response) => response.writeHead(413).end('too much');
    const socket = connect(gate.port, '127.0.0.1');
    socket.write('POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\npart');
    let text = '';
    for await (const chunk of socket) text += String(chunk);
    expect(text).toMatch(/^HTTP\/1\.1 413 /);
    expect(text).toMatch(/\r\nConnection: close\r\n/i);
    expect(text).toMatch(/too much/);
  });

  test('that stops reading the body leads to 504', async () => {
    answer = (request) => void request.pause();
    const request = open('POST', { 'Content-Length': 64 * MEBIBYTE }).on('error', () => undefined);
    const got = answered(request);
    request.write(Buffer.alloc(32 * MEBIBYTE));
    expect((await got).statusCode).toBe(504);
  });
});

test('a sender that stalls during its body gets 408, and the connection to the app is reset', async () => {
  let isAborted = false;
  answer = (request) => {
    request.on('error', () => {
      isAborted = true;
    });
    request.resume();
  };
  const request = open('POST', { 'Content-Length': 10 }).on('error', () => undefined);
  request.write('part');
  expect((await answered(request)).statusCode).toBe(408);
  await until(() => isAborted);
  expect(await gate.metric('sidegate_limit_hits_total{limit="body_idle"}')).toBe(1);
});
