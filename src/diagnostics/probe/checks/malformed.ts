/** Checks that deliveries with missing, truncated, repeated or contradictory headers are rejected. */

import {
  type Check,
  type CheckContext,
  type CheckFinding,
  expectRejected,
  notApplicable,
  type ProbeDelivery,
  toForeignEntry,
} from '../check.ts';
import type { Fields } from '../client.ts';
import { getField, type ProbedScheme, type SplitSignature, withField } from '../probed-scheme.ts';

const SIGNATURE_COUNT = 100;
const MAX_TRIES = 16;
const BASE64_DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

/** A valid delivery with a modified signature. */
function withSignature(context: CheckContext, label: string, change: SignatureChange): ProbeDelivery {
  return rewriteSignature(context, context.make({ label }), change);
}

type SignatureChange = (prefix: string, encoded: string) => string;

function rewriteSignature(context: CheckContext, delivery: ProbeDelivery, change: SignatureChange): ProbeDelivery {
  const fields = withField(delivery.fields, context.scheme.signatureName, (value) => {
    const { before, prefix, encoded } = context.scheme.split(value);
    return `${before}${change(prefix, encoded)}`;
  });
  return { ...delivery, fields };
}

function without(context: CheckContext, label: string, names: readonly string[]): ProbeDelivery {
  const delivery = context.make({ label });
  return { ...delivery, fields: delivery.fields.filter(([name]) => !names.includes(name)) };
}

/** The headers that verification requires. */
function findSignedNames(scheme: ProbedScheme): string[] {
  const names = [
    scheme.signatureName,
    scheme.isIdSigned ? scheme.idName : undefined,
    scheme.isTimestampSigned ? scheme.timestampName : undefined,
  ];
  return [...new Set(names.filter((name) => name !== undefined))];
}

/** Sets a bit that decoders ignore (RFC 4648 §3.5). */
function setUnusedBit(encoded: string): string {
  const end = encoded.indexOf('=');
  const digit = BASE64_DIGITS.indexOf(encoded.charAt(end - 1));
  return `${encoded.slice(0, end - 1)}${BASE64_DIGITS.charAt(digit + 1)}${encoded.slice(end)}`;
}

function toParts({ scheme }: CheckContext, delivery: ProbeDelivery): SplitSignature {
  return scheme.split(getField(delivery.fields, scheme.signatureName));
}

/** DER signatures differ in length, and some have no padding; this returns one that has. */
function makePadded(context: CheckContext, label: string): ProbeDelivery | undefined {
  const deliveries = Array.from({ length: MAX_TRIES }, () => context.make({ label }));
  return deliveries.find((delivery) => toParts(context, delivery).encoded.endsWith('='));
}

const NO_PADDING = 'the signatures of this scheme are not padded base64';
const NON_CANONICAL_FORMS: readonly (readonly [label: string, change: SignatureChange])[] = [
  ['no padding', (prefix, text) => prefix + text.replace(/=+$/, '')],
  ['unused bits', (prefix, text) => prefix + setUnusedBit(text)],
  ['a stray character', (prefix, text) => `${prefix}${text.slice(0, 8)}!${text.slice(8)}`],
];

function repeat(fields: Fields, name: string, value: string, where: 'before' | 'after'): Fields {
  return where === 'before' ? [[name, value], ...fields] : [...fields, [name, value]];
}

async function runMissing(context: CheckContext): Promise<CheckFinding> {
  const names = findSignedNames(context.scheme);
  const each = names.length > 1 ? names.map((name) => without(context, `without ${name}`, [name])) : [];
  return expectRejected(context, ...each, without(context, 'without any', names));
}

async function runRepeated(context: CheckContext): Promise<CheckFinding> {
  const { idName, isIdSigned } = context.scheme;
  if (idName === undefined || !isIdSigned) return notApplicable('this scheme does not sign an ID');
  const deliveries = (['before', 'after'] as const).map((where) => {
    const delivery = context.make({ label: `another ID ${where} the signed one` });
    return { ...delivery, fields: repeat(delivery.fields, idName, context.make().id, where) };
  });
  return expectRejected(context, ...deliveries);
}

async function runFamilies(context: CheckContext): Promise<CheckFinding> {
  const { description, idName } = context.scheme;
  const { twins: names } = description;
  if (names === undefined || idName === undefined) return notApplicable('this scheme has only one set of header names');
  const delivery = context.make();
  const twins: Fields = delivery.fields.map(([name, value]) => [names[name] ?? name, value]);
  const { id } = context.make();
  return expectRejected(context, { ...delivery, fields: [...twins, ...withField(delivery.fields, idName, () => id)] });
}

