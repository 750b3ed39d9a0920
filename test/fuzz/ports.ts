/** The targets that are ports of a running gate. */
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { isDeepStrictEqual } from 'node:util';
import { parseProxyHeader } from '../../src/http/server/client-address.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { FLAG, FRAME, toBlock, toFrame } from '../support/h2-frames.ts';
import type { Target } from './guided.ts';
import { type NodeMessage, readByNode } from './parsers/node-parser.ts';
import { PROXY_HEADER } from './parsers/proxy-header.ts';
import { REQUEST_HEAD } from './parsers/request-head.ts';
import { RESPONSE } from './parsers/response.ts';
import { BALANCER, checkResponses, exchange, type FuzzedGate } from './ports/fuzzed-gate.ts';
import { readStrictly } from './strict-reader.ts';

const PREFACE = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), toFrame(FRAME.settings, 0, 0)]);
const FRAME_HEAD_BYTES = 9;
const PIPELINED = Buffer.concat(REQUEST_HEAD.seeds);
const CHUNKED = Buffer.from(
  'POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nX-A: b\r\n\r\n',
);
const HAS_HEAD = /HEAD|CONNECT/;

/** Ends the connection, unless the input before it is incomplete. */
const LAST = Buffer.from('GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
const IDLE_MS = 25;

/** Each with the number of inputs that CI runs. */
export function toPorts(gate: FuzzedGate): readonly { readonly target: Target; readonly inputs: number }[] {
  return [
    { target: toHttp1Port(gate), inputs: 500 },
    { target: toBalancedPort(gate), inputs: 500 },
    { target: toHostileApp(gate), inputs: 500 },
    { target: toHttp2Port(gate), inputs: 500 },
    { target: toProviderApi(gate), inputs: 500 },
  ];
}

/** Each request that the app gets is one that the client sent, in the order of the client. */
function checkForwarded(sent: string, received: readonly string[]): void {
  const own = readStrictly(sent);
  let at = 0;
  for (const { method, target } of received.flatMap(readStrictly)) {
    while (at < own.length && !isDeepStrictEqual([own[at]?.method, own[at]?.target], [method, target])) at++;
    if (at++ === own.length) throw new Error(`the app got ${method} ${target}, which is not a request of the client`);
  }
}

function toHttp1Port(gate: FuzzedGate): Target {
  const { headers, body } = makeDelivery();
  const fields = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const head = `POST /hooks/billing HTTP/1.1\r\nHost: a\r\n${fields.join('')}Content-Length: ${body.length}\r\n\r\n`;
  return {
    ...REQUEST_HEAD,
    name: 'http1-port',
    seeds: [...REQUEST_HEAD.seeds, PIPELINED, CHUNKED, Buffer.concat([Buffer.from(head), body])],
    async check(input) {
      gate.takeReceived();
      const sent = Buffer.concat([input, LAST]);
      const bytes = await exchange(connect(gate.clear.port, '127.0.0.1'), sent, IDLE_MS);
      const text = sent.toString('latin1');
      if (!HAS_HEAD.test(text)) checkResponses(bytes);
      checkForwarded(text, gate.takeReceived());
      await gate.expectHealth();
    },
  };
}

function toBalancedPort(gate: FuzzedGate): Target {
  return {
    ...PROXY_HEADER,
    name: 'balanced-port',
    seeds: PROXY_HEADER.seeds.map((header) => Buffer.concat([header, CHUNKED])),
    async check(input) {
      gate.takeReceived();
      const socket = connect({ port: gate.clear.port, host: '127.0.0.1', localAddress: BALANCER });
      const sent = Buffer.concat([input, LAST]);
      checkResponses(await exchange(socket, sent, IDLE_MS));
      const header = parseProxyHeader(sent);
      checkForwarded(header.kind === 'parsed' ? sent.toString('latin1', header.length) : '', gate.takeReceived());
      await gate.expectHealth();
    },
  };
}

/** llhttp reads nothing behind one with `Connection: close`, which applies to the final response (RFC 9112 §9.6). */
const INFORMATIONAL = /^(?:HTTP\/1\.[01] 1(?!01)\d\d .*\r\n(?:.+\r\n)*\r\n)+/;

function toLength(pattern: RegExp, input: Uint8Array): number {
  return pattern.exec(Buffer.from(input).toString('latin1'))?.[0].length ?? 0;
}

/** The client gets what llhttp reads from the app, a 502, or, if the app's response breaks off, a connection that does so, too. */
function toHostileApp(gate: FuzzedGate): Target {
  const request = Buffer.from('GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  return {
    ...RESPONSE,
    name: 'hostile-app',
    async check(input) {
      const { response } = gate;
      gate.response = Buffer.from(input);
      const bytes = await exchange(connect(gate.clear.port, '127.0.0.1'), request);
      gate.response = response;
      const isFinal = ({ status = 0 }: NodeMessage): boolean => status >= 200;
      const read = (from: Buffer): NodeMessage | undefined => readByNode(from, 'RESPONSE').messages.find(isFinal);
      const own = read(bytes);
      const second = read(Buffer.from(input)) ?? read(Buffer.from(input).subarray(toLength(INFORMATIONAL, input)));
      if (own?.status === 502) checkResponses(bytes);
      else if (own === undefined ? second?.isComplete === true : !isPartOf(own, second))
        throw new Error(`the client got ${JSON.stringify(own)}, and llhttp reads ${JSON.stringify(second)}`);
      await gate.expectHealth();
    },
  };
}

function isPartOf(own: NodeMessage, whole: NodeMessage | undefined): boolean {
  if (whole === undefined || own.status !== whole.status) return false;
  return own.isComplete ? own.body === whole.body : whole.body.startsWith(own.body);
}

function toHttp2Port(gate: FuzzedGate): Target {
  const fields = [
    [':method', 'POST'],
    [':scheme', 'https'],
    [':path', '/x'],
    [':authority', 'localhost'],
    ['te', 'trailers'],
  ] as const;
  const block = toBlock(fields);
  const head = (flags: number, stream: number): Buffer => toFrame(FRAME.headers, flags, stream, block);
  const data = (flags: number, stream: number): Buffer => toFrame(FRAME.data, flags, stream, Buffer.from('ok'));
  const half = block.length >> 1;
  const number = (value: number): Buffer => Buffer.from([value >> 24, value >> 16, value >> 8, value]);
  const frames = [
    head(FLAG.endHeaders | FLAG.endStream, 1),
    Buffer.concat([head(FLAG.endHeaders, 1), data(0, 1), data(FLAG.endStream, 1)]),
    Buffer.concat([
      toFrame(FRAME.headers, FLAG.endStream, 1, block.subarray(0, half)),
      toFrame(FRAME.continuation, FLAG.endHeaders, 1, block.subarray(half)),
    ]),
    Buffer.concat([
      head(FLAG.endHeaders, 1),
      data(0, 1),
      toFrame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, 1, toBlock([['x-a', 'b']])),
    ]),
    Buffer.concat([
      head(FLAG.endHeaders | FLAG.endStream, 1),
      head(FLAG.endHeaders | FLAG.endStream, 3),
      toFrame(FRAME.rstStream, 0, 1, number(8)),
    ]),
    Buffer.concat([
      toFrame(FRAME.ping, 0, 0, Buffer.alloc(8)),
      toFrame(FRAME.windowUpdate, 0, 0, number(1)),
      head(FLAG.endHeaders | FLAG.endStream, 1),
    ]),
    Buffer.concat([
      toFrame(FRAME.settings, 0, 0, Buffer.from([0, 4, 0, 0, 0, 0])),
      head(FLAG.endHeaders | FLAG.endStream, 1),
      toFrame(FRAME.goaway, 0, 0, Buffer.alloc(8)),
    ]),
  ];
  return {
    name: 'http2-port',
    seeds: frames,
    pieces: [
      ...frames,
      data(0, 1),
      toFrame(2, 0, 1, Buffer.alloc(5)),
      toFrame(5, 4, 1, Buffer.alloc(4)),
      toFrame(FRAME.settings, 0, 0, Buffer.from([0, 1, 0, 0, 0, 0])),
    ].map((frame) => frame.toString('latin1')),
    async check(input) {
      gate.takeReceived();
      const options = {
        port: gate.tls.port,
        host: '127.0.0.1',
        servername: 'localhost',
        ca: readFileSync(gate.ca),
        ALPNProtocols: ['h2'],
      };
      const bytes = await exchange(connectTls(options), Buffer.concat([PREFACE, input]), IDLE_MS);
      let at = 0;
      while (at + FRAME_HEAD_BYTES <= bytes.length) at += FRAME_HEAD_BYTES + bytes.readUIntBE(at, 3);
      if (bytes.length > 0 && (bytes.readUInt8(3) !== FRAME.settings || bytes.readUInt8(4) !== 0))
        throw new Error('the first frame is not SETTINGS');
      for (const text of gate.takeReceived())
        if (readByNode(Buffer.from(text, 'latin1'), 'REQUEST').error !== undefined)
          throw new Error(`the app got ${JSON.stringify(text)}`);
      await gate.expectHealth();
    },
  };
}

