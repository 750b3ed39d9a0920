import { describe, expect, test } from 'vitest';
import { sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { FRAMING_CASES, SMUGGLED } from './framing-cases.ts';
import { ROUTE_KIND_NAMES, ROUTE_KINDS, startGateWithUser, toKindRoute, toLines } from './route-kinds.ts';

const app = useApp();

const LINE = 'POST /hooks/billing HTTP/1.1';

/** Says for a content which field lines let a request pass. */
type ToCredentials = (body: string) => string[];

describe.each(ROUTE_KIND_NAMES)('at a route with %s', (name) => {
  const signedLines: ToCredentials = (body) => toLines(ROUTE_KINDS[name].credentials(Buffer.from(body)));
  const gate = useGate(() => startGateWithUser({ routes: [toKindRoute(ROUTE_KINDS[name], app.port)] }));

  describe('bad framing', () => {
    test.each(FRAMING_CASES)('is rejected with 400, and the connection is closed: %s', async (_title, toHead, body) => {
      const text = await sendRaw(gate.port, toRequestText(toHead(LINE, signedLines('hello')), body), SMUGGLED);
      expect(toStatuses(text)).toEqual([400]);
      expect(text.toLowerCase()).toContain('connection: close');
      expect(text).toContain('"code":"malformed_request"');
      expect(app.received).toHaveLength(0);
    });

    test('includes CONNECT on this port', async () => {
      expect(toStatuses(await sendRaw(gate.port, 'CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n'))).toEqual([400]);
    });

    test('never becomes two requests with bare LF line ends', async () => {
      const text = await sendRaw(gate.port, `POST /hooks/billing HTTP/1.1\nHost: a\nContent-Length: 0\n\n${SMUGGLED}`);
      expect(toStatuses(text)).toEqual([400]);
      expect(app.received).toHaveLength(0);
    });

    test('ends the request if chunk extensions are too long', async () => {
      const head = toRequestText([LINE, 'Host: a', 'Transfer-Encoding: chunked', ...signedLines('hello')]);
      const text = await sendRaw(gate.port, head, `5;${'x'.repeat(40_000)}\r\nhello\r\n0\r\n\r\n`);
      expect(toStatuses(text)).toEqual([400]);
      expect(app.received).toHaveLength(0);
    });
  });

  describe('good framing', () => {
    test('with one-byte chunks and extensions reaches the app unchanged, with the framing of the gate', async () => {
      const body = '{"a":1}';
      const chunks = [...body].map((byte) => `1;ext=1\r\n${byte}\r\n`).join('');
      const text = await sendRaw(
        gate.port,
        toRequestText(
          [LINE, 'Host: a', 'Connection: close', 'Transfer-Encoding: chunked', ...signedLines(body)],
          `${chunks}0\r\nX-Trailer: 1\r\n\r\n`,
        ),
      );
      expect(toStatuses(text)).toEqual([200]);
      expect(app.received[0]?.body.toString()).toBe(body);
      // Content that was read whole has a length; what is passed on as it comes has chunks, ours.
      const { 'content-length': length, 'transfer-encoding': coding } = app.received[0]?.headers ?? {};
      expect([length, coding]).toEqual(name === 'webhook' ? ['7', undefined] : [undefined, 'chunked']);
      expect(app.received[0]?.headers).not.toHaveProperty('x-trailer');
    });

    test('of two pipelined requests gets two responses in order', async () => {
      const first = toRequestText([LINE, 'Host: a', 'Content-Length: 2', ...signedLines('{}')], '{}');
      const second = toRequestText(['GET /none HTTP/1.1', 'Host: a', 'Connection: close']);
      expect(toStatuses(await sendRaw(gate.port, first + second))).toEqual([200, 404]);
    });
  });

  describe('no single request ends the process', () => {
    const names = [
      'Trailer',
      'TE',
      'Upgrade',
      'Keep-Alive',
      'Proxy-Connection',
      'Proxy-Authorization',
      'Proxy-Authenticate',
      'Connection',
      'Expect',
      '__proto__',
      'constructor',
      'toString',
      'HTTP2-Settings',
    ];
    const pairs = names.flatMap((a) => names.map((b) => [a, b] as const));

    test('with any hop-by-hop or unusual field names, alone and in pairs', async () => {
      for (const [a, b] of pairs) {
        const body = '{"a":1}';
        const extra = a === b ? [`${a}: x-a`] : [`${a}: x-a`, `${b}: ${a}`];
        const head = [LINE, 'Host: a', ...signedLines(body), `Content-Length: ${body.length}`, ...extra, 'Connection: close'];
        const text = await sendRaw(gate.port, toRequestText(head, body));
        expect([200, 400, 417]).toContain(toStatuses(text)[0]);
      }
      const last = toRequestText([LINE, 'Host: a', 'Connection: close', ...signedLines(''), 'Content-Length: 0']);
      expect(toStatuses(await sendRaw(gate.port, last))).toEqual([200]);
    });
  });

  describe('limits of the head', () => {
    test('reject more than 100 fields with 431', async () => {
      const many = Array.from({ length: 101 }, (_, i) => `X-${i}: 1`);
      expect(toStatuses(await sendRaw(gate.port, toRequestText([LINE, 'Host: a', ...many])))).toEqual([431]);
    });

    test('reject more than 16 KiB with 431', async () => {
      expect(toStatuses(await sendRaw(gate.port, toRequestText([LINE, 'Host: a', `X-Long: ${'x'.repeat(17_000)}`])))).toEqual([
        431,
      ]);
    });

    test('reject a target above 8 KiB with 414', async () => {
      expect(toStatuses(await sendRaw(gate.port, toRequestText([`POST /${'x'.repeat(8_192)} HTTP/1.1`, 'Host: a'])))).toEqual([
        414,
      ]);
    });

    test('reject an unknown expectation with 417', async () => {
      expect(toStatuses(await sendRaw(gate.port, toRequestText([LINE, 'Host: a', 'Expect: tea'])))).toEqual([417]);
    });

    test('send nothing after a final 417, whatever bytes follow the request', async () => {
      expect(toStatuses(await sendRaw(gate.port, toRequestText([LINE, 'Host: a', 'Expect: tea'], '2')))).toEqual([417]);
    });
  });

  describe('Expect: 100-continue', () => {
    test('gets 100 only after the head was accepted', async () => {
      const body = '{}';
      const good = toRequestText(
        [LINE, 'Host: a', 'Connection: close', 'Expect: 100-continue', 'Content-Length: 2', ...signedLines(body)],
        body,
      );
      expect(toStatuses(await sendRaw(gate.port, good))).toEqual([100, 200]);
      const bad = toRequestText(
        [LINE, 'Host: a', 'Expect: 100-continue', 'Content-Type: application/json', 'Content-Length: 2'],
        body,
      );
      expect(toStatuses(await sendRaw(gate.port, bad))).toEqual([401]);
    });
  });
});
