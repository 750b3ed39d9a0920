/** Bytes that move between the pieces of a signed string: one signature must never stand for two messages. */

import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../src/config/load/load.ts';
import { systemClock } from '../../src/core/clock.ts';
import { parseTarget } from '../../src/core/head.ts';
import { formatProblem } from '../../src/core/problem.ts';
import { PRESETS } from '../../src/verify/presets/catalogue.ts';
import { TIMESTAMP_FORMATS } from '../../src/verify/schemes/coverage.ts';
import type { Piece, SchemeDescription } from '../../src/verify/schemes/description.ts';
import { findAmbiguity } from '../../src/verify/schemes/layout.ts';
import { isPlain } from '../support/field-cases.ts';
import { judge, NOW, type Parts, type PresetCase, PUBLIC_URL, sign, toCase, toDelivery } from '../support/preset-cases.ts';
import { fc } from '../support/property.ts';

type Name = 'id' | 'timestamp' | 'method' | 'url' | 'body';

/** The signed string of a delivery, with the places of the pieces as the sender has them. */
function toSignedString({ signed, separator }: SchemeDescription, parts: Parts): string {
  const toText = (piece: Piece): string => {
    if (typeof piece === 'object') return 'text' in piece ? piece.text : '';
    if (piece === 'id' || piece === 'timestamp' || piece === 'method' || piece === 'url') return parts[piece];
    return parts.body.toString('latin1');
  };
  return signed.map(toText).join(separator);
}

/** Whether the gate would take the text for this piece at all; only saves the work of asking it. */
function isPossible(description: SchemeDescription, name: Name, text: string): boolean {
  if (name === 'method') return text === 'POST';
  if (name === 'timestamp') return TIMESTAMP_FORMATS[description.timestamp?.unit ?? 's'].parse(text) !== undefined;
  if (name === 'url') return text.startsWith(`${PUBLIC_URL}/`) && !('problem' in parseTarget(text.slice(PUBLIC_URL.length)));
  return name === 'body' || (text !== '' && text.length <= 256);
}

/** Every message whose signed string is `text`. */
function* split(description: SchemeDescription, text: string, parts: Parts, index = 0): Generator<Parts> {
  const { signed, separator } = description;
  const piece = signed[index];
  if (piece === undefined) {
    if (text === '') yield parts;
    return;
  }
  const start = index === 0 ? 0 : separator.length;
  if (index > 0 && !text.startsWith(separator)) return;
  const isLast = index === signed.length - 1;
  for (let end = isLast ? text.length : start; end <= text.length; end++) {
    const value = text.slice(start, end);
    if (typeof piece === 'object') {
      if ('text' in piece && value === piece.text) yield* split(description, text.slice(end), parts, index + 1);
      continue;
    }
    const name = piece as Name;
    if (!isPossible(description, name, value)) continue;
    const changed = { ...parts, [name]: name === 'body' ? Buffer.from(value, 'latin1') : value };
    yield* split(description, text.slice(end), changed, index + 1);
  }
}

function toKey({ id, timestamp, method, url, body }: Parts): string {
  return JSON.stringify([id, timestamp, method, url, body.toString('latin1')]);
}

/** How many other messages have the same signed string, and that the gate takes none of them. */
function expectOneReading(one: PresetCase, parts: Parts): number {
  let others = 0;
  for (const other of split(one.description, toSignedString(one.description, parts), parts)) {
    if (toKey(other) === toKey(parts)) continue;
    others++;
    if (judge(one, other) === 'ok') throw new Error(`taken: ${toKey(other)} for ${toKey(parts)}`);
  }
  return others;
}

/** Content full of what stands beside it: times, separators, and the gate's own URL. */
function toTempting({ separator, timestamp, contentShape }: SchemeDescription): fc.Arbitrary<Buffer> {
  const time = TIMESTAMP_FORMATS[timestamp?.unit ?? 's'].format(NOW - 1_000);
  const texts = [
    separator,
    time,
    `${separator}${time}${separator}`,
    'POST',
    `${PUBLIC_URL}/`,
    '{',
    '}',
    '"',
    ':',
    '-',
    '0',
    'a',
    ' ',
  ];
  const text = fc.array(fc.constantFrom(...texts), { maxLength: 8 }).map((pieces) => pieces.join(''));
  if (contentShape === undefined) return text.map((content) => Buffer.from(content, 'latin1'));
  const object = fc.dictionary(text, fc.oneof(text, fc.dictionary(text, text, { maxKeys: 1 })), { maxKeys: 2 });
  const isList = contentShape === 'json-array';
  return (isList ? fc.array(object, { maxLength: 2 }) : object).map((value) => Buffer.from(JSON.stringify(value), 'latin1'));
}

