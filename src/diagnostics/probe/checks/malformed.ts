/** Checks that headers which are missing, cut, repeated or contradictory let nothing in. */
import { type Anatomy, getField, type SignatureParts, withField } from '../anatomy.ts';
import type { Bench, Delivery } from '../bench.ts';
import { type Check, expectRefused, type Finding, notApplicable, toForeignEntry } from '../check.ts';
import type { Fields } from '../client.ts';

const MOST_SIGNATURES = 100;
const MOST_TRIES = 16;
const BASE64_DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

/** A genuine delivery with its signature written otherwise. */
function withSignature(bench: Bench, label: string, change: Change): Delivery {
  return rewriteSignature(bench, bench.make({ label }), change);
}

type Change = (prefix: string, encoded: string) => string;

function rewriteSignature(bench: Bench, delivery: Delivery, change: Change): Delivery {
  const fields = withField(delivery.fields, bench.anatomy.signatureName, (value) => {
    const { before, prefix, encoded } = bench.anatomy.split(value);
    return `${before}${change(prefix, encoded)}`;
  });
  return { ...delivery, fields };
}

function without(bench: Bench, label: string, names: readonly string[]): Delivery {
  const delivery = bench.make({ label });
  return { ...delivery, fields: delivery.fields.filter(([name]) => !names.includes(name)) };
}

/** The headers whose absence leaves something unverified. */
function findSignedNames(anatomy: Anatomy): string[] {
  const names = [
    anatomy.signatureName,
    anatomy.isIdSigned ? anatomy.idName : undefined,
    anatomy.isTimestampSigned ? anatomy.timestampName : undefined,
  ];
  return [...new Set(names.filter((name) => name !== undefined))];
}

/** A digit more in the bits that decoders throw away (RFC 4648 §3.5). */
function setUnusedBit(encoded: string): string {
  const end = encoded.indexOf('=');
  const digit = BASE64_DIGITS.indexOf(encoded.charAt(end - 1));
  return `${encoded.slice(0, end - 1)}${BASE64_DIGITS.charAt(digit + 1)}${encoded.slice(end)}`;
}

function toParts({ anatomy }: Bench, delivery: Delivery): SignatureParts {
  return anatomy.split(getField(delivery.fields, anatomy.signatureName));
}

/** Signatures in DER differ in length, so that some have no padding: then another is made. */
function makePadded(bench: Bench, label: string): Delivery | undefined {
  const made = Array.from({ length: MOST_TRIES }, () => bench.make({ label }));
  return made.find((delivery) => toParts(bench, delivery).encoded.endsWith('='));
}

const NO_PADDING = 'the signatures of this scheme are not base64 with padding';
const LOOSE_FORMS: readonly (readonly [label: string, change: Change])[] = [
  ['no padding', (prefix, text) => prefix + text.replace(/=+$/, '')],
  ['unused bits', (prefix, text) => prefix + setUnusedBit(text)],
  ['a stray character', (prefix, text) => `${prefix}${text.slice(0, 8)}!${text.slice(8)}`],
];

function repeat(fields: Fields, name: string, value: string, where: 'before' | 'after'): Fields {
  return where === 'before' ? [[name, value], ...fields] : [...fields, [name, value]];
}

async function runMissing(bench: Bench): Promise<Finding> {
  const names = findSignedNames(bench.anatomy);
  const each = names.length > 1 ? names.map((name) => without(bench, `none with ${name}`, [name])) : [];
  return expectRefused(bench, ...each, without(bench, 'one without any', names));
}

async function runRepeated(bench: Bench): Promise<Finding> {
  const { idName, isIdSigned } = bench.anatomy;
  if (idName === undefined || !isIdSigned) return notApplicable('this scheme signs no id');
  const deliveries = (['before', 'after'] as const).map((where) => {
    const delivery = bench.make({ label: `another id ${where} the signed one` });
    return { ...delivery, fields: repeat(delivery.fields, idName, bench.make().id, where) };
  });
  return expectRefused(bench, ...deliveries);
}

async function runFamilies(bench: Bench): Promise<Finding> {
  const { description, idName } = bench.anatomy;
  const { twins: names } = description;
  if (names === undefined || idName === undefined) return notApplicable('this scheme has one family of headers');
  const delivery = bench.make();
  const twins: Fields = delivery.fields.map(([name, value]) => [names[name] ?? name, value]);
  const { id } = bench.make();
  return expectRefused(bench, { ...delivery, fields: [...twins, ...withField(delivery.fields, idName, () => id)] });
}

