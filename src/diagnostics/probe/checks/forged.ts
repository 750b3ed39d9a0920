/** Checks that what was changed on the way, or made by somebody else, stays out. */
import { withField } from '../anatomy.ts';
import type { Bench, Delivery } from '../bench.ts';
import { type Check, expectRefused, type Finding, notApplicable } from '../check.ts';

const NOT_SIGNED = 'this scheme signs nothing: the header carries the secret itself';
const NOT_JSON = 'the sample is no JSON object';
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
const REPLACEMENT = Buffer.from('\ufffd');

/** A genuine signature over one note, sent with another. */
function withOtherNote(signed: string, toSent: (body: Buffer) => Buffer, label?: string) {
  return (bench: Bench): Delivery => {
    const delivery = bench.make({
      ...(label !== undefined && { label }),
      body: (id, now) => bench.sample.write(id, now, signed),
    });
    return { ...delivery, body: toSent(delivery.body) };
  };
}

/** For checks that change what is signed and can be written in JSON. */
function refuseJson(...makers: readonly ((bench: Bench) => Delivery)[]) {
  return async (bench: Bench): Promise<Finding> => {
    if (!bench.anatomy.isBodySigned) return notApplicable(NOT_SIGNED);
    if (!bench.sample.isJson) return notApplicable(NOT_JSON);
    return expectRefused(bench, ...makers.map((make) => make(bench)));
  };
}

/** Another byte in the middle, and the same length. */
function flip(body: Buffer): Buffer {
  const at = Math.floor(body.length / 2);
  const changed = Buffer.from(body);
  changed[at] = changed[at] === 0x78 ? 0x79 : 0x78;
  return changed;
}

function replaceBytes(body: Buffer, from: Buffer, to: Buffer): Buffer {
  const at = body.indexOf(from);
  return Buffer.concat([body.subarray(0, at), to, body.subarray(at + from.length)]);
}

function pretty(body: Buffer): Buffer {
  return Buffer.from(JSON.stringify(JSON.parse(body.toString()), undefined, 2));
}

/** Checks of the content. */
const CONTENT_CHECKS: readonly Check[] = [
  {
    id: 'tampered-body',
    group: 'forged',
    severity: 'critical',
    sent: 'a genuine signature over content of which one byte was changed',
    expected: 'a refusal',
    cost: 'Anybody can write events: payments that were never made, users with rights they do not have.',
    async run(bench) {
      if (!bench.anatomy.isBodySigned) return notApplicable(NOT_SIGNED);
      const delivery = bench.make();
      return expectRefused(bench, { ...delivery, body: flip(delivery.body) });
    },
  },
  {
    id: 'reserialised-body',
    group: 'forged',
    severity: 'major',
    sent: 'the same JSON written with other spaces, and with a line end after it, under the genuine signature',
    expected: 'refusals',
    cost: 'What is verified is not what came: content that parses alike passes, and honest content fails where two serialisers differ.',
    run: refuseJson(
      withOtherNote('a', pretty, 'other spaces'),
      withOtherNote('a', (body) => Buffer.concat([body, Buffer.from('\n')]), 'a line end more'),
    ),
  },
  {
    id: 'lossy-text',
    group: 'forged',
    severity: 'minor',
    sent: 'content with a broken byte where U+FFFD was signed, and with a byte order mark before it',
    expected: 'refusals',
    cost: 'The content is made into text before it is verified: several contents share one signature, and what reads the bytes sees another event than what was verified.',
    run: refuseJson(
      withOtherNote('\ufffd', (body) => replaceBytes(body, REPLACEMENT, Buffer.from([0xff])), 'a broken byte'),
      withOtherNote('a', (body) => Buffer.concat([BYTE_ORDER_MARK, body]), 'a byte order mark'),
    ),
  },
  {
    id: 'dollar-signs',
    group: 'forged',
    severity: 'major',
    sent: 'content with $$ where $ was signed',
    expected: 'a refusal',
    cost: 'The signed text is made by replacing placeholders, in which $$ and $& mean something: altered content passes, and honest content with a $ fails.',
    run: refuseJson(withOtherNote('5$', (body) => replaceBytes(body, Buffer.from('5$'), Buffer.from('5$$')))),
  },
];

/** Checks of the id and of who signed. */
const SIGNER_CHECKS: readonly Check[] = [
  {
    id: 'tampered-id',
    group: 'forged',
    severity: 'critical',
    sent: 'a genuine delivery under another id',
    expected: 'a refusal',
    cost: 'One captured event can be replayed without end: every copy under a fresh id counts as a new event.',
    async run(bench) {
      const { idName, isIdSigned } = bench.anatomy;
      if (idName === undefined || !isIdSigned) return notApplicable('this scheme signs no id');
      const delivery = bench.make();
      const { id } = bench.make();
      return expectRefused(bench, { ...delivery, id, fields: withField(delivery.fields, idName, () => id) });
    },
  },
  {
    id: 'wrong-key',
    group: 'forged',
    severity: 'critical',
    sent: 'a well-formed delivery signed by another key',
    expected: 'a refusal',
    cost: 'The signature is read and not verified: anybody who knows the URL can send events.',
    async run(bench) {
      const { foreignKey } = bench.anatomy;
      if (foreignKey === undefined) return notApplicable('no other key could be made for this scheme');
      return expectRefused(bench, bench.make({ key: foreignKey }));
    },
  },
  {
    id: 'empty-key',
    group: 'forged',
    severity: 'critical',
    sent: 'a well-formed delivery signed by the empty key',
    expected: 'a refusal',
    cost: 'Where the secret is not set, or is a bare prefix, everything signed with nothing passes. Several libraries had this flaw.',
    async run(bench) {
      const { emptyKey, isBodySigned } = bench.anatomy;
      if (emptyKey === undefined || !isBodySigned) return notApplicable('this scheme has no keys that could be empty');
      return expectRefused(bench, bench.make({ key: emptyKey }));
    },
  },
];

/** In the order of the report. */
export const FORGED_CHECKS: readonly Check[] = [...CONTENT_CHECKS, ...SIGNER_CHECKS];
