/** What any exchange with an app must keep to, over apps that are scripts on a bare socket. */
import { createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import type { RawHeaders } from '../../src/core/headers.ts';
import type {
  Upstream,
  UpstreamExchange,
  UpstreamFailure,
  UpstreamOptions,
  UpstreamRequest,
} from '../../src/forward/upstream.ts';
import { FakeClock, settle } from '../support/fake-clock.ts';

/** Everything a listener heard. */
interface Heard {
  informations: [number, RawHeaders][];
  status?: number;
  statusText?: string;
  headers?: RawHeaders;
  content: Buffer;
  trailers?: RawHeaders;
  failure?: UpstreamFailure;
  exchange?: UpstreamExchange;
}

type Make = (options: UpstreamOptions, clock: Clock) => Upstream;

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** An app that runs a script on each connection. */
async function startScript(script: (socket: Socket, connection: number) => void): Promise<number> {
  let connections = 0;
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    script(socket, ++connections);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** An app that answers every complete request (all test requests fit one packet) with the same bytes. */
function answering(...pieces: string[]): (socket: Socket) => void {
  return (socket) => {
    socket.on('data', () => {
      for (const piece of pieces) socket.write(piece, 'latin1');
    });
  };
}

function toOptions(port: number, over: Partial<UpstreamOptions> = {}): UpstreamOptions {
  return {
    host: '127.0.0.1',
    port,
    connectTimeout: 1_000,
    answerTimeout: 5_000,
    idleTimeout: 4_000,
    maxConnections: 4,
    maxHeadBytes: 16_384,
    ...over,
  };
}

const GET: UpstreamRequest = { method: 'GET', path: '/', headers: ['Host', 'a'], body: Buffer.alloc(0), repeatable: true };
const POST: UpstreamRequest = {
  method: 'POST',
  path: '/',
  headers: ['Host', 'a', 'Content-Length', '2'],
  body: Buffer.from('{}'),
  repeatable: false,
};

function ask(upstream: Upstream, request: UpstreamRequest = GET, onStart?: (heard: Heard) => void): Promise<Heard> {
  return new Promise((resolve) => {
    const heard: Heard = { informations: [], content: Buffer.alloc(0) };
    heard.exchange = upstream.send(request, {
      onInformation: (status, headers) => void heard.informations.push([status, headers]),
      onHead: (status, statusText, headers) => void Object.assign(heard, { status, statusText, headers }),
      onData: (chunk) => {
        heard.content = Buffer.concat([heard.content, chunk]);
        return true;
      },
      onEnd: (trailers) => resolve(Object.assign(heard, { trailers })),
      onFailure: (failure) => resolve(Object.assign(heard, { failure })),
    });
    onStart?.(heard);
  });
}

/** The suite. */
export function describeUpstream(name: string, make: Make): void {
  function open(port: number, over: Partial<UpstreamOptions> = {}, clock: Clock = systemClock): Upstream {
    const upstream = make(toOptions(port, over), clock);
    closers.push(() => upstream.close());
    return upstream;
  }

  describe(`${name}: answers`, () => {
    const good: [string, string, UpstreamRequest, { status: number; content: string }][] = [
      ['with a length', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello', GET, { status: 200, content: 'hello' }],
      [
        'chunked',
        'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n',
        GET,
        { status: 200, content: 'hello world' },
      ],
      [
        'with chunk extensions',
        'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n',
        GET,
        { status: 200, content: 'hello' },
      ],
      ['without content', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n', GET, { status: 200, content: '' }],
      ['204', 'HTTP/1.1 204 No Content\r\n\r\n', GET, { status: 204, content: '' }],
      ['304 with a length', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n', GET, { status: 304, content: '' }],
      [
        'to HEAD, with a length and no content',
        'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n',
        { ...GET, method: 'HEAD' },
        { status: 200, content: '' },
      ],
      [
        'after 100 and 102',
        'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok',
        GET,
        { status: 200, content: 'ok' },
      ],
      ['without a reason phrase', 'HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok', GET, { status: 200, content: 'ok' }],
    ];
    test.each(good)('hears an answer %s, and uses the connection again', async (_title, bytes, request, expected) => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        answering(bytes)(socket);
      });
      const upstream = open(port);
      for (let i = 0; i < 2; i++) {
        const heard = await ask(upstream, request);
        expect({ status: heard.status, content: heard.content.toString(), failure: heard.failure }).toEqual({
          ...expected,
          failure: undefined,
        });
      }
      expect(connections).toBe(1);
    });

    test('hears header fields as they are: order, case, repetition, bytes', async () => {
      const port = await startScript(
        answering('HTTP/1.1 200 Fine thanks\r\nSet-Cookie: a=1\r\nX-Odd:  \xe9 \r\nset-cookie: b=2\r\nContent-Length: 0\r\n\r\n'),
      );
      const heard = await ask(open(port));
      expect(heard.statusText).toBe('Fine thanks');
      expect(heard.headers).toEqual(['Set-Cookie', 'a=1', 'X-Odd', '\xe9', 'set-cookie', 'b=2', 'Content-Length', '0']);
    });

    test('hears trailers and 103', async () => {
      const port = await startScript(
        answering(
          'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n',
        ),
      );
      const heard = await ask(open(port));
      expect(heard.informations).toEqual([[103, ['Link', '</a>']]]);
      expect(heard.trailers).toEqual(['X-Sum', '1']);
    });

    test('takes the close for the end where no length is given, and opens another connection', async () => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        socket.on('data', () => socket.end('HTTP/1.1 200 OK\r\n\r\nuntil close'));
      });
      const upstream = open(port);
      expect((await ask(upstream)).content.toString()).toBe('until close');
      expect((await ask(upstream)).content.toString()).toBe('until close');
      expect(connections).toBe(2);
    });

    test('does not use a connection again after Connection: close', async () => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        answering('HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')(socket);
      });
      const upstream = open(port);
      await ask(upstream);
      await ask(upstream);
      expect(connections).toBe(2);
    });

    test('hears an early answer of an app that never reads the request', async () => {
      const port = await startScript((socket) =>
        socket.write('HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n'),
      );
      const body = Buffer.alloc(300_000);
      const heard = await ask(open(port), { ...POST, headers: ['Host', 'a', 'Content-Length', String(body.length)], body });
      expect(heard.status).toBe(413);
    });

    test('writes each method and content exactly as it is framed', async () => {
      let seen = '';
      const port = await startScript((socket) => {
        socket.on('data', (chunk) => {
          seen += chunk.toString('latin1');
          socket.write('HTTP/1.1 204 No Content\r\n\r\n');
        });
      });
      const upstream = open(port);
      for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
        seen = '';
        await ask(upstream, { ...GET, method, path: '/a?b' });
        expect(seen).toBe(`${method} /a?b HTTP/1.1\r\nHost: a\r\n\r\n`);
        seen = '';
        await ask(upstream, { ...POST, method });
        expect(seen).toBe(`${method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}`);
      }
    });
  });

  describe(`${name}: failures`, () => {
    const truncated: [string, string][] = [
      ['before any byte', ''],
      ['within the head', 'HTTP/1.1 200 OK\r\nConte'],
      ['within content of a known length', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel'],
      ['within a chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel'],
      ['before the last chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n'],
      ['within the trailers', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-A: 1\r\n'],
    ];
    test.each(truncated)('are never a clean end: the app closes %s', async (_title, bytes) => {
      const port = await startScript((socket) => socket.on('data', () => socket.end(bytes)));
      expect((await ask(open(port), POST)).failure).toMatchObject({ kind: 'reset', nothingSent: false });
    });

    test('are never a clean end: the app resets where only its close could tell the end', async () => {
      const port = await startScript((socket) => {
        socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\n\r\nhalf', () => setImmediate(() => socket.resetAndDestroy())));
      });
      const heard = await ask(open(port), POST);
      expect(heard).toMatchObject({ status: 200, failure: { kind: 'reset', nothingSent: false } });
    });

    const malformed: [string, string][] = [
      ['no status line', 'hello\r\n\r\n'],
      ['another protocol', 'HTTP/2.0 200 OK\r\n\r\n'],
      ['a status of four digits', 'HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n'],
      ['a header line without colon', 'HTTP/1.1 200 OK\r\nnonsense\r\n\r\n'],
      ['a folded header line', 'HTTP/1.1 200 OK\r\nX-A: 1\r\n folded\r\nContent-Length: 0\r\n\r\n'],
      ['a space before the colon', 'HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n'],
      ['a NUL in a value', 'HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 0\r\n\r\n'],
      [
        'Content-Length beside Transfer-Encoding',
        'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      ],
      ['two Content-Length', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello'],
      ['a signed Content-Length', 'HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello'],
      ['a chunk size that is none', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n'],
      ['a chunk beyond its size', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n'],
      ['a switch of protocols', 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n'],
      ['a head beyond the limit', `HTTP/1.1 200 OK\r\nX-A: ${'x'.repeat(17_000)}\r\n\r\n`],
    ];
    test.each(malformed)('are a protocol failure: %s', async (_title, bytes) => {
      const port = await startScript(answering(bytes));
      expect((await ask(open(port), POST)).failure).toMatchObject({ kind: 'protocol', nothingSent: false });
    });

    test('say that nothing was sent where nobody listens', async () => {
      const port = await startScript(() => undefined);
      for (const close of closers.splice(0)) close();
      expect((await ask(open(port), POST)).failure).toMatchObject({ kind: 'connect', nothingSent: true });
    });

    test('are a timeout where the head, or more of the content, does not come in time', async () => {
      for (const bytes of ['', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe']) {
        const clock = new FakeClock();
        let isAsked = false;
        const port = await startScript((socket) => {
          socket.on('data', () => {
            isAsked = true;
            socket.write(bytes);
          });
        });
        const asked = ask(open(port, { answerTimeout: 5_000 }, clock), POST);
        await expect.poll(() => isAsked).toBe(true);
        await settle();
        await clock.advance(6_000);
        expect((await asked).failure).toMatchObject({ kind: 'timeout', nothingSent: false });
      }
    });
  });

  describe(`${name}: connections`, () => {
    test('that die on reuse before an answer fail what may not be repeated', async () => {
      let requests = 0;
      const port = await startScript((socket) => {
        socket.on('data', () => {
          if (++requests === 1) socket.write('HTTP/1.1 204 No Content\r\n\r\n');
          else socket.destroy();
        });
      });
      const upstream = open(port);
      await ask(upstream, POST);
      expect((await ask(upstream, POST)).failure).toMatchObject({ kind: 'reset', nothingSent: false });
      expect(requests).toBe(2);
    });

    test('that die on reuse before an answer are repeated once where that does no harm', async () => {
      let requests = 0;
      const port = await startScript((socket, connection) => {
        socket.on('data', () => {
          requests++;
          if (connection === 1 && requests > 1) socket.destroy();
          else socket.write('HTTP/1.1 204 No Content\r\n\r\n');
        });
      });
      const upstream = open(port);
      await ask(upstream);
      expect((await ask(upstream)).status).toBe(204);
      expect(requests).toBe(3);
    });

    test('that die on first use are not repeated', async () => {
      let requests = 0;
      const port = await startScript((socket) => {
        socket.on('data', () => {
          requests++;
          socket.destroy();
        });
      });
      expect((await ask(open(port))).failure).toMatchObject({ kind: 'reset' });
      expect(requests).toBe(1);
    });

    test('on which the app said more than was asked are not used again', async () => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        answering('HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison')(socket);
      });
      const upstream = open(port);
      for (let i = 0; i < 3; i++) expect((await ask(upstream)).status).toBe(204);
      expect(connections).toBe(3);
    });

    test('on which the app said more than was asked answer nobody who waits for a connection', async () => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        answering('HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison')(socket);
      });
      const upstream = open(port, { maxConnections: 1 });
      const heard = await Promise.all([ask(upstream), ask(upstream), ask(upstream)]);
      expect(heard.map(({ status, content }) => [status, content.toString()])).toEqual(Array(3).fill([204, '']));
      expect(connections).toBe(3);
    });

    test('are at most as many as allowed; the rest waits its turn', async () => {
      let open_ = 0;
      let most = 0;
      const port = await startScript((socket) => {
        most = Math.max(most, ++open_);
        socket.on('close', () => open_--);
        answering('HTTP/1.1 204 No Content\r\n\r\n')(socket);
      });
      const upstream = open(port, { maxConnections: 2 });
      const all = await Promise.all(Array.from({ length: 10 }, () => ask(upstream)));
      expect(all.map(({ status }) => status)).toEqual(Array(10).fill(204));
      expect(most).toBe(2);
    });

    test('tell the listener nothing more after an abort', async () => {
      let isAsked = false;
      const port = await startScript((socket) =>
        socket.on('data', () => {
          isAsked = true;
        }),
      );
      let calls = 0;
      const upstream = open(port);
      const exchange = upstream.send(POST, {
        onInformation: () => calls++,
        onHead: () => calls++,
        onData: () => ++calls > 0,
        onEnd: () => calls++,
        onFailure: () => calls++,
      });
      await expect.poll(() => isAsked).toBe(true);
      exchange.abort();
      await settle();
      expect(calls).toBe(0);
    });

    test('pause the app when the listener asks for it, and lose nothing', async () => {
      const content = Buffer.alloc(3_000_000, 'x');
      const port = await startScript((socket) => {
        socket.on('data', () => {
          socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${content.length}\r\n\r\n`);
          socket.write(content);
        });
      });
      let received = 0;
      await new Promise<void>((resolve, reject) => {
        const exchange: UpstreamExchange = open(port).send(GET, {
          onInformation: () => undefined,
          onHead: () => undefined,
          onData: (chunk) => {
            received += chunk.length;
            setImmediate(() => exchange.resume());
            return false;
          },
          onEnd: () => resolve(),
          onFailure: (failure) => reject(new Error(failure.detail)),
        });
      });
      expect(received).toBe(content.length);
    });
  });
}
