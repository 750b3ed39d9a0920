/** The gate's presets against every sender's own library: what they sign is taken, what the presets sign they take. */

import { afterAll, describe, expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import { findPreset } from '../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../src/verify/schemes/description.ts';
import { readSigned } from '../support/field-cases.ts';
import { GO_PARTS, PYTHON_PARTS, type Speaker, startGo, startPython, toForeignOracle } from '../support/oracles/foreign.ts';
import { listMutations } from '../support/oracles/mutations.ts';
import type { Delivery, ReceiverKey, SignedDelivery } from '../support/oracles/oracle.ts';
import { oracles } from '../support/oracles.ts';
import { toCase } from '../support/preset-cases.ts';
import { fc } from '../support/property.ts';

const RUNS = 25;

const python = startPython();
const go = startGo();

afterAll(() => {
  python?.stop();
  go?.stop();
});

/** Every oracle of a sender that has a preset, in each language that has a library of it. */
const cases = oracles.flatMap((own) => {
  const description = findPreset(own.preset);
  if (description === undefined) return [];
  const toForeign = (language: string, speaker: Speaker | undefined, parts: typeof GO_PARTS) =>
    parts
      .filter(({ preset }) => preset === own.preset && speaker !== undefined)
      .map((part) => ({ language, oracle: speaker === undefined ? own : toForeignOracle(own, speaker, part) }));
  return [
    { language: 'JavaScript', oracle: own },
    ...toForeign('Python', python, PYTHON_PARTS),
    ...toForeign('Go', go, GO_PARTS),
  ].map(({ language, oracle }) => {
    const form = own.form === undefined ? '' : `, ${own.form}`;
    return { description, oracle, title: `${own.preset} (${language}${form})` };
  });
});

function isTaken(description: SchemeDescription, signed: SignedDelivery, key: ReceiverKey): boolean {
  const scheme = compileScheme(description);
  const parsed = scheme.parseKey('k', new Secret(Buffer.from(key.text)), key.encoding);
  if ('problem' in parsed) throw new Error(parsed.problem);
  const head = readSigned(scheme, { ...signed, headers: Object.entries(signed.headers) });
  if ('code' in head || scheme.verify(head, signed, [parsed.key]) === undefined) return false;
  return !('problem' in scheme.identify(head, signed));
}

/** The sample with something more in it, in the form that the sender sends. */
function toVaried(sample: Delivery, text: string): Delivery {
  if (sample.contentType !== 'application/json')
    return { ...sample, body: Buffer.from(`${sample.body}&${new URLSearchParams([['zzz', text]])}`) };
  const content: unknown = JSON.parse(sample.body.toString());
  const varied = Array.isArray(content) ? [...content, text] : { ...(content as object), zzz: text };
  return { ...sample, body: Buffer.from(JSON.stringify(varied)) };
}

/** The delivery with the headers that the preset signs it by. */
function signByPreset(
  description: SchemeDescription,
  delivery: Delivery,
  { signed, key }: { signed: SignedDelivery; key: ReceiverKey },
): SignedDelivery {
  const secret = new Secret(Buffer.from(key.text));
  const ours = compileScheme(description).sign({ ...delivery, url: signed.url }, secret, key.encoding);
  const headers: Record<string, string> = { ...signed.headers };
  for (const [name, value] of ours) {
    // What the library's own signature has not, its verifier would not look at.
    expect(Object.keys(headers)).toContain(name.toLowerCase());
    headers[name.toLowerCase()] = value;
  }
  return { ...signed, headers };
}

describe.each(cases)('$title', ({ description, oracle }) => {
  test('signs deliveries that the preset accepts, with any content, and that no other key verifies', async () => {
    const text = fc.string({ unit: 'grapheme', maxLength: 30 });
    const property = fc.asyncProperty(fc.oneof(text, fc.constantFrom('$$ $& $1', '%', '\u2028', '</script>')), async (more) => {
      const delivery = toVaried(oracle.sample(Date.now()), more);
      const signed = await oracle.sign(delivery);
      return isTaken(description, signed, oracle.secret) && !isTaken(description, signed, oracle.otherSecret);
    });
    await fc.assert(property, { numRuns: RUNS });
  });

  test('and the preset agree on which changes matter', async () => {
    const delivery = oracle.sample(Date.now());
    const signed = await oracle.sign(delivery);
    for (const { name, isCovered, signed: changed } of listMutations(oracle, delivery, signed))
      expect({ [name]: isTaken(description, changed, oracle.secret) }).toEqual({ [name]: !isCovered });
  });

  test.runIf(oracle.verify !== undefined)('accepts deliveries that the preset signs', async () => {
    const key: ReceiverKey =
      description.publicKey?.prefix === undefined && description.publicKey !== undefined ? toPair() : oracle.secret;
    const delivery = oracle.sample(Date.now());
    const by = { signed: await oracle.sign(delivery), key: 'signing' in key ? (key.signing as ReceiverKey) : key };
    const ours = signByPreset(description, delivery, by);
    expect(await oracle.verify?.(ours, key)).toBe(true);
    expect(await oracle.verify?.(ours, oracle.otherSecret)).toBe(false);
  });

  /** A key pair of the preset's kind: libraries that verify by a public key never see the private one. */
  function toPair(): ReceiverKey & { readonly signing: ReceiverKey } {
    const { secret, signingSecret } = toCase(description);
    return { text: secret, signing: { text: signingSecret } };
  }
});

test('every sender with a preset and a library is tested here', () => {
  const met = new Set(cases.map(({ oracle }) => oracle.preset));
  expect(oracles.filter(({ preset }) => findPreset(preset) !== undefined && !met.has(preset))).toEqual([]);
  expect(met.size).toBeGreaterThan(24);
});
