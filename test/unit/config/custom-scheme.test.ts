/** A custom scheme with a preset's fields is that preset. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import type { Config } from '../../../src/config/config.ts';
import { parseConfig } from '../../../src/config/load.ts';
import { formatProblem } from '../../../src/config/problem.ts';
import { systemClock } from '../../../src/core/clock.ts';
import { PRESETS } from '../../../src/schemes/catalogue.ts';
import type { SchemeDescription } from '../../../src/schemes/description.ts';
import { getPart, judge, PUBLIC_URL, toCase, toDelivery, withPart } from '../../support/preset-cases.ts';

const SIGNING = PRESETS.filter(({ signature }) => signature !== undefined);

/** The fields as a user would write them; who signs so, and which other names a header may have, is not for custom schemes. */
function toCustom(description: SchemeDescription): Record<string, unknown> {
  const {
    name: _name,
    from: _from,
    twins: _twins,
    leastSecretBytes: _least,
    tolerance: _past,
    contentTypes: _types,
    ...rest
  } = description;
  const { timestamp, secret, ...same } = rest;
  const { usualStart: _start, ...secretFields } = secret;
  return { ...same, secret: secretFields, ...(timestamp && { timestamp: { ...timestamp.from, unit: timestamp.unit } }) };
}

function toConfig(description: SchemeDescription, custom: object): { config: Config | undefined; problems: string[] } {
  const webhook = {
    scheme: 'custom',
    custom,
    keys: [{ name: 'k', secret: { env: 'SECRET' } }],
    ...(description.timestamp && {
      tolerance: { past: `${description.tolerance.past}ms`, future: `${description.tolerance.future}ms` },
    }),
    ...(description.signed.includes('url') && { publicUrl: PUBLIC_URL }),
    ...(description.signed.length === 0 && description.id === undefined && { dedup: 'off' }),
    contentTypes: description.contentTypes,
  };
  const route = { name: 'r', match: { path: '/hook' }, upstream: 'http://127.0.0.1:3000', webhook };
  const { config, problems } = parseConfig('gate.yaml', stringify({ routes: [route] }), systemClock);
  return { config, problems: problems.filter(({ severity }) => severity === 'error').map(formatProblem) };
}

describe.each(SIGNING.map((description) => ({ name: description.name, description })))('$name', ({ description }) => {
  const { config, problems } = toConfig(description, toCustom(description));
  const webhook = config?.routes[0]?.webhook;

  test('can be written as a custom scheme', () => {
    expect(problems).toEqual([]);
    const { from: _from, twins: _twins, leastSecretBytes: _least, secret, ...own } = description;
    const { usualStart: _start, ...secretFields } = secret;
    const written = webhook?.description as SchemeDescription;
    expect({ ...written, ...(own.publicKey === undefined && { publicKey: undefined }) }).toEqual({
      ...own,
      secret: secretFields,
      name: 'custom',
      publicKey: own.publicKey,
      tolerance: written.tolerance,
      contentTypes: written.contentTypes,
    });
    expect(webhook?.contentTypes).toEqual(description.contentTypes);
    expect(webhook?.tolerance).toEqual(description.timestamp === undefined ? undefined : description.tolerance);
  });

  test('behaves as its preset, written as a custom scheme, for what is signed and for what is changed', () => {
    const preset = toCase(description);
    const written = { ...(webhook?.description as SchemeDescription), tolerance: description.tolerance };
    const custom = toCase(written, { secret: preset.secret, signingSecret: preset.signingSecret });
    const name = fc.constantFrom('body', 'signature', 'timestamp', 'id', 'url');
    fc.assert(
      fc.property(toDelivery(preset), name, fc.nat(), fc.integer({ min: 0x20, max: 0x7e }), (delivery, part, at, other) => {
        expect(judge(custom, delivery)).toBe('ok');
        const bytes = Buffer.from(getPart(delivery, part));
        if (bytes.length > 0) bytes[at % bytes.length] = other;
        const changed = withPart(delivery, part, bytes);
        expect(judge(custom, changed)).toBe(judge(preset, changed));
      }),
    );
  });
});

describe('a custom scheme', () => {
  const base = { signature: { header: 'X-Signature' }, signed: ['body'] };

  test.each([
    [{ ...base, contentShape: 'json' }, /contentShape: "json" is not one of: json-object, json-array, json-object-or-array/],
    [{ ...base, contentDigestParameter: 'a b' }, /a parameter name is letters/],
    [{ ...base, decodedInUrl: 'abc' }, /punctuation/],
    [{ ...base, isPortOptional: false }, /isPortOptional/],
  ])('says what is wrong with %j', (custom, expected) => {
    expect(toConfig(SIGNING[0] as SchemeDescription, custom).problems.join('\n')).toMatch(expected);
  });
});
