/** A custom scheme with a preset's fields is that preset. */
import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { printScheme } from '../../../../src/cli/scheme.ts';
import { parseConfig } from '../../../../src/config/load/load.ts';
import type { Config } from '../../../../src/config/schema/config.ts';
import { customScheme } from '../../../../src/config/schema/scheme-schema.ts';
import { systemClock } from '../../../../src/core/clock.ts';
import { formatProblem } from '../../../../src/core/problem.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import type { Scheme } from '../../../../src/verify/schemes/scheme.ts';
import { isPlain, readSigned } from '../../../support/field-cases.ts';
import { recordIo } from '../../../support/io.ts';
import { readVectors, type Vector } from '../../../support/oracles/vectors.ts';
import { getPart, judge, PUBLIC_URL, toCase, toDelivery, withPart } from '../../../support/preset-cases.ts';
import { fc } from '../../../support/property.ts';

/** All but those whose token is in the content, or that have settings of their route (key-pair-schemes.test.ts). */
const SIGNING = PRESETS.filter(
  ({ signature, jwt, signed }) =>
    signature !== undefined && signature.content === undefined && jwt === undefined && !signed.includes('receiverId'),
);

/** What `sidegate scheme --custom` prints. */
function print(name: string): string {
  const { io, stdout } = recordIo();
  printScheme(name, { custom: true }, io);
  return stdout();
}

interface Printed {
  readonly webhook: Readonly<Record<string, unknown>>;
}

function toConfig(webhook: object): { config: Config | undefined; problems: string[] } {
  const route = { name: 'r', match: { path: '/hook' }, upstream: 'http://127.0.0.1:3000', webhook };
  const { config, problems } = parseConfig('gate.yaml', stringify({ routes: [route] }), systemClock);
  return { config, problems: problems.filter(({ severity }) => severity === 'error').map(formatProblem) };
}

/** The printed section, and what a user must add to it as to a preset. */
function toWebhook({ name, signed, id }: SchemeDescription): object {
  const isIdentified = signed.length > 0 || id !== undefined;
  return { ...(parse(print(name)) as Printed).webhook, ...(!isIdentified && { dedup: 'off' }) };
}

function verify(scheme: Scheme, { secret, signed }: Pick<Vector, 'secret' | 'signed'>): string {
  const parsed = scheme.parseKey('k', new Secret(Buffer.from(secret.text)), secret.encoding);
  if ('problem' in parsed) return parsed.problem;
  const head = readSigned(scheme, { ...signed, headers: Object.entries(signed.headers) });
  return 'code' in head ? head.code : (scheme.verify(head, signed, [parsed.key])?.name ?? 'mismatch');
}

