/** Parsers that read untrusted text take linear time: no header, path or body holds the event loop (ReDoS). */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { lintPatterns } from '../../scripts/lint-patterns.ts';
import {
  acceptsTrailers,
  findConnectionOptions,
  HeaderFields,
  isPlainOption,
  parseTarget,
  toFoldedName,
} from '../../src/core/head.ts';
import { parseJsonPath, readJsonPath } from '../../src/core/json-path.ts';
import { readForwarded, readOriginalRequest } from '../../src/gateway/forward-auth/auth-request.ts';
import { readValues, toSortable } from '../../src/gateway/pipeline/gates/order.ts';
import { parseResponseHead, parseTrailers } from '../../src/http/client/response-parser.ts';
import { parseDestination } from '../../src/http/dial/destination.ts';
import { createClientResolver, parseProxyHeader } from '../../src/http/server/client-address.ts';
import { isAuthority } from '../../src/http/server/strict-server.ts';
import { isRelayedUpgrade } from '../../src/http/server/upgrade.ts';
import { parseTraceparent, parseTracestate } from '../../src/telemetry/tracing/trace-context.ts';
import { readBasic } from '../../src/users/basic.ts';
import { parseSmallJson } from '../../src/verify/handshakes/handshake.ts';
import { parseParameters } from '../../src/verify/handshakes/parameters.ts';
import { PRESETS } from '../../src/verify/presets/catalogue.ts';
import { parseSnsMessage } from '../../src/verify/schemes/aws-sns.ts';
import { compileScheme } from '../../src/verify/schemes/compile.ts';
import { toHeaderNames } from '../../src/verify/schemes/head.ts';
import { makeFolder } from '../support/fixtures.ts';

/** The largest request head there is by default. */
const LARGE = 16_384;
const SMALL = LARGE / 4;
/** A quadratic pattern takes 100 ms and more at 16 KiB, a linear one less than one. */
const FAST_MS = 10;
const RUNS = 5;
const PIECES = [
  ' ',
  '\t',
  ',',
  ', ',
  ';',
  '=',
  '"',
  '\\"',
  '"\\',
  '0',
  'a',
  'a=b,',
  'a="b",',
  '.',
  '/',
  '%2e',
  ':',
  '[',
  '{"a":',
  '$(',
];
const FORMS: readonly ((run: string) => string)[] = [
  (run) => run,
  (run) => `${run}!`,
  (run) => `a${run}a`,
  (run) => `a=b,${run}\u007f`,
];

interface Parser {
  readonly name: string;
  readonly parse: (text: string) => unknown;
}

const resolveClient = createClientResolver({ address: ['127.0.0.0/8', '10.0.0.0/8'], identity: [] });
const path = parseJsonPath('data.object.id');
const FIELDS = (name: string, text: string): HeaderFields => new HeaderFields(['Host', 'a', name, text]);

const PARSERS: readonly Parser[] = [
  { name: 'tracestate', parse: (text) => parseTracestate([text]) },
  { name: 'tracestate in many lines', parse: (text) => parseTracestate(text.split(',')) },
  { name: 'traceparent', parse: (text) => parseTraceparent([text]) },
  {
    name: 'traceparent of a later version',
    parse: (text) => parseTraceparent([`01-${'a'.repeat(32)}-${'b'.repeat(16)}-01-${text}`]),
  },
  { name: 'Authorization', parse: (text) => readBasic(text, { latin1: true }) },
  { name: 'Authorization: Basic', parse: (text) => readBasic(`Basic ${text}`, { latin1: true }) },
  { name: 'X-Forwarded-For', parse: (text) => resolveClient('127.0.0.1', false, FIELDS('X-Forwarded-For', text)) },
  { name: 'X-Forwarded-Proto', parse: (text) => resolveClient('127.0.0.1', false, FIELDS('X-Forwarded-Proto', text)) },
  { name: 'X-Original-URL', parse: (text) => readOriginalRequest(FIELDS('X-Original-URL', `http://a/${text}`)) },
  { name: 'X-Forwarded-Uri', parse: (text) => readOriginalRequest(FIELDS('X-Forwarded-Uri', `/${text}`)) },
  { name: 'Forwarded', parse: (text) => readForwarded([text]) },
  { name: 'Host', parse: isAuthority },
  { name: 'the target', parse: (text) => parseTarget(`/${text}`) },
  { name: 'the query', parse: (text) => parseTarget(`/a?${text}`) },
  { name: 'parameters of a handshake', parse: parseParameters },
  { name: 'Upgrade', parse: (text) => isRelayedUpgrade('GET', text) },
  { name: 'TE', parse: (text) => acceptsTrailers(FIELDS('TE', text)) },
  { name: 'Connection', parse: (text) => [isPlainOption(text), findConnectionOptions(FIELDS('Connection', text))] },
  { name: 'a header name', parse: toFoldedName },
  { name: 'the PROXY line', parse: (text) => parseProxyHeader(Buffer.from(`PROXY ${text}`, 'latin1')) },
  { name: 'a CONNECT target', parse: (text) => [parseDestination(text), parseDestination(`${text}:443`)] },
  {
    name: 'the head of an upstream response',
    parse: (text) => parseResponseHead(`HTTP/1.1 200 OK\r\nConnection: ${text}\r\nKeep-Alive: ${text}`),
  },
  { name: 'the status line of an upstream response', parse: (text) => parseResponseHead(`HTTP/1.1 200 ${text}`) },
  { name: 'trailers of an upstream response', parse: (text) => parseTrailers(`a: ${text}`) },
  { name: 'a version for order', parse: toSortable },
  {
    name: 'JSON content',
    parse: (text) => readValues(Buffer.from(`{"id":${JSON.stringify(text)}}`), 'problem' in path ? [] : [path]),
  },
  { name: 'JSON content as it stands', parse: (text) => readValues(Buffer.from(text), 'problem' in path ? [] : [path]) },
  { name: 'a JSON path', parse: (text) => 'problem' in path || readJsonPath(path, { data: text }) },
  {
    name: 'an Amazon SNS message',
    parse: (text) => parseSnsMessage(Buffer.from(JSON.stringify({ Type: 'Notification', Message: text }))),
  },
  { name: 'an Amazon SNS message as it stands', parse: (text) => parseSnsMessage(Buffer.from(text)) },
  { name: 'a handshake in JSON', parse: (text) => parseSmallJson(Buffer.from(`{"challenge":${text}`), 'challenge') },
];

