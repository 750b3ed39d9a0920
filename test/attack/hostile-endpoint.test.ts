import { readFileSync } from 'node:fs';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { createServer as createRawTlsServer } from 'node:tls';
import { describe, expect, onTestFinished, test } from 'vitest';
import { makeAuthority } from '../support/certificates.ts';
import { useFolder } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import { fc } from '../support/property.ts';
import { answering, type Script, startScriptApp } from '../support/script-app.ts';
import { openSender, sendTo, toResolve } from '../support/sender.ts';

const folder = useFolder();
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n';

const start = async (script: Script) => {
  const app = await startScriptApp(script);
  onTestFinished(() => app.close());
  return { url: `http://127.0.0.1:${app.port}/`, connections: () => app.connections };
};
/** Writes the same bytes again whenever there is room, until the connection ends; returns how many were written. */
const pour = (socket: Socket, bytes: Buffer): { count: number } => {
  const poured = { count: 0 };
  const go = (): void => {
    while (!socket.destroyed && socket.write(bytes)) poured.count += bytes.length;
  };
  socket.on('drain', go);
  go();
  return poured;
};
/** Writes one byte after the other, 20 ms apart, until the connection ends. */
const drip = (socket: Socket, text: string): void => {
  let at = 0;
  const timer = setInterval(() => socket.write(text[at++ % text.length] ?? ''), 20);
  socket.on('close', () => clearInterval(timer));
};