function toProviderApi(gate: FuzzedGate): Target {
  const toRequest = (line: string, body = ''): Buffer =>
    Buffer.from(
      `${line} HTTP/1.1\r\nHost: 127.0.0.1:${gate.clear.providerPort}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
  return {
    name: 'provider-api',
    seeds: [
      toRequest('POST /v1/events', '{"type":"invoice.paid","data":{"id":1},"id":"x"}'),
      toRequest('POST /v1/events:batch', '{"events":[{"type":"a.b","data":{}}]}'),
      toRequest('POST /v1/endpoints', '{"url":"https://a.example","events":["a.*"],"orderBy":"$.data.id","rateLimit":2}'),
      toRequest('GET /v1/deliveries?limit=1&state=dead'),
      toRequest('GET /v1/endpoints/acme'),
      toRequest('PATCH /v1/endpoints/acme', '{"description":"x","timeout":null}'),
    ],
    pieces: [
      ...REQUEST_HEAD.pieces,
      ...[
        '{',
        '}',
        '[',
        ']',
        ',',
        ':',
        '"',
        'null',
        'true',
        '1e999',
        '"\\ud800"',
        '"__proto__":{}',
        '"type":"a"',
        '"data":{}',
        '"id":"x",',
      ],
      ...[
        '"channel":"c"',
        '"url":"http://127.0.0.1"',
        '"headers":{"host":"a"}',
        '/v1/',
        'cursor=',
        '?limit=0',
        '&limit=1',
        'If-Match: "1"\r\n',
      ],
    ],
    async check(input) {
      const bytes = await exchange(connect(gate.clear.providerPort, '127.0.0.1'), Buffer.concat([input, LAST]), IDLE_MS);
      if (!HAS_HEAD.test(input.toString('latin1')))
        for (const [status, body] of checkResponses(bytes))
          if (status >= 500 && status !== 503) throw new Error(`${status} ${body}`);
      await gate.expectHealth();
    },
  };
}