const PRESET_PARSERS: readonly Parser[] = PRESETS.map((description) => {
  const scheme = compileScheme(description);
  const names = toHeaderNames(description);
  const message = { method: 'POST', url: 'https://a/', body: Buffer.from('{"id":"a"}') };
  return {
    name: description.name,
    parse(text) {
      // One hostile header at a time beside plausible others, and all of them hostile.
      for (const hostile of [...names, undefined]) {
        const raw = names.flatMap((name) => [name, hostile === undefined || name === hostile ? text : '1700000000']);
        const head = scheme.readHead(new HeaderFields(raw), { allowDotInId: false });
        if (!('code' in head)) scheme.identify(head, message);
      }
    },
  };
});

/** CPU of this thread alone, so that a busy machine does not count; the least of several runs, so that a collection does not either. */
function measure(parse: Parser['parse'], text: string): number {
  let least = Number.POSITIVE_INFINITY;
  for (let run = 0; run < RUNS && least > FAST_MS; run++) {
    const before = process.threadCpuUsage();
    try {
      parse(text);
    } catch {
      // How long it took counts, whatever came of it.
    }
    const { user, system } = process.threadCpuUsage(before);
    least = Math.min(least, (user + system) / 1_000);
  }
  return least;
}

function fill(piece: string, length: number): string {
  return piece.repeat(Math.floor(length / piece.length));
}

/** The texts that take longer than linear time, with how long 4 KiB and 16 KiB took in ms. */
function findSlow({ parse }: Parser, pieces = PIECES): string[] {
  const slow: string[] = [];
  for (const piece of pieces)
    for (const form of FORMS) {
      const large = measure(parse, form(fill(piece, LARGE)));
      if (large <= FAST_MS) continue;
      const small = measure(parse, form(fill(piece, SMALL)));
      if (large > 8 * small) slow.push(`${JSON.stringify(form(piece))}: ${small} ms, then ${large} ms`);
    }
  return slow;
}

describe('takes linear time for repeated pieces of 16 KiB in', () => {
  test.each(PARSERS)('$name', (parser) => {
    expect(findSlow(parser)).toEqual([]);
  });
  test.each(PRESET_PARSERS)('the headers of preset $name', (parser) => {
    expect(findSlow(parser)).toEqual([]);
  });
});

test('finds a quadratic pattern, as a check of the measurement itself', () => {
  const quadratic = (text: string): string => text.replace(/^[\t ]+|[\t ]+$/g, '');
  expect(findSlow({ name: 'quadratic', parse: quadratic }, ['\t'])).not.toEqual([]);
});

describe('the lint of patterns', () => {
  const lint = (source: string, allowed: Parameters<typeof lintPatterns>[1] = []): string[] => {
    const folder = makeFolder();
    writeFileSync(join(folder, 'a.ts'), source);
    return lintPatterns(folder, allowed);
  };

  test.each([
    ['a run cut off at the end', 'export const A = /[\\t ]+$/;', '2nd degree polynomial'],
    ['runs within runs', 'export const A = /^(?:a+)+$/;', 'exponential'],
    ['adjacent runs of one character', 'export const A = /^a{0,200}[a-c]{0,200}$/;', '2nd degree polynomial'],
    ['what the checker cannot decide', 'export const A = /^(?=a+)b+/;', 'cannot be checked'],
  ])('rejects %s', (_, source, problem) => {
    expect(lint(source)).toEqual([expect.stringContaining(problem)]);
  });

  test('accepts linear patterns and allowed ones', () => {
    expect(lint('export const A = /^[a-z]{1,253}$/;')).toEqual([]);
    expect(lint('export const A = /a+$/;', [{ file: 'a.ts', pattern: '/a+$/', reason: 'a test' }])).toEqual([]);
  });

  test('rejects an allowance that nothing needs', () => {
    expect(lint('', [{ file: 'a.ts', pattern: '/a+$/', reason: 'a test' }])).toEqual([
      'a.ts: /a+$/ is allowed but not there; remove it from ALLOWED',
    ]);
  });
});
