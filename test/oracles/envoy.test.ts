/** A real Envoy in front of a gate, with one HTTP/2 connection for all of its clients: none of them may harm the others. */
import { request as openRequest, type ServerResponse } from 'node:http';
import { connect as openHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { toTlsFiles } from '../support/certificates.ts';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp, useAuthority } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { findEnvoy, type Peer, startEnvoy } from '../support/peers.ts';

const PROGRAM = findEnvoy();
/** The other clients have other addresses. */
const HOSTILE = '127.0.0.66';
/** Honest deliveries that are in flight while the hostile client acts. */
const IN_FLIGHT = 20;
const MANY = 1_000;
const LARGE = Buffer.alloc(4_000_000, 'a');
/** Of huge responses: more than the default windows of Envoy's connection. */
const UNREAD = 8;
const HUGE = Buffer.alloc(40_000_000, 'a');

/** `startEnvoy` replaces the ports: its own, and the gate's. */
const RESOURCES = `
listeners:
- address: { socket_address: { address: 127.0.0.1, "port_value":8000 } }
  filter_chains:
  - filters:
    - name: envoy.filters.network.http_connection_manager
      typed_config:
        '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: front
        codec_type: AUTO
        use_remote_address: true
        max_request_headers_kb: 96
        http2_protocol_options: { max_concurrent_streams: 2000 }
        route_config:
          virtual_hosts:
          - { name: all, domains: ['*'], routes: [{ match: { prefix: / }, route: { cluster: gate, timeout: 0s } }] }
        http_filters:
        - name: envoy.filters.http.router
          typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
clusters:
- name: gate
  type: STATIC
  circuit_breakers: { thresholds: [{ max_requests: 5000, max_pending_requests: 5000 }] }
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      explicit_http_config:
        # As docs/fair-use.md says.
        http2_protocol_options: { initial_stream_window_size: 65536, initial_connection_window_size: 67108864 }
  transport_socket:
    name: envoy.transport_sockets.tls
    typed_config:
      '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
      common_tls_context: { alpn_protocols: [h2] }
  load_assignment:
    cluster_name: gate
    endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, "port_value":9091 } } } }] }]
`;

const app = useApp();
const authority = useAuthority();
const files = toTlsFiles(authority.issue('local', 'DNS:localhost,IP:127.0.0.1'));
/** None of the gate's timeouts ends what a client holds up. */
let clock: FakeClock;
let gate: TestGate;
let envoy: Peer;
const held: ServerResponse[] = [];
const sockets: Socket[] = [];

beforeEach(async () => {
  app.handler = ({ url }, response) => {
    if (url === '/open') response.end('handled');
    else if (url === '/large') response.end(LARGE);
    else if (url === '/huge') response.end(HUGE);
    else held.push(response);
  };
  const tls = { certFile: 'tls.crt', keyFile: 'tls.key' };
  const open = { name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
  const listen = { address: '127.0.0.1:0', tls, trustedProxies: ['127.0.0.1'] };
  clock = new FakeClock(Date.now());
  gate = await startGate({ listen, routes: [toRoute(app.port), open] }, clock, files);
  envoy = await startEnvoy(PROGRAM ?? '', RESOURCES, { authzPort: gate.port, appPort: app.port });
});
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  held.length = 0;
  await envoy.stop();
  const stopped = gate.stop();
  await clock.advance(60_000);
  await stopped;
});

async function deliver(): Promise<number> {
  return (await send(envoy.port, makeDelivery())).status;
}

/** A connection of the hostile client to Envoy. */
function openSocket(): Socket {
  const socket = connect({ port: envoy.port, host: '127.0.0.1', localAddress: HOSTILE }).on('error', () => undefined);
  sockets.push(socket);
  return socket;
}

/** Resolves with the status, or with undefined if Envoy closes the connection without one. */
function ask(path: string, headers: Readonly<Record<string, string>>): Promise<number | undefined> {
  return new Promise((resolve) => {
    const to = { host: '127.0.0.1', port: envoy.port, localAddress: HOSTILE, agent: false };
    const request = openRequest({ ...to, path, headers }, (response) => resolve(response.resume().statusCode));
    request.on('error', () => resolve(undefined)).end();
  });
}

/** Opens streams on one connection to Envoy; resolves once all of them have ended. */
function openStreams(count: number, path: string, isCancelled = false): Promise<void> {
  const session = openHttp2(`http://127.0.0.1:${envoy.port}`, { createConnection: openSocket }).on('error', () => undefined);
  const ended = Array.from({ length: count }, () => {
    const stream = session.request({ ':path': path });
    stream.on('error', () => undefined).resume();
    if (isCancelled) stream.once('ready', () => session.ping(() => stream.close()));
    return new Promise((resolve) => stream.once('close', resolve));
  });
  return Promise.all(ended).then(() => session.destroy());
}

async function repeat(count: number, atOnce: number, act: () => Promise<unknown>): Promise<void> {
  for (let i = 0; i < count; i += atOnce) await Promise.all(Array.from({ length: atOnce }, act));
}

/** Everything that one client may do through a proxy, and what it then has received. */
const ACTS: Readonly<Record<string, () => Promise<void>>> = {
  'cancels its requests': () => repeat(MANY / 50, 1, () => openStreams(50, '/open', true)),
  'sends many requests at once': () => openStreams(MANY, '/open'),
  'names invalid hosts': () => repeat(MANY, 10, () => ask('/open', { Host: 'a@b' })),
  'names ambiguous paths': () => repeat(MANY, 10, () => ask('/a%2f..%2fb%00', {})),
  'sends too many fields': () =>
    repeat(MANY, 10, () => ask('/open', Object.fromEntries(Array.from({ length: 99 }, (_, i) => [`x-${i}`, 'v'])))),
  'sends too large fields': () => repeat(100, 10, () => ask('/open', { 'X-Large': 'v'.repeat(60_000) })),
  'expects what nobody offers': () => repeat(MANY, 10, () => ask('/open', { Expect: '200-ok' })),
  'downloads large files': () => openStreams(50, '/large'),
  'does not read its responses': async () => {
    for (let i = 0; i < UNREAD; i++) openSocket().pause().write('GET /huge HTTP/1.1\r\nHost: a\r\n\r\n');
    await until(() => app.received.filter(({ url }) => url === '/huge').length === UNREAD);
    for (let i = 0; i < 100; i++) expect(await ask('/open', {})).toBe(200);
  },
  'does not end its uploads': async () => {
    for (let i = 0; i < 60; i++)
      openSocket().write(`POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n${'a'.repeat(50_000)}`);
  },
  'sends trailers': () =>
    repeat(100, 10, async () => {
      const socket = openSocket();
      socket.write('POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-A: b\r\n\r\n');
      await new Promise((resolve) => socket.once('data', resolve));
    }),
};

describe.runIf(PROGRAM)('deliveries of others pass Envoy while one of its clients', () => {
  test.each(Object.keys(ACTS))('%s', async (what) => {
    const deliveries = Array.from({ length: IN_FLIGHT }, deliver);
    await until(() => held.length === IN_FLIGHT);
    await ACTS[what]?.();
    deliveries.push(deliver());
    await until(() => held.length === deliveries.length);
    for (const response of held) response.end('handled');
    expect(await Promise.all(deliveries)).toEqual(Array<number>(deliveries.length).fill(200));
  });
});
