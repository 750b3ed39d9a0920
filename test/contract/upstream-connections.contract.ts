/** What any exchange with an app must do about its connections. */
import type { Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import type { Clock } from '../../src/core/clock.ts';
import { ReadPause } from '../../src/core/reading.ts';
import type { UpstreamExchange, UpstreamFailure } from '../../src/http/client/upstream.ts';
import { FakeClock, settle } from '../support/fake-clock.ts';
import { makePauseOwner } from '../support/pauses.ts';
import { answering } from '../support/script-app.ts';
import { ask, GET, type Heard, type Make, POST, startScript, toOpen } from './upstream-harness.ts';

const EMPTY = 'HTTP/1.1 204 No Content\r\n\r\n';
/** Of an app that announces that it keeps the connection. */
const KEPT = 'HTTP/1.1 204 No Content\r\nKeep-Alive: timeout=60\r\n\r\n';

/** The suite. */
export function describeUpstreamConnections(name: string, make: Make): void {
  const open = toOpen(make);

  describe(`${name}: connections`, () => {
    /** After `act` on the app's side of an idle connection, the next request uses a new connection. */
    async function expectFresh(act: (socket: Socket) => unknown): Promise<void> {
      const sockets: Socket[] = [];
      const port = await startScript((socket, connection) => {
        sockets.push(socket);
        answering('HTTP/1.1 204 No Content\r\n\r\n')(socket, connection);
      });
      const upstream = open(port);
      await ask(upstream, POST);
      const [first] = sockets;
      const closed = new Promise((resolve) => first?.once('close', resolve));
      if (first !== undefined) act(first);
      await closed;
      await settle();
      expect((await ask(upstream, POST)).status).toBe(204);
      expect(sockets).toHaveLength(2);
    }

    /** An upstream whose app responds to the first request, and runs `die` at each later one. */
    async function openDying(die: (socket: Socket) => unknown) {
      let requests = 0;
      const port = await startScript((socket) => {
        socket.on('data', () => {
          if (++requests === 1) socket.write(KEPT);
          else die(socket);
        });
      });
      return { upstream: open(port), countRequests: () => requests };
    }

    test('that die on reuse before a response fail a request that must not be repeated', async () => {
      const { upstream, countRequests } = await openDying((socket) => socket.destroy());
      await ask(upstream, POST);
      expect((await ask(upstream, POST)).failure).toMatchObject({ kind: 'reset', nothingSent: false });
      expect(countRequests()).toBe(2);
    });

    test('that die on reuse before a response repeat a safe request once', async () => {
      let requests = 0;
      const port = await startScript((socket, connection) => {
        socket.on('data', () => {
          requests++;
          if (connection === 1 && requests > 1) socket.destroy();
          else socket.write(KEPT);
        });
      });
      const upstream = open(port);
      await ask(upstream);
      expect((await ask(upstream)).status).toBe(204);
      expect(requests).toBe(3);
    });

    test('that die on reuse again and again repeat a request only once', async () => {
      const { upstream, countRequests } = await openDying((socket) => socket.destroy());
      await ask(upstream);
      expect((await ask(upstream)).failure).toMatchObject({ kind: 'reset', nothingSent: false });
      expect(countRequests()).toBe(3);
    });

    test('that die on reuse after a byte of the response do not repeat the request', async () => {
      const { upstream, countRequests } = await openDying((socket) => socket.write('H', () => socket.destroy()));
      await ask(upstream);
      expect((await ask(upstream)).failure).toMatchObject({ kind: 'reset' });
      expect(countRequests()).toBe(2);
    });

    describe('to an app that does not announce that it keeps them', () => {
      /** An app that answers, and runs `then` after each response. */
      async function openSilent(then: (socket: Socket, connection: number) => void, limits: { maxConnections?: number } = {}) {
        const clock = new FakeClock();
        const used: number[] = [];
        const port = await startScript((socket, connection) => {
          socket.on('data', () => {
            // It reads nothing more once it has closed its side.
            if (socket.writableEnded) return;
            used.push(connection);
            socket.write(EMPTY);
            setImmediate(() => then(socket, connection));
          });
        });
        return { clock, used, upstream: open(port, limits, clock) };
      }
      const stay = (): void => undefined;

      test('lose no request if it closes each after its response', async () => {
        const { used, upstream } = await openSilent((socket) => socket.end());
        for (let i = 0; i < 20; i++) expect((await ask(upstream, POST)).status).toBe(204);
        expect(used).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
      });

      test('are used again once one has stayed open for a moment', async () => {
        const { clock, used, upstream } = await openSilent(stay);
        await ask(upstream, POST);
        await clock.advance(200);
        await ask(upstream, POST);
        await clock.advance(50);
        for (let i = 0; i < 3; i++) await ask(upstream, POST);
        expect(used).toEqual([1, 2, 2, 2, 2]);
      });

      test('serve a request that waits for one as soon as it has stayed open', async () => {
        const { clock, used, upstream } = await openSilent(stay, { maxConnections: 1 });
        await ask(upstream, POST);
        const waiting = ask(upstream, POST);
        await clock.advance(200);
        expect(used).toEqual([1]);
        await clock.advance(50);
        expect((await waiting).status).toBe(204);
        expect(used).toEqual([1, 1]);
      });

      test('are used once again if it begins to close each, as after a change of the app', async () => {
        let closes = false;
        const { clock, used, upstream } = await openSilent((socket) => void (closes && socket.end()));
        await ask(upstream, POST);
        await clock.advance(250);
        await ask(upstream, POST);
        expect(used).toEqual([1, 1]);
        await clock.advance(4_100);
        closes = true;
        await ask(upstream, POST);
        await expect.poll(() => clock.timers).toBe(0);
        for (let i = 0; i < 3; i++) expect((await ask(upstream, POST)).status).toBe(204);
        expect(used).toEqual([1, 1, 2, 3, 4, 5]);
      });

      test('need more time as proof after one that was too short', async () => {
        const sockets: Socket[] = [];
        const { clock, used, upstream } = await openSilent((socket) => void sockets.push(socket));
        await ask(upstream, POST);
        await clock.advance(250);
        const closed = new Promise((resolve) => sockets[0]?.once('close', resolve));
        sockets[0]?.end();
        await closed;
        await expect.poll(() => clock.timers).toBe(0);
        await ask(upstream, POST);
        await clock.advance(250);
        await ask(upstream, POST);
        await clock.advance(200);
        await ask(upstream, POST);
        expect(used).toEqual([1, 2, 3, 3]);
      });

      test('are soon used again after restarts of an app that keeps them, however many', async () => {
        const sockets: Socket[] = [];
        const { clock, used, upstream } = await openSilent((socket) => void sockets.push(socket));
        for (let restart = 0; restart < 8; restart++) {
          await ask(upstream, POST);
          await clock.advance(250);
          await ask(upstream, POST);
          // A second connection, which serves one request.
          await Promise.all([ask(upstream, POST), ask(upstream, POST)]);
          for (const socket of sockets.splice(0)) socket.end();
          await expect.poll(() => clock.timers).toBe(0);
        }
        used.length = 0;
        await ask(upstream, POST);
        await clock.advance(250);
        for (let i = 0; i < 3; i++) await ask(upstream, POST);
        expect(new Set(used).size).toBe(1);
      });

      test('occupy no places while they may not be used: one is kept as the proof', async () => {
        const { clock, used, upstream } = await openSilent(stay, { maxConnections: 3 });
        for (let i = 0; i < 10; i++) expect((await ask(upstream, POST)).status).toBe(204);
        await Promise.all(Array.from({ length: 10 }, async () => expect((await ask(upstream, POST)).status).toBe(204)));
        expect(new Set(used).size).toBe(20);
        await clock.advance(250);
        await ask(upstream, POST);
        expect(new Set(used).size).toBe(20);
      });

      test('serve a request that waits as soon as the app announces that it keeps them', async () => {
        const used: number[] = [];
        let second: Socket | undefined;
        const port = await startScript((socket, connection) => {
          socket.on('data', () => {
            used.push(connection);
            if (connection === 1) socket.write(EMPTY);
            else if (second === undefined) second = socket;
            else socket.write(EMPTY);
          });
        });
        const clock = new FakeClock();
        const upstream = open(port, { maxConnections: 2 }, clock);
        await ask(upstream, POST);
        const held = ask(upstream, POST);
        await expect.poll(() => second !== undefined).toBe(true);
        const waiting = [ask(upstream, POST), ask(upstream, POST)];
        second?.write(KEPT.slice(0, -2));
        await settle();
        second?.write('\r\n');
        expect((await held).status).toBe(204);
        await clock.advance(50);
        for (const answer of waiting) expect((await answer).status).toBe(204);
        expect(used.toSorted()).toEqual([1, 1, 2, 2]);
      });

      test('are used again after one whose idle time is over', async () => {
        const { clock, used, upstream } = await openSilent(stay);
        await ask(upstream, POST);
        await clock.advance(60_000);
        for (let i = 0; i < 2; i++) await ask(upstream, POST);
        expect(used).toEqual([1, 2, 2]);
      });
    });

    test('that the app closed while idle are not reused', async () => {
      await expectFresh((socket) => socket.end());
    });

    test('on which the app sends something while idle are not reused', async () => {
      await expectFresh((socket) => socket.write('HTTP/1.1 408 Request Timeout\r\n\r\n'));
    });

    const idle: [string, string, number, number][] = [
      ['within the time that is set', '', 3_900, 1],
      ['beyond the time that is set', '', 4_100, 2],
      ['within a shorter time that the app says, less a margin', 'Keep-Alive: timeout=3\r\n', 1_900, 1],
      ['beyond a shorter time that the app says, less a margin', 'Keep-Alive: timeout=3\r\n', 2_100, 2],
      ['beyond half of a very short time that the app says', 'Keep-Alive: timeout=1\r\n', 600, 2],
      ['beyond the time that is set, though the app allows more', 'Keep-Alive: timeout=60\r\n', 4_100, 2],
    ];
    test.each(idle)('idle %s', async (_title, hint, pause, expected) => {
      const clock = new FakeClock();
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        answering(`HTTP/1.1 200 OK\r\n${hint}Content-Length: 0\r\n\r\n`)(socket, connection);
      });
      const upstream = open(port, { idleTimeout: 4_000 }, clock);
      await ask(upstream);
      await clock.advance(pause);
      await ask(upstream);
      expect(connections).toBe(expected);
    });

    test('idle too long are not reused even if the process was too busy to notice', async () => {
      let monotonic = 0;
      const clock: Clock = {
        now: () => 0,
        monotonic: () => monotonic,
        after: () => () => undefined,
        every: () => () => undefined,
      };
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        answering('HTTP/1.1 204 No Content\r\n\r\n')(socket, connection);
      });
      const upstream = open(port, { idleTimeout: 4_000 }, clock);
      await ask(upstream);
      monotonic = 4_000;
      await ask(upstream);
      expect(connections).toBe(2);
    });

    test('leave no timer when they are closed', async () => {
      const clock = new FakeClock();
      const port = await startScript(answering('HTTP/1.1 204 No Content\r\n\r\n'));
      const upstream = open(port, {}, clock);
      await ask(upstream);
      await clock.advance(4_100);
      expect(clock.timers).toBe(0);
    });

    test('keep a request waiting no longer than the response timeout, and then nothing was sent', async () => {
      const clock = new FakeClock();
      let app: Socket | undefined;
      let requests = 0;
      const port = await startScript((socket) =>
        socket.on('data', () => {
          requests++;
          app = socket;
          socket.write('HTTP/1.1 200 OK\r\nKeep-Alive: timeout=60\r\nContent-Length: 3\r\n\r\n1');
        }),
      );
      const upstream = open(port, { maxConnections: 1, responseTimeout: 5_000 }, clock);
      let heard: Heard | undefined;
      const first = ask(upstream, POST, (started) => {
        heard = started;
      });
      await expect.poll(() => heard?.content.toString()).toBe('1');
      const second = ask(upstream, POST);
      await clock.advance(3_000);
      app?.write('2');
      await expect.poll(() => heard?.content.toString()).toBe('12');
      const third = ask(upstream, POST);
      await clock.advance(2_000);
      expect((await second).failure).toMatchObject({ kind: 'timeout', nothingSent: true });
      app?.write('3');
      expect((await first).content.toString()).toBe('123');
      await expect.poll(() => requests).toBe(2);
      app?.write('23');
      expect((await third).content.toString()).toBe('123');
    });

    test('are closed by close() when they are done, and the response in flight is complete', async () => {
      const clock = new FakeClock();
      let app: Socket | undefined;
      const port = await startScript((socket) =>
        socket.on('data', () => {
          app = socket;
          socket.write('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel');
        }),
      );
      const upstream = open(port, {}, clock);
      let heard: Heard | undefined;
      const asked = ask(upstream, POST, (started) => {
        heard = started;
      });
      await expect.poll(() => heard?.content.toString()).toBe('hel');
      upstream.close();
      const closed = new Promise((resolve) => app?.once('close', resolve));
      app?.write('lo');
      expect((await asked).content.toString()).toBe('hello');
      await closed;
    });

    test('are closed at once by close() while idle, and by destroy() while busy, without a call to the listener', async () => {
      let closed = 0;
      let opened = 0;
      let silent = false;
      const port = await startScript((socket, connection) => {
        opened = connection;
        socket.on('close', () => closed++);
        socket.on('data', () => (silent ? undefined : socket.write('HTTP/1.1 204 No Content\r\n\r\n')));
      });
      const upstream = open(port, { maxConnections: 1 });
      await ask(upstream);
      upstream.close();
      await expect.poll(() => closed).toBe(1);
      silent = true;
      let calls = 0;
      const count = (): undefined => void calls++;
      const listener = { onInformation: count, onHead: count, onData: count, onEnd: count, onFailure: count };
      for (let i = 0; i < 2; i++) upstream.send(POST, listener);
      await expect.poll(() => opened).toBe(2);
      upstream.destroy();
      await expect.poll(() => closed).toBe(2);
      await settle();
      expect([calls, opened]).toEqual([0, 2]);
    });

    test('that die on first use do not repeat the request', async () => {
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

    test('on which the app sent more than one response are not reused', async () => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        answering('HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison')(socket, connection);
      });
      const upstream = open(port);
      for (let i = 0; i < 3; i++) expect((await ask(upstream)).status).toBe(204);
      expect(connections).toBe(3);
    });

    test('on which the app sent more than one response do not serve a waiting request', async () => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        answering('HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison')(socket, connection);
      });
      const upstream = open(port, { maxConnections: 1 });
      const heard = await Promise.all([ask(upstream), ask(upstream), ask(upstream)]);
      expect(heard.map(({ status, content }) => [status, content.toString()])).toEqual(Array(3).fill([204, '']));
      expect(connections).toBe(3);
    });

    test('with a request that the app has not read to its end are not reused', async () => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        socket.write('HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n');
      });
      const upstream = open(port);
      const body = Buffer.alloc(20_000_000);
      const large = { ...POST, headers: ['Host', 'a', 'Content-Length', String(body.length)], body };
      for (const expected of [1, 2]) {
        expect((await ask(upstream, large)).status).toBe(413);
        expect(connections).toBe(expected);
      }
    });

    test('on which an exchange was aborted during its response are not reused', async () => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        answering('HTTP/1.1 200 OK\r\nKeep-Alive: timeout=60\r\nContent-Length: 2\r\n\r\nok')(socket, connection);
      });
      const upstream = open(port);
      await new Promise<void>((resolve, reject) => {
        const exchange: UpstreamExchange = upstream.send(GET, {
          onInformation: () => undefined,
          onHead() {
            exchange.abort();
            setImmediate(resolve);
          },
          onData: () => undefined,
          onEnd: () => reject(new Error('ended')),
          onFailure: () => reject(new Error('failed')),
        });
      });
      expect((await ask(upstream)).content.toString()).toBe('ok');
      expect(connections).toBe(2);
    });

    test('that die on reuse are replaced one by one, although others wait', async () => {
      let openNow = 0;
      let most = 0;
      const port = await startScript((socket, connection) => {
        openNow++;
        let requests = 0;
        socket.on('close', () => openNow--);
        socket.on('data', () => {
          most = Math.max(most, openNow);
          if (connection === 1 && ++requests === 2) socket.destroy();
          else socket.write('HTTP/1.1 204 No Content\r\n\r\n');
        });
      });
      const upstream = open(port, { maxConnections: 1 });
      await ask(upstream);
      const heard = await Promise.all([ask(upstream), ask(upstream), ask(upstream)]);
      expect(heard.map(({ status }) => status)).toEqual([204, 204, 204]);
      expect(most).toBe(1);
    });

    test('do not exceed their maximum; other requests wait in order', async () => {
      let open_ = 0;
      let most = 0;
      const port = await startScript((socket, connection) => {
        most = Math.max(most, ++open_);
        socket.on('close', () => open_--);
        answering(KEPT)(socket, connection);
      });
      const upstream = open(port, { maxConnections: 2 });
      const all = await Promise.all(Array.from({ length: 10 }, () => ask(upstream)));
      expect(all.map(({ status }) => status)).toEqual(Array(10).fill(204));
      expect(most).toBe(2);
    });

    test('do not call the listener after an abort', async () => {
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
        onData: () => void calls++,
        onEnd: () => calls++,
        onFailure: () => calls++,
      });
      await expect.poll(() => isAsked).toBe(true);
      exchange.abort();
      await settle();
      expect(calls).toBe(0);
    });

    test('are not opened for a request that is aborted while it waits', async () => {
      let requests = 0;
      let app: Socket | undefined;
      const port = await startScript((socket) =>
        socket.on('data', () => {
          requests++;
          app = socket;
        }),
      );
      const upstream = open(port, { maxConnections: 1 });
      const first = ask(upstream, POST);
      let waiting: UpstreamExchange | undefined;
      void ask(upstream, POST, (heard) => {
        waiting = heard.exchange;
      });
      await expect.poll(() => requests).toBe(1);
      waiting?.abort();
      app?.write('HTTP/1.1 204 No Content\r\n\r\n');
      await first;
      await settle();
      expect(requests).toBe(1);
    });

    test('wait for a paused listener until its own deadline, and deliver the rest afterwards', async () => {
      const clock = new FakeClock();
      const chunk = '5\r\nhello\r\n';
      const port = await startScript(answering(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunk.repeat(3)}`));
      let received = '';
      let failure: UpstreamFailure | undefined;
      const pause = new ReadPause(makePauseOwner(clock), 0, 120_000, () => undefined);
      open(port, { responseTimeout: 5_000 }, clock).send(GET, {
        onInformation: () => undefined,
        onHead: () => undefined,
        onData(bytes) {
          received += bytes.toString();
          return pause;
        },
        onEnd: () => undefined,
        onFailure(told) {
          failure = told;
        },
      });
      await expect.poll(() => received).toBe('hellohellohello');
      await clock.advance(60_000);
      expect(failure).toBeUndefined();
      await clock.advance(60_000);
      expect(pause.isOver).toBe(true);
      await clock.advance(5_100);
      expect(failure).toMatchObject({ kind: 'timeout' });
    });

    test('are reused after a response that ended while the listener was paused', async () => {
      let connections = 0;
      const port = await startScript((socket, connection) => {
        connections = connection;
        answering('HTTP/1.1 200 OK\r\nKeep-Alive: timeout=60\r\nContent-Length: 2\r\n\r\nok')(socket, connection);
      });
      const upstream = open(port);
      await new Promise<void>((resolve) => {
        upstream.send(GET, {
          onInformation: () => undefined,
          onHead: () => undefined,
          onData: () => new ReadPause(makePauseOwner(), 0, 60_000, () => undefined),
          onEnd: () => resolve(),
          onFailure: () => undefined,
        });
      });
      expect((await ask(upstream)).content.toString()).toBe('ok');
      expect(connections).toBe(1);
    });

    test('find an app that listens on one address of several', async () => {
      const port = await startScript(answering('HTTP/1.1 204 No Content\r\n\r\n'));
      expect((await ask(open(port, { host: 'localhost' }))).status).toBe(204);
    });

    test('carry a body of 300 KB byte for byte, and a response that arrives byte by byte', async () => {
      const body = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7) & 0xff));
      const answer = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-A: 1\r\n\r\n';
      let seen = Buffer.alloc(0);
      const port = await startScript((socket) => {
        socket.on('data', (chunk: Buffer) => {
          seen = Buffer.concat([seen, chunk]);
          if (seen.subarray(-body.length).equals(body)) for (const byte of answer) socket.write(byte);
        });
      });
      const heard = await ask(open(port), { ...POST, headers: ['Host', 'a', 'Content-Length', String(body.length)], body });
      expect(heard.content.toString()).toBe('hello');
      expect(heard.trailers).toEqual(['X-A', '1']);
      expect(seen.indexOf('\r\n\r\n') + 4 + body.length).toBe(seen.length);
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
        open(port).send(GET, {
          onInformation: () => undefined,
          onHead: () => undefined,
          onData: (chunk) => {
            received += chunk.length;
            const pause = new ReadPause(makePauseOwner(), 0, 60_000, () => undefined);
            setImmediate(() => pause.end());
            return pause;
          },
          onEnd: () => resolve(),
          onFailure: (failure) => reject(new Error(failure.detail)),
        });
      });
      expect(received).toBe(content.length);
    });
  });
}