describe.each(SIGNING.map((description) => ({ name: description.name, description })))('$name', ({ description }) => {
  const { config, problems } = toConfig(toWebhook(description));
  const webhook = config?.routes[0]?.webhook;

  test('is printed as a custom scheme with the same fields', () => {
    const { scheme: _scheme, custom: _custom, ...rest } = toWebhook(description) as Record<string, unknown>;
    expect(problems).toEqual([]);
    expect(toConfig({ ...rest, scheme: description.name }).problems).toEqual([]);
    const {
      from: _from,
      twins: _twins,
      acceptsTwins: _accepts,
      handshake: _handshake,
      leastSecretBytes: _least,
      methods: _methods,
      repeatsBytes: _repeats,
      secret,
      ...own
    } = description;
    const { usualStart: _start, transform: _transform, ...secretFields } = secret;
    const written = webhook?.description as SchemeDescription;
    expect({ ...written, ...(own.publicKey === undefined && { publicKey: undefined }) }).toEqual({
      ...own,
      secret: secretFields,
      name: 'custom',
      publicKey: own.publicKey,
      tolerance: written.tolerance,
      contentTypes: written.contentTypes,
    });
    expect(webhook?.handshake?.type).toBe(description.handshake);
    expect(webhook?.contentTypes).toEqual(description.contentTypes);
    expect(webhook?.tolerance).toEqual(description.timestamp === undefined ? undefined : description.tolerance);
  });

  test("verifies its sender's vectors as its preset does", () => {
    const custom = compileScheme(webhook?.description as SchemeDescription);
    for (const vector of readVectors().filter(({ preset }) => preset === description.name)) {
      const [own, same] = [compileScheme(description), custom].map((scheme) => verify(scheme, vector));
      expect(same).toBe(own);
      if (vector.verdict === 'ok') expect(same).toBe('k');
    }
  });

  test.runIf(isPlain(description))('behaves like its preset as a custom scheme, for signed and for modified deliveries', () => {
    const preset = toCase(description);
    const written = {
      ...(webhook?.description as SchemeDescription),
      tolerance: description.tolerance,
      contentTypes: description.contentTypes,
    };
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

describe('an example in the list of presets', () => {
  const page = readFileSync(join(import.meta.dirname, '..', '..', '..', '..', 'docs', 'presets.md'), 'utf8');
  const examples = [...page.matchAll(/```yaml\n(.*?)```/gs)].map(([, text = '']) => parseConfig('gate.yaml', text, systemClock));

  test('is valid', () => {
    expect(examples.length).toBeGreaterThan(1);
    for (const { problems } of examples) expect(problems.filter(({ severity }) => severity === 'error')).toEqual([]);
  });

  test('verifies what the sender is reported to sign: Lob', () => {
    const [lob] = examples.flatMap(({ config }) => config?.routes ?? []).filter(({ name }) => name === 'lob');
    const secret = 'lDQHScfUeXUKaQRNF+8XIiDKZ7XX3itB';
    const verdict = (body: string): string => {
      const signature = createHmac('sha256', secret).update('1790000000000.{"id":"evt_1"}').digest('hex');
      const headers = { 'lob-signature': signature, 'lob-signature-timestamp': '1790000000000' };
      const signed = { method: 'POST', url: '', headers, body: Buffer.from(body) };
      return verify(compileScheme(lob?.webhook?.description as SchemeDescription), { secret: { text: secret }, signed });
    };
    expect([verdict('{"id":"evt_1"}'), verdict('{"id":"evt_2"}')]).toEqual(['k', 'mismatch']);
  });
});

test.each<[string, object, string[]]>([
  ['all parameters', { signed: ['url', 'form'] }, ['application/x-www-form-urlencoded']],
  [
    'all parameters, or the digest of the body',
    { signed: ['url', 'form'], contentDigestParameter: 'sha' },
    ['application/json', 'application/x-www-form-urlencoded'],
  ],
  ['all fields', { signed: [{ sortedForm: {} }] }, ['application/x-www-form-urlencoded']],
  ['single fields', { signed: [{ form: 'a' }] }, ['application/x-www-form-urlencoded', 'multipart/form-data']],
  ['the body', {}, ['application/json']],
])('a scheme that signs %s accepts their media types by default', (_, fields, expected) => {
  expect(customScheme.parse({ signature: { header: 'X-Sig' }, ...fields }).contentTypes).toEqual(expected);
});

test('a preset includes the handshake of its sender', () => {
  const types = PRESETS.map(({ name }): [string, string | undefined] => {
    const webhook = { scheme: name, publicUrl: PUBLIC_URL, keys: [{ name: 'k', secret: { env: 'SECRET' } }], dedup: 'off' };
    const route = { name: 'r', match: { path: '/hook' }, upstream: 'http://127.0.0.1:3000', webhook };
    const { config } = parseConfig('gate.yaml', stringify({ routes: [route] }), systemClock);
    return [name, config?.routes[0]?.webhook?.handshake?.type];
  });
  const signed = ['discord', 'front', 'meta', 'microsoft-graph', 'slack', 'smartcar', 'twitch', 'x', 'zoom'];
  const open = [
    ...['asana', 'braintree', 'linkedin', 'monday', 'notion', 'nylas', 'okta', 'ringcentral', 'statsig', 'trello'],
    'woocommerce',
  ];
  const same = [...signed, ...open].map((name) => [name, name]);
  expect(Object.fromEntries(types.filter(([, type]) => type !== undefined))).toEqual({
    ...Object.fromEntries(same),
    clio: 'asana',
    intercom: 'trello',
    mandrill: 'trello',
    whatsapp: 'meta',
  });
});

describe('the name of a scheme', () => {
  const toProblem = (scheme: string): string => {
    const webhook = { scheme, keys: [{ name: 'k', secret: { env: 'SECRET' } }] };
    const route = { name: 'r', match: { path: '/hook' }, upstream: 'http://127.0.0.1:3000', webhook };
    return parseConfig('gate.yaml', stringify({ routes: [route] }), systemClock)
      .problems.map(formatProblem)
      .join('\n');
  };

  test.each([
    ['Github', 'github'],
    ['STRIPE', 'stripe'],
    ['shopify-event', 'shopify-events'],
    ['standard_webhooks', 'standard-webhooks'],
    ['what-sapp', 'whatsapp'],
  ])('is suggested if it is similar: %s', (written, meant) => {
    expect(toProblem(written)).toMatch(
      new RegExp(`Did you mean "${meant}"\\?\n  hint: allowed values: standard-webhooks, svix, .* and [0-9]+ others$`),
    );
  });

  test.each(['carrier-pigeon', 'our-billing', 'constructor', 'q'])(
    'is an error without a suggestion if none is similar: %s',
    (written) => {
      expect(toProblem(written)).toMatch(/is not one of/);
      expect(toProblem(written)).not.toMatch(/did you mean/i);
    },
  );
});

describe('a custom scheme', () => {
  const base = { signature: { header: 'X-Signature' }, signed: ['body'] };

  test.each([
    [{ ...base, contentShape: 'json' }, /contentShape: "json" is not one of: json-object, json-array, json-object-or-array/],
    [{ ...base, contentDigestParameter: 'a b' }, /a parameter name is 1 to 64 letters/],
    [{ ...base, decodedInUrl: 'abc' }, /punctuation/],
    [{ ...base, isPortOptional: false }, /isPortOptional/],
    [
      { signature: { header: 'X-Signature', list: ',' }, signed: ['timestamp', 'body'], timestamp: { entry: '' } },
      /timestamp.entry: the prefix is empty, so any entry could be the timestamp/,
    ],
    [
      { ...base, signed: ['timestamp', 'body'], timestamp: { entry: '', first: true } },
      /the timestamp is an entry of a list, but the signature header is not a list/,
    ],
    [
      { signature: { header: 'X-Signature', list: ',' }, signed: ['timestamp', 'body'], timestamp: { entry: '', first: false } },
      /first/,
    ],
    [{ ...base, timestamp: { header: 'Date', unit: 'http' } }, /is not one of: s, ms, rfc3339, http-date/],
    [
      {
        signature: { header: 'X-Signature', list: ',' },
        signed: ['timestamp', 'body'],
        timestamp: { entry: 't=', unit: 'http-date' },
      },
      /an HTTP date contains a comma and spaces/,
    ],
  ])('reports what is wrong with %j', (custom, expected) => {
    const { problems } = toConfig({ scheme: 'custom', custom, keys: [{ name: 'k', secret: { env: 'SECRET' } }] });
    expect(problems.join('\n')).toMatch(expected);
  });
});

test.each([
  [{ signature: { header: 'Authorization', list: ' ', forms: [{ prefix: 'HMAC-SHA256 ' }] } }, 'contains the separator'],
  [{ signature: { header: 'X-S' }, timestamp: { header: 'x-s' }, signed: ['timestamp', 'body'], separator: '.' }, 'needed twice'],
  [{ signature: { form: 'sig' }, signed: ['form'] }, 'the signed form would contain its own signature'],
  [{ signature: { json: '$.sig' }, signed: ['form'] }, 'the signed form would contain its own signature'],
  [{ signature: { header: 'X-S' }, signed: [{ form: 'f' }, 'body'], separator: '.', contentShape: 'json-object' }, 'not JSON'],
])('rejects a scheme that no delivery can satisfy: %j', (custom, expected) => {
  const { problems } = toConfig({ scheme: 'custom', custom, keys: [{ name: 'k', secret: { env: 'HOME' } }] });
  expect(problems).toContainEqual(expect.stringMatching(new RegExp(`${expected}.*, so no delivery could be verified`)));
});
