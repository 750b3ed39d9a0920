/** Requests and downloads that have ended: nothing refers to their memory, under the memory limit of the smallest container. */
import { connect as connectHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { makeAuthority, toTlsFiles } from '../support/certificates.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { toRoute, until } from '../support/gate.ts';
import { sendDelivery } from '../support/memory-attacks.ts';
import { type CgroupGate, type CgroupProcess, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import { sendSmallReview, startInjectorInCgroup } from '../support/memory-injector.ts';
import { PROXY_PASSWORD, PROXY_USER } from '../support/proxy.ts';
import { makeEntry } from '../support/users.ts';

const MEBIBYTES = 96;
/** Twice as many as killed a gate that kept them. */
const REQUESTS = 4_000;
const CLIENTS = 30;
/** Fields of almost the size that a head may have. */
const LARGE = `X: ${'y'.repeat(15_000)}`;
const DOWNLOADS = 2_000;
const SESSIONS = 10;
const STREAMS = 80;
const folder = useFolder();
const started: CgroupProcess[] = [];
afterEach(async () => {
  for (const running of started.splice(0)) await running.stop();
});
const app = useApp();

/** Requests that are rejected before they have a route, with a body that never comes. */
const REJECTED = {
  'an ambiguous path': ['port', 'POST /a%2f..%2fb HTTP/1.1', 'Host: a', 'Content-Length: 1'],
  'an expectation': ['port', 'POST / HTTP/1.1', 'Host: a', 'Content-Length: 1', 'Expect: a-miracle'],
  'two hosts': ['port', 'POST / HTTP/1.1', 'Host: a', 'Host: b', 'Content-Length: 131072'],
  'a chunked body': ['port', 'POST http:/// HTTP/1.1', 'Host: a', 'Transfer-Encoding: chunked'],
  'a target that is no proxy request': ['proxyPort', 'POST / HTTP/1.1', 'Host: a', 'Content-Length: 1'],
  'content with CONNECT': ['proxyPort', 'CONNECT a:443 HTTP/1.1', 'Host: a', 'Content-Length: 1'],
  'a caller that is not trusted': ['authzPort', 'POST / HTTP/1.1', 'Host: a', 'Content-Length: 1'],
} as const;

/** Opens connections one after the other, several at once, until `count` have ended. */
async function repeat(count: number, open: () => Socket, running: CgroupProcess): Promise<void> {
  let left = count;
  const work = async (): Promise<void> => {
    while (left-- > 0 && running.isAlive()) {
      const socket = open();
      socket.on('error', () => undefined);
      await new Promise((resolve) => socket.once('close', resolve));
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, work));
}

function expectAlive(running: CgroupProcess): void {
  expect({ alive: running.isAlive(), oomKills: running.oomKills() }).toEqual({ alive: true, oomKills: 0 });
}

async function untilNothingBuffered({ adminPort }: CgroupGate): Promise<void> {
  await until(async () => {
    const metrics = await fetch(`http://127.0.0.1:${adminPort}/metrics`);
    return /^sidegate_buffered_bytes 0$/m.test(await metrics.text());
  });
}

describe.skipIf(NO_CGROUPS !== undefined)(`with ${MEBIBYTES} MiB a gate keeps nothing`, () => {
  let gate: CgroupGate;
  beforeAll(async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    const routes = [toRoute(app.port), { name: 'open', match: { pathPrefix: '/open' }, upstream, allow: 'anyone' }];
    const basic = { realm: 'r', users: { file: 'users' } };
    const proxy = { address: '127.0.0.1:0', requireTls: false, basic, allow: ['a:443'] };
    const authz = { address: '127.0.0.1:0', trustedCallers: ['10.0.0.0/8'] };
    gate = await startGateInCgroup(MEBIBYTES, { routes, proxy, authz }, { users: makeEntry(PROXY_USER, PROXY_PASSWORD) });
  });
  afterAll(() => gate?.stop());

  const findPort = (key: string): number => Number(gate.log().find(({ msg }) => msg === 'listening')?.[key]);
  const expectNothingLeft = async (): Promise<void> => {
    expectAlive(gate);
    await untilNothingBuffered(gate);
    expect(await sendDelivery(gate.port, makeDelivery())).toBe(200);
  };

  test.each(Object.entries(REJECTED))('of requests that are rejected for %s', async (_name, [key, ...lines]) => {
    const port = findPort(key);
    const head = `${[...lines, LARGE].join('\r\n')}\r\n\r\n`;
    await repeat(
      REQUESTS,
      () => {
        const socket = connect(port, '127.0.0.1', () => socket.write(head));
        return socket.on('data', () => socket.destroy());
      },
      gate,
    );
    await expectNothingLeft();
  });

  test('of downloads that their clients abort', async () => {
    const piece = Buffer.alloc(256 * 1024);
    app.handler = (_request, response) => {
      app.received.length = 0;
      const send = (): void => {
        while (!response.destroyed && response.write(piece));
      };
      response.on('drain', send).on('error', () => undefined);
      send();
    };
    await repeat(
      DOWNLOADS,
      () => {
        let bytes = 0;
        const socket = connect(gate.port, '127.0.0.1', () => socket.write('GET /open HTTP/1.1\r\nHost: a\r\n\r\n'));
        return socket.on('data', (chunk) => {
          bytes += chunk.length;
          if (bytes > piece.length) socket.resetAndDestroy();
        });
      },
      gate,
    );
    app.handler = (_request, response) => response.end('handled');
    await expectNothingLeft();
  });
});

test.skipIf(NO_CGROUPS !== undefined)(`with ${MEBIBYTES} MiB an injector keeps nothing of requests that it rejects`, async () => {
  const injector = await startInjectorInCgroup(MEBIBYTES);
  started.push(injector);
  const head = `POST /nope HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n${LARGE}\r\n\r\n`;
  await repeat(
    REQUESTS,
    () => {
      const socket = connectTls({ port: injector.port, host: '127.0.0.1', rejectUnauthorized: false }, () => socket.write(head));
      return socket.on('data', () => socket.destroy());
    },
    injector,
  );
  expectAlive(injector);
  await expect.poll(() => sendSmallReview(injector.port)).toBe(200);
});

test.skipIf(NO_CGROUPS !== undefined)('a gate keeps nothing of HTTP/2 uploads that are rejected or cut off at once', async () => {
  const pair = makeAuthority(folder, 'root').issue('server', 'DNS:localhost');
  const tls = { certFile: 'tls.crt', keyFile: 'tls.key' };
  const routes = [{ name: 'open', match: { pathPrefix: '/open' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' }];
  const gate = await startGateInCgroup(MEBIBYTES, { routes, listen: { address: '127.0.0.1:0', tls } }, toTlsFiles(pair));
  started.push(gate);
  // Each session is ended once it has had too many rejected streams.
  for (let session = 0; session < SESSIONS; session++) {
    const client = connectHttp2(`https://127.0.0.1:${gate.port}`, { rejectUnauthorized: false });
    client.on('error', () => undefined);
    const streams = Array.from({ length: STREAMS }, (_, index) => {
      const path = index % 2 === 0 ? '/a%2f..%2fb' : '/open';
      const stream = client.request({ ':method': 'POST', ':path': path, 'content-length': 131_072 });
      stream.resume().on('error', () => undefined);
      stream.write('x');
      if (index % 3 === 0) setImmediate(() => stream.close(8));
      return stream;
    });
    setTimeout(() => client.destroy(), 100);
    await Promise.all(streams.map((stream) => new Promise((resolve) => stream.once('close', resolve))));
    client.destroy();
  }
  expectAlive(gate);
  await untilNothingBuffered(gate);
});
