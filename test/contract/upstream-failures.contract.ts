/** How any exchange with an app must fail: never as a clean end, and exact about what was sent. */
import type { Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import type { UpstreamFailure } from '../../src/http/client/upstream.ts';
import { FakeClock, settle } from '../support/fake-clock.ts';
import { answering, startDeafApp } from '../support/script-app.ts';
import { ask, closeAfterTest, closeNow, type Heard, type Make, POST, startScript, toOpen } from './upstream-harness.ts';

/** The suite. */
export function describeUpstreamFailures(name: string, make: Make): void {
  const open = toOpen(make);

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

    test('are never a clean end: the app resets a response that only its close could end', async () => {
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
      ['a bare CR in a value', 'HTTP/1.1 200 OK\r\nX-A: a\rb\r\nContent-Length: 0\r\n\r\n'],
      ['a bare LF in a value', 'HTTP/1.1 200 OK\r\nX-A: a\nX-B: b\r\nContent-Length: 0\r\n\r\n'],
      ['a bare CR at the end of the head', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\r\n\r\n'],
      ['an empty name', 'HTTP/1.1 200 OK\r\n: 0\r\n\r\n'],
      ['a NUL in a value', 'HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 0\r\n\r\n'],
      [
        'both Content-Length and Transfer-Encoding',
        'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      ],
      ['two Content-Length', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello'],
      ['a signed Content-Length', 'HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello'],
      ['two Content-Length that agree', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello'],
      ['a list of Content-Length', 'HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello'],
      ['two codings', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
      ['a bare LF in a chunk line', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n'],
      ['a space behind a chunk size', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n'],
      ['a chunk size with a prefix', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n'],
      ['a chunk size that is none', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n'],
      ['a chunk beyond its size', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n'],
      ['a switch of protocols', 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n'],
      ['a head beyond the limit', `HTTP/1.1 200 OK\r\nX-A: ${'x'.repeat(17_000)}\r\n\r\n`],
    ];
    test.each(malformed)('are a protocol failure: %s', async (_title, bytes) => {
      const port = await startScript(answering(bytes));
      expect((await ask(open(port), POST)).failure).toMatchObject({ kind: 'protocol', nothingSent: false });
    });

    test('report that nothing was sent if nothing listens', async () => {
      const port = await startScript(() => undefined);
      closeNow();
      await settle();
      expect((await ask(open(port), POST)).failure).toMatchObject({ kind: 'connect', nothingSent: true });
    });

    test('report that nothing was sent if the name has no address', async () => {
      const upstream = open(9, { host: 'no-such-app.invalid' });
      expect((await ask(upstream, POST)).failure).toMatchObject({ kind: 'connect', nothingSent: true });
    });

    test('report that nothing was sent if connecting takes too long', async () => {
      const app = await startDeafApp();
      closeAfterTest(() => app.close());
      const clock = new FakeClock();
      const asked = ask(open(app.port, { connectTimeout: 1_000 }, clock), POST);
      await settle();
      await clock.advance(1_100);
      expect((await asked).failure).toMatchObject({ kind: 'connect', nothingSent: true });
    });

    test('are not prevented by a head that trickles: it must be complete in time', async () => {
      const clock = new FakeClock();
      let app: Socket | undefined;
      const port = await startScript((socket) =>
        socket.on('data', () => {
          app = socket;
        }),
      );
      const asked = ask(open(port, { responseTimeout: 5_000 }, clock), POST);
      await expect.poll(() => app !== undefined).toBe(true);
      for (const byte of 'HTTP/') {
        app?.write(byte);
        await settle();
        await clock.advance(1_100);
      }
      expect((await asked).failure).toMatchObject({ kind: 'timeout', nothingSent: false });
    });

    test('are not caused by a body that keeps arriving, however long it takes', async () => {
      const clock = new FakeClock();
      let app: Socket | undefined;
      const port = await startScript((socket) =>
        socket.on('data', () => {
          app = socket;
          socket.write('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n');
        }),
      );
      let heard: Heard | undefined;
      const asked = ask(open(port, { responseTimeout: 5_000 }, clock), POST, (started) => {
        heard = started;
      });
      await expect.poll(() => heard?.status).toBe(200);
      for (const byte of 'hello') {
        await clock.advance(4_000);
        const before = heard?.content.length ?? 0;
        app?.write(byte);
        await expect.poll(() => heard?.content.length).toBe(before + 1);
      }
      expect((await asked).content.toString()).toBe('hello');
    });

    test('are reported once if the listener throws, and the process keeps running', async () => {
      const port = await startScript(answering('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
      const failure = await new Promise<UpstreamFailure>((resolve, reject) => {
        open(port).send(POST, {
          onInformation: () => undefined,
          onHead() {
            throw new Error('a bug');
          },
          onData: () => undefined,
          onEnd: () => reject(new Error('ended')),
          onFailure: resolve,
        });
      });
      expect(failure).toEqual({ kind: 'protocol', nothingSent: false, detail: 'a bug' });
    });

    test('are a timeout if the head, or more of the body, does not arrive in time', async () => {
      for (const bytes of ['', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe']) {
        const clock = new FakeClock();
        let isAsked = false;
        const port = await startScript((socket) => {
          socket.on('data', () => {
            isAsked = true;
            socket.write(bytes);
          });
        });
        const asked = ask(open(port, { responseTimeout: 5_000 }, clock), POST);
        await expect.poll(() => isAsked).toBe(true);
        await settle();
        await clock.advance(6_000);
        expect((await asked).failure).toMatchObject({ kind: 'timeout', nothingSent: false });
      }
    });
  });
}