/** Deliveries that the gate takes, and that are as easy to misread as they can be. */
function toTemptingDelivery(one: PresetCase): fc.Arbitrary<Parts> {
  const { description } = one;
  const time = TIMESTAMP_FORMATS[description.timestamp?.unit ?? 's'].format(NOW - 2_000);
  const id = fc.array(fc.constantFrom('a', '-', '.', ':', '0', '1', time, description.separator), { minLength: 1, maxLength: 4 });
  // The gate rejects a target with a space before it verifies anything.
  const timeInQuery = time.replaceAll(' ', '%20');
  const query = fc.array(fc.constantFrom('a', '.', '-', '{', '"', ':', '}', '0', timeInQuery, 'POST'), { maxLength: 4 });
  return fc
    .record({ id, query, body: toTempting(description), ago: fc.integer({ min: 0, max: 60 }) })
    .map(({ id, query, body, ago }) =>
      sign(one, {
        id: id.join(''),
        method: 'POST',
        url: `${PUBLIC_URL}/hook?q=${query.join('')}`,
        body,
        timestamp: NOW - ago * 1000,
      }),
    )
    .filter((parts) => judge(one, parts) === 'ok');
}

/** A checksum stands for a body, so it has no bytes that could move. */
const SEVERAL = PRESETS.filter(isPlain).filter(
  ({ signed }) => signed.length > 1 && !signed.includes('form') && !signed.includes('crc32'),
);

describe.each(SEVERAL.map((description) => ({ name: description.name, description })))('$name', ({ description }) => {
  const one = toCase(description);

  test('rejects every other message that has the same signed string', () => {
    expect(findAmbiguity(description)).toBeUndefined();
    fc.assert(
      fc.property(toDelivery(one), (parts) => void expectOneReading(one, parts)),
      { numRuns: 20 },
    );
    fc.assert(
      fc.property(toTemptingDelivery(one), (parts) => void expectOneReading(one, parts)),
      { numRuns: 60 },
    );
  });
});

test('rejects a captured Twitch delivery whose ID took over its time and the start of its body', () => {
  const one = toCase(PRESETS.find(({ name }) => name === 'twitch') as SchemeDescription);
  const id = 'e76c6bd4-55c9-4987-8304-da1588d8988b';
  const inner = new Date(NOW - 60_000).toISOString();
  const body = Buffer.from(`{"event":{"text":"${inner}","event":"forged"}}`);
  const genuine = sign(one, { id, method: 'POST', url: '', body, timestamp: NOW });
  expect(judge(one, genuine)).toBe('ok');
  const [head = '', tail = ''] = body.toString().split(inner);
  const moved = { ...genuine, id: `${id}${genuine.timestamp}${head}`, timestamp: inner, body: Buffer.from(tail) };
  expect(judge(one, moved)).toBe('malformed_signature');
});

test('rejects a time of another length if only its length delimits it, with any tolerance', () => {
  const discord = PRESETS.find(({ name }) => name === 'discord') as SchemeDescription;
  const one = toCase({ ...discord, tolerance: { past: Number.MAX_SAFE_INTEGER, future: Number.MAX_SAFE_INTEGER } });
  const genuine = sign(one, { id: 'a', method: 'POST', url: '', body: Buffer.from('5 apples'), timestamp: NOW });
  expect(judge(one, genuine)).toBe('ok');
  const longer = { ...genuine, timestamp: `${genuine.timestamp}5`, body: Buffer.from(' apples') };
  expect(judge(one, longer)).toBe('malformed_signature');
  const shorter = { ...genuine, timestamp: genuine.timestamp.slice(0, -1), body: Buffer.from('05 apples') };
  expect(judge(one, shorter)).toBe('malformed_signature');
});

/** Layouts that a user may describe, most of them sound, and of every kind. */
const layouts: fc.Arbitrary<SchemeDescription> = fc
  .record({
    pieces: fc.shuffledSubarray(['id', 'timestamp', 'method', 'url'] as const).map((names): Piece[] => [...names]),
    bodyAt: fc.nat({ max: 4 }),
    text: fc.option(fc.constantFrom('v0', '.', '0', '#'), { nil: undefined }),
    separator: fc.constantFrom('', '.', ':', '--', '-.-', ' ', '0', '|'),
    unit: fc.constantFrom('s' as const, 'ms' as const, 'rfc3339' as const, 'http-date' as const),
    shape: fc.constantFrom(undefined, 'json-object' as const, 'json-array' as const, 'json-object-or-array' as const),
  })
  .map(({ pieces, bodyAt, text, separator, unit, shape }): SchemeDescription => {
    const signed: Piece[] = [...pieces.slice(0, bodyAt), 'body', ...pieces.slice(bodyAt)];
    if (text !== undefined) signed.splice(bodyAt, 0, { text });
    return {
      name: 'custom',
      signature: { header: 'X-Signature', encoding: 'hex', forms: [{ prefix: '', algorithm: 'hmac-sha256' }] },
      signed,
      separator,
      ...(signed.includes('timestamp') && { timestamp: { from: { header: 'X-Time' }, unit } }),
      ...(signed.includes('id') && { id: { header: 'X-Id' } }),
      ...(shape !== undefined && { contentShape: shape }),
      secret: { encoding: 'utf8' },
      tolerance: { past: 300_000, future: 300_000 },
      contentTypes: ['application/json'],
    };
  });