/** Checks of missing parts. */
const MISSING_PART_CHECKS: readonly Check[] = [
  {
    id: 'missing-headers',
    group: 'forged',
    severity: 'critical',
    sent: 'deliveries without one of the signed headers, and without any',
    expected: 'all rejected',
    impact: 'Verification only runs if there is a signature: anyone who omits it is accepted.',
    run: runMissing,
  },
  {
    id: 'empty-signature',
    group: 'forged',
    severity: 'critical',
    sent: 'an empty signature header, and one with only the prefix',
    expected: 'all rejected',
    impact: 'Two empty values compare as equal: a published library accepted `v1,` for every event.',
    run: (context) =>
      expectRejected(
        context,
        withSignature(context, 'an empty header', () => ''),
        withSignature(context, 'only the prefix', (prefix) => prefix.trimEnd()),
      ),
  },
  {
    id: 'cut-signature',
    group: 'forged',
    severity: 'critical',
    sent: 'the first four characters of the correct signature',
    expected: 'rejected',
    impact:
      'Only the characters that were sent are compared: one or two are enough, and an attacker guesses them in a few hundred attempts.',
    run: (context) =>
      expectRejected(
        context,
        withSignature(context, 'delivery', (prefix, encoded) => `${prefix}${encoded.slice(0, 4)}`),
      ),
  },
  {
    id: 'wrong-prefix',
    group: 'forged',
    severity: 'minor',
    sent: 'the correct signature with a letter before its prefix',
    expected: 'rejected',
    impact: 'The version of the signature is not checked: a signature of another, perhaps weaker, kind is accepted.',
    run: async (context) => {
      const { prefix } = toParts(context, context.make());
      if (prefix === '') return notApplicable('the signatures of this scheme have no prefix');
      return expectRejected(
        context,
        withSignature(context, 'delivery', (_prefix, encoded) => `x${prefix}${encoded}`),
      );
    },
  },
];

/** Checks of ambiguous headers. */
const AMBIGUOUS_CHECKS: readonly Check[] = [
  {
    id: 'loose-base64',
    group: 'forged',
    severity: 'minor',
    sent: 'the correct signature without padding, with unused bits set, and with a stray character',
    expected: 'all rejected',
    impact: 'One signature has many spellings: replay protection that compares signatures as text can be bypassed.',
    async run(context) {
      if (context.scheme.description.signature?.encoding !== 'base64') return notApplicable(NO_PADDING);
      const deliveries: ProbeDelivery[] = [];
      for (const [label, change] of NON_CANONICAL_FORMS) {
        const delivery = makePadded(context, label);
        if (delivery === undefined) return notApplicable(NO_PADDING);
        deliveries.push(rewriteSignature(context, delivery, change));
      }
      return expectRejected(context, ...deliveries);
    },
  },
  {
    id: 'many-signatures',
    group: 'forged',
    severity: 'minor',
    sent: `${SIGNATURE_COUNT} signatures with another key before the valid one`,
    expected: 'rejected',
    impact: 'Untrusted clients decide how expensive a request is: with thousands of entries, a few requests keep a CPU busy.',
    async run(context) {
      const { separator, foreignKey, signatureName } = context.scheme;
      if (separator === undefined || foreignKey === undefined)
        return notApplicable('the header of this scheme holds only one signature');
      const delivery = context.make();
      const foreign = toForeignEntry(context, delivery);
      const list = [...Array.from({ length: SIGNATURE_COUNT }, () => foreign), getField(delivery.fields, signatureName)];
      return expectRejected(context, {
        ...delivery,
        fields: withField(delivery.fields, signatureName, () => list.join(separator)),
      });
    },
  },
  {
    id: 'two-header-families',
    group: 'forged',
    severity: 'major',
    sent: 'valid headers under their alternative names (svix- instead of webhook-), together with the usual ones with another ID',
    expected: 'rejected',
    impact:
      'The library verifies one set of headers and your code reads the ID from the other: a captured event can be replayed with any ID.',
    run: runFamilies,
  },
  {
    id: 'repeated-header',
    group: 'forged',
    severity: 'minor',
    sent: 'a valid delivery with a second ID header, before the signed one and after it',
    expected: 'all rejected',
    impact: 'Some parsers use the first header, some the last: the verified ID and the one that your code reads can differ.',
    run: runRepeated,
  },
  {
    id: 'separator-in-id',
    group: 'forged',
    severity: 'minor',
    sent: 'a valid signature over an ID that contains the separator of the signed parts (a dot)',
    expected: 'rejected',
    impact:
      'The separator delimits ID, timestamp and body in the signed text. If the ID contains one, bytes can be moved between the parts and the signature stays valid.',
    async run(context) {
      const { isIdSigned, description, toTimeText } = context.scheme;
      const { separator } = description;
      if (!isIdSigned || separator === '') return notApplicable('this scheme does not sign an ID, or uses no separator');
      const { id, timestamp } = context.make();
      return expectRejected(context, context.make({ id: [id, toTimeText(timestamp), 'x'].join(separator) }));
    },
  },
];

/** In the order of the report. */
export const MALFORMED_CHECKS: readonly Check[] = [...MISSING_PART_CHECKS, ...AMBIGUOUS_CHECKS];