/** What is there is too little. */
const CUT_CHECKS: readonly Check[] = [
  {
    id: 'missing-headers',
    group: 'forged',
    severity: 'critical',
    sent: 'deliveries without one of the signed headers, and without any',
    expected: 'refusals',
    cost: 'The check is made where there is something to check: whoever leaves the signature out gets in.',
    run: runMissing,
  },
  {
    id: 'empty-signature',
    group: 'forged',
    severity: 'critical',
    sent: 'a signature header with nothing in it, and with the prefix alone',
    expected: 'refusals',
    cost: 'Comparing nothing with nothing succeeds: a published library let `v1,` pass for every event.',
    run: (bench) =>
      expectRefused(
        bench,
        withSignature(bench, 'nothing', () => ''),
        withSignature(bench, 'the prefix alone', (prefix) => prefix.trimEnd()),
      ),
  },
  {
    id: 'cut-signature',
    group: 'forged',
    severity: 'critical',
    sent: 'the first four characters of the right signature',
    expected: 'a refusal',
    cost: 'Only as much is compared as was sent: one or two characters are enough, and those are guessed in a few hundred tries.',
    run: (bench) =>
      expectRefused(
        bench,
        withSignature(bench, 'it', (prefix, encoded) => `${prefix}${encoded.slice(0, 4)}`),
      ),
  },
  {
    id: 'wrong-prefix',
    group: 'forged',
    severity: 'minor',
    sent: 'the right signature with a letter before its prefix',
    expected: 'a refusal',
    cost: 'The version of a signature is not looked at: one of another kind, perhaps a weaker one, is taken for it.',
    run: async (bench) => {
      const { prefix } = toParts(bench, bench.make());
      if (prefix === '') return notApplicable('the signatures of this scheme have no prefix');
      return expectRefused(
        bench,
        withSignature(bench, 'it', (_prefix, encoded) => `x${prefix}${encoded}`),
      );
    },
  },
];

/** What is there can be read in more than one way. */
const AMBIGUOUS_CHECKS: readonly Check[] = [
  {
    id: 'loose-base64',
    group: 'forged',
    severity: 'minor',
    sent: 'the right signature without its padding, with unused bits set, and with a stray character in it',
    expected: 'refusals',
    cost: 'One signature has many spellings: whatever counts or remembers signatures as text can be led past.',
    async run(bench) {
      if (bench.anatomy.description.signature?.encoding !== 'base64') return notApplicable(NO_PADDING);
      const deliveries: Delivery[] = [];
      for (const [label, change] of LOOSE_FORMS) {
        const delivery = makePadded(bench, label);
        if (delivery === undefined) return notApplicable(NO_PADDING);
        deliveries.push(rewriteSignature(bench, delivery, change));
      }
      return expectRefused(bench, ...deliveries);
    },
  },
  {
    id: 'many-signatures',
    group: 'forged',
    severity: 'minor',
    sent: `${MOST_SIGNATURES} signatures by another key before the right one`,
    expected: 'a refusal',
    cost: 'Strangers decide how much work a request is: a list of thousands keeps a processor busy with a few requests.',
    async run(bench) {
      const { separator, foreignKey, signatureName } = bench.anatomy;
      if (separator === undefined || foreignKey === undefined)
        return notApplicable('a header of this scheme holds one signature');
      const delivery = bench.make();
      const foreign = toForeignEntry(bench, delivery);
      const list = [...Array.from({ length: MOST_SIGNATURES }, () => foreign), getField(delivery.fields, signatureName)];
      return expectRefused(bench, {
        ...delivery,
        fields: withField(delivery.fields, signatureName, () => list.join(separator)),
      });
    },
  },
  {
    id: 'two-header-families',
    group: 'forged',
    severity: 'major',
    sent: 'genuine headers under the names of the other family (svix- for webhook-), beside its own with another id',
    expected: 'a refusal',
    cost: 'One library verifies the one family, your code reads the id of the other: a captured event comes again under any id.',
    run: runFamilies,
  },
  {
    id: 'repeated-header',
    group: 'forged',
    severity: 'minor',
    sent: 'a genuine delivery with a second id header, before the signed one and after it',
    expected: 'refusals',
    cost: 'Some parsers take the first, some the last: what was verified and what your code reads can be two ids.',
    run: runRepeated,
  },
  {
    id: 'separator-in-id',
    group: 'forged',
    severity: 'minor',
    sent: 'a genuine signature over an id that has the separator of the signed parts in it (a dot)',
    expected: 'a refusal',
    cost: 'The separator parts id, time and content in what is signed. With one in the id, bytes can be moved between them and the signature still fits.',
    async run(bench) {
      const { isIdSigned, description, toTimeText } = bench.anatomy;
      const { separator } = description;
      if (!isIdSigned || separator === '') return notApplicable('this scheme signs no id, or puts nothing after it');
      const { id, timestamp } = bench.make();
      return expectRefused(bench, bench.make({ id: [id, toTimeText(timestamp), 'x'].join(separator) }));
    },
  },
];

/** In the order of the report. */
export const MALFORMED_CHECKS: readonly Check[] = [...CUT_CHECKS, ...AMBIGUOUS_CHECKS];