test('rejects every other message with the same signed string in each custom layout that the config admits', () => {
  let others = 0;
  const admitted = layouts.filter(({ signed }) => signed.length > 1).filter((layout) => findAmbiguity(layout) === undefined);
  fc.assert(
    fc.property(admitted, (layout) => {
      const one = toCase(layout);
      const deliveries = fc.sample(toTemptingDelivery(one), { numRuns: 5, seed: 7 });
      for (const parts of deliveries) others += expectOneReading(one, parts);
    }),
    { numRuns: 300 },
  );
  expect(others).toBeGreaterThan(500);
});

test('rejects a URL before a JSON body whose end is unknown', () => {
  const sample = fc.sample(layouts, 1)[0] as SchemeDescription;
  const toLayout = (...signed: Piece[]): SchemeDescription => ({ ...sample, signed, separator: '', contentShape: 'json-object' });
  expect(findAmbiguity(toLayout('url', 'body', 'id'))).toEqual({ before: 'url', after: 'body' });
  expect(findAmbiguity(toLayout('method', 'timestamp', 'url', 'body', 'id'))).toEqual({ before: 'url', after: 'body' });
  expect(findAmbiguity(toLayout('url', 'body'))).toBeUndefined();
  expect(findAmbiguity(toLayout('url', 'body', 'timestamp'))).toBeUndefined();
});

describe('a custom layout with two interpretations', () => {
  const toProblems = (custom: object, match: object = { path: '/hook' }): string[] => {
    const webhook = {
      scheme: 'custom',
      custom: { signature: { header: 'X-Signature' }, ...custom },
      publicUrl: PUBLIC_URL,
      keys: [{ name: 'k', secret: { env: 'SECRET' } }],
    };
    const route = { name: 'r', match, upstream: 'http://127.0.0.1:3000', webhook };
    const { problems } = parseConfig('gate.yaml', stringify({ routes: [route] }), systemClock);
    return problems.filter(({ severity }) => severity === 'error').map(formatProblem);
  };
  const id = { header: 'X-Id' };
  const timestamp = { header: 'X-Time' };

  test.each([
    [
      'a URL that may have the separator',
      { signed: ['method', 'url', 'timestamp', 'body'], separator: '.', timestamp },
      'url and timestamp',
    ],
    ['a URL beside the content', { signed: ['url', 'body'] }, 'url and body'],
    ['an id beside the content', { signed: ['id', 'body'], id }, 'id and body'],
    ['an id behind the content', { signed: ['body', 'id'], id }, 'body and id'],
    ['an id beside a time in digits', { signed: ['id', 'timestamp', 'body'], id, timestamp }, 'id and timestamp'],
    ['content before a URL', { signed: ['body', 'url'], separator: '.' }, 'body and url'],
    ['content beside a form', { signed: ['body', 'form'], separator: '.' }, 'body and form'],
  ])('is an error when the config is loaded: %s', (_, custom, pair) => {
    const problems = toProblems(custom);
    expect(problems.join('\n')).toContain(`the boundary between ${pair} is ambiguous in the signed bytes`);
    expect(problems).toHaveLength(1);
  });

  test.each([
    ['JSON content', { signed: ['method', 'url', 'timestamp', 'body'], separator: '.', timestamp, contentShape: 'json-object' }],
    ['a separator that no URL has', { signed: ['method', 'url', 'timestamp', 'body'], separator: ' ', timestamp }],
    ['text between', { signed: ['id', { text: '.' }, 'timestamp', { text: '.' }, 'body'], id, timestamp }],
    ['a time with a shape of its own', { signed: ['id', 'timestamp', 'body'], id, timestamp: { ...timestamp, unit: 'rfc3339' } }],
    ['an HTTP date', { signed: ['id', 'timestamp', 'body'], id, timestamp: { ...timestamp, unit: 'http-date' } }],
  ])('has one interpretation with %s', (_, custom) => {
    expect(toProblems(custom)).toEqual([]);
  });

  test('is an error for a form under a pathPrefix, where parameters could move into the path', () => {
    const custom = { signed: ['url', 'form'] };
    expect(toProblems(custom)).toEqual([]);
    expect(toProblems(custom, { pathPrefix: '/hook' }).join('\n')).toContain(
      'replay a delivery with parameters moved into the path',
    );
  });
});