describe('a response that is not valid HTTP fails the attempt', () => {
  test.each([
    ['garbage', '\0\x01\x02\r\n\r\n'],
    ['another protocol', 'SSH-2.0-OpenSSH_9.2\r\n\r\n'],
    ['HTTP/2', 'HTTP/2 200 OK\r\n\r\n'],
    ['HTTP/0.9', '<html>\r\n\r\n'],
    ['a status of four digits', 'HTTP/1.1 2000 OK\r\n\r\n'],
    ['status 600', 'HTTP/1.1 600 OK\r\n\r\n'],
    ['bare line feeds', 'HTTP/1.1 200 OK\nContent-Length: 0\n\n\r\n\r\n'],
    ['a folded line', 'HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n'],
    ['a space before the colon', 'HTTP/1.1 200 OK\r\nX : a\r\n\r\n'],
    ['a control byte', 'HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n'],
    ['a negative length', 'HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n'],
    ['length and coding', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['an unknown coding', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n'],
    ['a coding in HTTP/1.0', 'HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['an unrequested protocol', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n'],
    ['a header of 1 MiB', `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(1_048_576)}\r\n\r\n`],
    ['a flood of 1xx', 'HTTP/1.1 100 Continue\r\n\r\n'.repeat(10_000)],
    ['a flood of early hints', `HTTP/1.1 103 Early Hints\r\nLink: ${'x'.repeat(8_000)}\r\n\r\n`.repeat(100)],
  ])('%s', async (_, text) => {
    const { url } = await start(answering(text));
    const result = await sendTo(openSender(), { url });
    expect(result).toMatchObject({ outcome: 'protocol', isSent: true });
    expect(result.status).toBeUndefined();
    // Nothing that the endpoint wrote is stored.
    expect(result.detail).toMatch(/^[a-zA-Z0-9 /.,()-]{1,80}$/);
  });
});

describe('the status counts once the head is complete, and the connection is not used again, if', () => {
  const HEAD = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
  test.each([
    ['a response follows the response', `${OK}HTTP/1.1 500 Smuggled\r\nContent-Length: 0\r\n\r\n`],
    ['a 204 has a body', 'HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello'],
    ['a chunk size is malformed', `${HEAD}zz\r\n`],
    ['a chunk size is negative', `${HEAD}-1\r\n`],
    ['a chunk is longer than its size', `${HEAD}1\r\nab\r\n0\r\n\r\n`],
    ['a chunk extension is too long', `${HEAD}1;${'x'.repeat(5_000)}\r\na\r\n0\r\n\r\n`],
    ['a trailer is malformed', `${HEAD}0\r\nx y\r\n\r\n`],
    ['trailers are too large', `${HEAD}0\r\nX: ${'x'.repeat(50_000)}\r\n\r\n`],
    ['the length is huge', 'HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\nx'],
  ])('%s', async (_, text) => {
    const { url, connections } = await start(answering(text));
    const sender = openSender();
    for (let i = 1; i <= 2; i++) {
      const result = await sendTo(sender, { url, timeout: 300 });
      expect(result).toMatchObject({ outcome: 'delivered', isSent: true });
      expect(connections()).toBe(i);
    }
  });

  test('the body breaks off, or is reset', async () => {
    for (const end of ['end', 'resetAndDestroy'] as const) {
      const { url, connections } = await start((socket) =>
        socket.on('data', () =>
          socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc', () => setImmediate(() => socket[end]())),
        ),
      );
      const sender = openSender();
      for (let i = 1; i <= 2; i++) {
        expect(await sendTo(sender, { url })).toMatchObject({ outcome: 'delivered', status: 200 });
        expect(connections()).toBe(i);
      }
    }
  });

  test('an HTTP/1.0 body ends with the connection', async () => {
    const { url } = await start((socket) => socket.on('data', () => socket.end('HTTP/1.0 200 OK\r\n\r\nhello')));
    expect(await sendTo(openSender(), { url })).toMatchObject({ outcome: 'delivered', status: 200 });
  });

  test('the body comes byte by byte: the attempt ends with its timeout', async () => {
    const { url, connections } = await start((socket) =>
      socket.on('data', () => {
        socket.write('HTTP/1.1 500 Oops\r\nContent-Length: 1000000\r\n\r\n');
        drip(socket, 'x');
      }),
    );
    const result = await sendTo(openSender(), { url, timeout: 300 });
    expect(result).toMatchObject({ outcome: 'server_error', status: 500 });
    expect(result.duration).toBeGreaterThanOrEqual(300);
    expect(result.duration).toBeLessThan(1_500);
    expect(connections()).toBe(1);
  });

  test.each([
    ['with a length', 'HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n', Buffer.alloc(65_536)],
    ['until the end of the connection', 'HTTP/1.1 200 OK\r\n\r\n', Buffer.alloc(65_536)],
    [
      'in chunks of one byte with extensions',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n',
      Buffer.from(`1;${'x'.repeat(900)}\r\na\r\n`.repeat(64)),
    ],
  ])('the body is endless, %s: it is not read to its end', async (_, head, chunk) => {
    let poured = { count: 0 };
    const { url } = await start((socket) =>
      socket.once('data', () => {
        socket.write(head);
        poured = pour(socket, chunk);
      }),
    );
    const result = await sendTo(openSender(), { url });
    expect(result).toMatchObject({ outcome: 'delivered', status: 200 });
    expect(result.duration).toBeLessThan(1_500);
    // What the system buffers.
    expect(poured.count).toBeLessThan(16 * 1_048_576);
  });
});

describe('a slow endpoint', () => {
  test('cannot hold an attempt longer than the timeout with single bytes of a head', async () => {
    const { url } = await start((socket) =>
      socket.on('data', () => drip(socket, 'HTTP/1.1 200 OK\r\nX: x'.padEnd(100_000, 'x'))),
    );
    const result = await sendTo(openSender(), { url, timeout: 300 });
    expect(result).toMatchObject({ outcome: 'timeout', isSent: true });
    expect(result.duration).toBeLessThan(1_500);
  });

  test('cannot hold an attempt with 1xx responses', async () => {
    const { url } = await start((socket) =>
      socket.on('data', () => {
        const timer = setInterval(() => socket.write('HTTP/1.1 102 Processing\r\n\r\n'), 50);
        socket.on('close', () => clearInterval(timer));
      }),
    );
    const result = await sendTo(openSender(), { url, timeout: 300 });
    expect(result).toMatchObject({ outcome: 'timeout', isSent: true });
  });

  test('that reads nothing ends with the timeout', async () => {
    const { url } = await start((socket) => socket.pause());
    const result = await sendTo(openSender(), { url, timeout: 300 }, { body: Buffer.alloc(16 * 1_048_576, 'x') });
    expect(result).toMatchObject({ outcome: 'timeout', isSent: true });
  });

  test('that responds before it read the body gets no second request on that connection', async () => {
    const { url, connections } = await start((socket) => {
      socket.once('data', () => {
        socket.pause();
        socket.write('HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n');
      });
    });
    const sender = openSender();
    const body = Buffer.alloc(16 * 1_048_576, 'x');
    for (let i = 1; i <= 2; i++) {
      expect(await sendTo(sender, { url }, { body })).toMatchObject({ outcome: 'client_error', status: 413 });
      expect(connections()).toBe(i);
    }
  });
});

describe('an idle connection', () => {
  test('that gets bytes is closed, so that they cannot pass as the response of the next delivery', async () => {
    let closed = 0;
    const { url, connections } = await start((socket, number) => {
      socket.on('data', () =>
        socket.write(OK, () => number === 1 && setTimeout(() => socket.write('HTTP/1.1 500 Smuggled\r\n\r\n'), 20)),
      );
      socket.on('close', () => closed++);
    });
    const sender = openSender();
    expect((await sendTo(sender, { url })).status).toBe(200);
    await until(() => closed === 1);
    expect((await sendTo(sender, { url })).status).toBe(200);
    expect(connections()).toBe(2);
  });

  test('is kept for at most 1,024 endpoints', async () => {
    let open = 0;
    const { url } = await start((socket) => {
      open++;
      socket.on('data', () => socket.write(OK));
      socket.on('close', () => open--);
    });
    const sender = openSender();
    for (let i = 0; i < 1_100; i++) await sendTo(sender, { url, id: `ep_${i}` });
    await until(() => open === 1_024);
  });
});

describe('a TLS endpoint', () => {
  test('that sends garbage or floods instead of a handshake fails the attempt', async () => {
    const flood = await start((socket) => socket.once('data', () => pour(socket, Buffer.alloc(65_536, 0x16))));
    const garbage = await start((socket) => socket.once('data', () => socket.write(Buffer.alloc(5_000, 0xff))));
    const reset = await start((socket) => socket.once('data', () => socket.resetAndDestroy()));
    for (const { url } of [flood, garbage, reset]) {
      const result = await sendTo(openSender(), { url: url.replace('http:', 'https:') });
      expect(result).toMatchObject({
        outcome: 'tls',
        isSent: false,
        detail: expect.stringMatching(/^the TLS handshake failed \([A-Z0-9_]+\)$/),
      });
    }
  });

  test('cannot put text of its certificate into the record of the attempt', async () => {
    const authority = makeAuthority(folder, 'ca');
    const pair = authority.issue('evil', 'DNS:secret-of-endpoint.example');
    const server = createTlsServer({ cert: readFileSync(pair.cert), key: readFileSync(pair.key) });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const { resolve } = toResolve({ 'acme.example': ['127.0.0.1'] });
    const sender = openSender({ resolve, ca: readFileSync(authority.ca, 'utf8') });
    const { detail } = await sendTo(sender, { url: `https://acme.example:${(server.address() as AddressInfo).port}/` });
    expect(detail).toBe('the TLS handshake failed (ERR_TLS_CERT_ALTNAME_INVALID)');
  });
});

test.each(['http', 'https'])(
  'an endpoint that reads nothing leaves no part of the request in the kernel, over %s',
  async (scheme) => {
    const authority = makeAuthority(folder, `ca-${scheme}`);
    const pair = authority.issue('unread', 'IP:127.0.0.1');
    let accepted: Socket | undefined;
    const keys = { cert: readFileSync(pair.cert), key: readFileSync(pair.key) };
    const server = scheme === 'http' ? createServer() : createRawTlsServer(keys);
    server.on(scheme === 'http' ? 'connection' : 'secureConnection', (socket: Socket) => {
      accepted = socket.pause();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const url = `${scheme}://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const body = Buffer.alloc(16 * 1_024 * 1_024);
    const sender = openSender({ ca: readFileSync(authority.ca, 'utf8') });
    const ended = sendTo(sender, { url, timeout: 300 }, { body });
    await until(() => accepted);
    const codes: unknown[] = [];
    accepted?.on('error', (error) => codes.push((error as NodeJS.ErrnoException).code));
    expect(await ended).toMatchObject({ outcome: 'timeout', isSent: true });
    accepted?.resume();
    await until(() => accepted?.destroyed === true);
    expect(codes).toEqual(['ECONNRESET']);
  },
);

test('any bytes, in any pieces, end the attempt, and only a valid status line gives it a status', async () => {
  const line = fc.constantFrom(
    ...['HTTP/1.1 200 OK', 'HTTP/1.1 500 Oops', 'HTTP/1.1 204 ', 'HTTP/1.0 201', 'HTTP/1.1 100 Continue', 'HTTP/2 200', '\0', ''],
    ...['Content-Length: 0', 'Content-Length: 3', 'Transfer-Encoding: chunked', 'Connection: close', 'Retry-After: 1', 'X: y'],
    ...['abc', '3', '0', 'zz'],
  );
  const piece = fc.oneof(
    fc.array(line, { maxLength: 5 }).map((lines) => `${lines.join('\r\n')}\r\n\r\n`),
    fc.string({ maxLength: 9 }),
  );
  let pieces: readonly string[] = [];
  const { url } = await start((socket) =>
    socket.on('data', () => {
      for (const each of pieces) socket.write(each, 'latin1');
      socket.end();
    }),
  );
  const sender = openSender();
  await fc.assert(
    fc.asyncProperty(fc.array(piece, { maxLength: 4 }), async (written) => {
      pieces = written;
      const { outcome, status, isSent } = await sendTo(sender, { url });
      expect(isSent).toBe(true);
      const all = written.join('');
      if (status === undefined) expect(['protocol', 'reset']).toContain(outcome);
      else expect(all).toMatch(new RegExp(`HTTP/1\\.[01] ${status}`));
    }),
    { numRuns: 1_000 },
  );
});

test('a thousand attempts at hostile endpoints at once leave no connection and no timer behind', async () => {
  const scripts: Script[] = [
    (socket) => socket.on('data', () => socket.resetAndDestroy()),
    answering('garbage\r\n\r\n'),
    answering(`${OK}${OK}`),
    (socket) => socket.resume(),
    answering(OK),
  ];
  let open = 0;
  const apps = await Promise.all(
    scripts.map((script) =>
      start((socket, number) => {
        open++;
        socket.on('close', () => open--);
        script(socket, number);
      }),
    ),
  );
  const sender = openSender();
  const results = await Promise.all(
    Array.from({ length: 1_000 }, (_, index) =>
      sendTo(sender, { url: apps[index % apps.length]?.url ?? '', id: `ep_${index}`, timeout: 5_000 }),
    ),
  );
  const counts: Record<string, number> = {};
  for (const { outcome } of results) counts[outcome] = (counts[outcome] ?? 0) + 1;
  expect(counts).toEqual({ reset: 200, protocol: 200, delivered: 400, timeout: 200 });
  sender.close();
  await until(() => open === 0);
});
