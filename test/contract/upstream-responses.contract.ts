/** What any exchange with an app must read of its responses, and write of its requests. */
import { describe, expect, test } from 'vitest';
import type { UpstreamRequest } from '../../src/http/client/upstream.ts';
import { answering } from '../support/script-app.ts';
import { ask, GET, type Make, POST, startScript, toOpen } from './upstream-harness.ts';

/** Of one byte: a megabyte with their framing. */
const SMALL_CHUNKS = 170_000;
/** In bytes; more than one read has of these. */
const MAX_READ = 12_000;

/** The suite. */
export function describeUpstreamResponses(name: string, make: Make): void {
  const open = toOpen(make);

  describe(`${name}: responses`, () => {
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
    test.each(good)('reads a response %s, and reuses the connection', async (_title, bytes, request, expected) => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        answering(bytes.replace(/HTTP\/1\.1 [2-5].*\r\n/, '$&Keep-Alive: timeout=60\r\n'))(socket, connection);
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

    test('reads small chunks a part in each turn of the event loop, and passes on all of them', async () => {
      const content = '1\r\nx\r\n'.repeat(SMALL_CHUNKS);
      const answer = answering(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${content}0\r\n\r\n`);
      const port = await startScript(answer);
      const ofTurns = [0];
      const countTurns = (): void => {
        ofTurns.push(0);
        timer = setImmediate(countTurns);
      };
      let timer = setImmediate(countTurns);
      await new Promise<void>((resolve, reject) => {
        open(port).send(GET, {
          onInformation: () => undefined,
          onHead: () => undefined,
          onData: (chunk) => {
            ofTurns[ofTurns.length - 1] = (ofTurns.at(-1) ?? 0) + chunk.length;
            return undefined;
          },
          onEnd: () => resolve(),
          onFailure: reject,
        });
      });
      clearImmediate(timer);
      expect(ofTurns.reduce((sum, bytes) => sum + bytes)).toBe(SMALL_CHUNKS);
      expect(Math.max(...ofTurns)).toBeLessThan(MAX_READ);
    });

    test('reads header fields unchanged: order, case, repetition, bytes', async () => {
      const port = await startScript(
        answering('HTTP/1.1 200 Fine thanks\r\nSet-Cookie: a=1\r\nX-Odd:  \xe9 \r\nset-cookie: b=2\r\nContent-Length: 0\r\n\r\n'),
      );
      const heard = await ask(open(port));
      expect(heard.statusText).toBe('Fine thanks');
      expect(heard.headers).toEqual(['Set-Cookie', 'a=1', 'X-Odd', '\xe9', 'set-cookie', 'b=2', 'Content-Length', '0']);
    });

    test('reads trailers and 103', async () => {
      const port = await startScript(
        answering(
          'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n',
        ),
      );
      const heard = await ask(open(port));
      expect(heard.informations).toEqual([[103, ['Link', '</a>']]]);
      expect(heard.trailers).toEqual(['X-Sum', '1']);
    });

    test('takes the close for the end if there is no length, and opens another connection', async () => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        socket.on('data', () => socket.end('HTTP/1.1 200 OK\r\n\r\nuntil close'));
      });
      const upstream = open(port);
      expect((await ask(upstream, POST)).content.toString()).toBe('until close');
      expect((await ask(upstream, POST)).content.toString()).toBe('until close');
      expect(connections).toBe(2);
    });

    test('does not reuse a connection after Connection: close', async () => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        answering('HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')(socket, connection);
      });
      const upstream = open(port);
      await ask(upstream);
      await ask(upstream);
      expect(connections).toBe(2);
    });

    test('reads an early response of an app that never reads the request', async () => {
      const port = await startScript((socket) =>
        socket.write('HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n'),
      );
      const body = Buffer.alloc(300_000);
      const heard = await ask(open(port), { ...POST, headers: ['Host', 'a', 'Content-Length', String(body.length)], body });
      expect(heard.status).toBe(413);
    });

    test('writes each method and body exactly as it is framed', async () => {
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
}
