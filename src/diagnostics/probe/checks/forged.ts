/** Checks that tampered deliveries, and those signed with another key, are rejected. */

import { BYTE_ORDER_MARK } from '../../../core/bytes.ts';
import { type Check, type CheckContext, type CheckFinding, expectRejected, notApplicable, type ProbeDelivery } from '../check.ts';
import { withField } from '../probed-scheme.ts';

const NOT_SIGNED = 'this scheme has no signature: the header contains the secret itself';
const NOT_JSON = 'the sample is not a JSON object';
const REPLACEMENT = Buffer.from('\ufffd');

/** A valid signature over one note, sent with another. */
function withOtherNote(signed: string, toSent: (body: Buffer) => Buffer, label?: string) {
  return (context: CheckContext): ProbeDelivery => {
    const delivery = context.make({
      ...(label !== undefined && { label }),
      body: (id, now) => context.sample.write(id, now, signed),
    });
    return { ...delivery, body: toSent(delivery.body) };
  };
}

/** For checks that modify a signed JSON body. */
function rejectJson(...makers: readonly ((context: CheckContext) => ProbeDelivery)[]) {
  return async (context: CheckContext): Promise<CheckFinding> => {
    if (!context.scheme.isBodySigned) return notApplicable(NOT_SIGNED);
    if (!context.sample.isJson) return notApplicable(NOT_JSON);
    return expectRejected(context, ...makers.map((make) => make(context)));
  };
}

/** Changes one byte in the middle. */
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

/** Checks of the body. */
const BODY_CHECKS: readonly Check[] = [
  {
    id: 'tampered-body',
    group: 'forged',
    severity: 'critical',
    sent: 'a valid signature with a body in which one byte was changed',
    expected: 'rejected',
    impact: 'Anyone can forge events: payments that were never made, permissions that were never granted.',
    async run(context) {
      if (!context.scheme.isBodySigned) return notApplicable(NOT_SIGNED);
      const delivery = context.make();
      return expectRejected(context, { ...delivery, body: flip(delivery.body) });
    },
  },
  {
    id: 'reserialised-body',
    group: 'forged',
    severity: 'major',
    sent: 'the same JSON with other whitespace, and with a trailing line ending, under the valid signature',
    expected: 'all rejected',
    impact:
      'The app verifies a re-serialized body instead of the received bytes: altered bodies pass, and valid ones fail if two serializers differ.',
    run: rejectJson(
      withOtherNote('a', pretty, 'other whitespace'),
      withOtherNote('a', (body) => Buffer.concat([body, Buffer.from('\n')]), 'a trailing line ending'),
    ),
  },
  {
    id: 'lossy-text',
    group: 'forged',
    severity: 'minor',
    sent: 'a body with an invalid byte in place of the signed U+FFFD, and one with an added byte order mark',
    expected: 'all rejected',
    impact:
      'The body is decoded as text before verification: several bodies share one signature, and code that reads the bytes sees another event than the one that was verified.',
    run: rejectJson(
      withOtherNote('\ufffd', (body) => replaceBytes(body, REPLACEMENT, Buffer.from([0xff])), 'an invalid byte'),
      withOtherNote('a', (body) => Buffer.concat([BYTE_ORDER_MARK, body]), 'a byte order mark'),
    ),
  },
  {
    id: 'dollar-signs',
    group: 'forged',
    severity: 'major',
    sent: 'a body with $$ in place of the signed $',
    expected: 'rejected',
    impact:
      'The signed text is built with a string replacement in which $$ and $& have a meaning: altered bodies pass, and valid bodies with a $ fail.',
    run: rejectJson(withOtherNote('5$', (body) => replaceBytes(body, Buffer.from('5$'), Buffer.from('5$$')))),
  },
];

/** Checks of the ID and the key. */
const KEY_CHECKS: readonly Check[] = [
  {
    id: 'tampered-id',
    group: 'forged',
    severity: 'critical',
    sent: 'a valid delivery with another ID',
    expected: 'rejected',
    impact: 'A captured event can be replayed forever: every copy with a new ID counts as a new event.',
    async run(context) {
      const { idName, isIdSigned } = context.scheme;
      if (idName === undefined || !isIdSigned) return notApplicable('this scheme does not sign an ID');
      const delivery = context.make();
      const { id } = context.make();
      return expectRejected(context, { ...delivery, id, fields: withField(delivery.fields, idName, () => id) });
    },
  },
  {
    id: 'wrong-key',
    group: 'forged',
    severity: 'critical',
    sent: 'a well-formed delivery signed with another key',
    expected: 'rejected',
    impact: 'The signature is parsed but not verified: anyone who knows the URL can send events.',
    async run(context) {
      const { foreignKey } = context.scheme;
      if (foreignKey === undefined) return notApplicable('this scheme does not allow another key of the same kind');
      return expectRejected(context, context.make({ key: foreignKey }));
    },
  },
  {
    id: 'empty-key',
    group: 'forged',
    severity: 'critical',
    sent: 'a well-formed delivery signed with an empty key',
    expected: 'rejected',
    impact:
      'If the secret is not set, or only a prefix, anything signed with an empty key passes. Several libraries had this vulnerability.',
    async run(context) {
      const { emptyKey, isBodySigned } = context.scheme;
      if (emptyKey === undefined || !isBodySigned) return notApplicable('the keys of this scheme cannot be empty');
      return expectRejected(context, context.make({ key: emptyKey }));
    },
  },
];

/** In the order of the report. */
export const FORGED_CHECKS: readonly Check[] = [...BODY_CHECKS, ...KEY_CHECKS];
