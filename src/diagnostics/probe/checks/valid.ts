/** Checks that valid deliveries are accepted, in every form that senders use. */

import {
  type Check,
  type CheckContext,
  type CheckFinding,
  expectAccepted,
  notApplicable,
  type ProbeDelivery,
  toForeignEntry,
} from '../check.ts';
import { getField, withField } from '../probed-scheme.ts';

const KIB = 1024;

/** Puts entries before the valid signature, as a sender with two secrets does. */
function withEntriesBefore(
  context: CheckContext,
  entries: (delivery: ProbeDelivery) => readonly string[],
): ProbeDelivery | undefined {
  const { separator, signatureName } = context.scheme;
  if (separator === undefined) return undefined;
  const delivery = context.make();
  const list = [...entries(delivery), getField(delivery.fields, signatureName)].join(separator);
  return { ...delivery, fields: withField(delivery.fields, signatureName, () => list) };
}

function recase(delivery: ProbeDelivery, label: string, change: (name: string) => string): ProbeDelivery {
  return { ...delivery, label, fields: delivery.fields.map(([name, value]) => [change(name), value]) };
}

async function acceptIfPossible(context: CheckContext, delivery: ProbeDelivery | undefined): Promise<CheckFinding> {
  return delivery === undefined
    ? notApplicable('the header of this scheme holds only one signature')
    : expectAccepted(context, delivery);
}

function longBody(kib: number) {
  return async (context: CheckContext): Promise<CheckFinding> =>
    context.sample.isJson
      ? expectAccepted(context, context.make({ body: (id, now) => context.sample.writeLong(id, now, kib * KIB) }))
      : notApplicable('the sample is not a JSON object, so it cannot be made longer');
}

/** In the order of the report. Without the first one, the others prove nothing. */
export const VALID_CHECKS: readonly Check[] = [
  {
    id: 'valid',
    group: 'valid',
    severity: 'critical',
    sent: 'a valid delivery',
    expected: '2xx',
    impact: 'No event arrives. Senders retry for hours or days, then give up, and many disable the endpoint.',
    run: (context) => expectAccepted(context, context.make()),
  },
  {
    id: 'several-signatures',
    group: 'valid',
    severity: 'major',
    sent: 'a signature with another key and then the valid one, in one header',
    expected: '2xx',
    impact:
      'During a rotation, senders sign with the old and the new secret. An endpoint that reads only one entry loses all events of that time.',
    async run(context) {
      const { foreignKey, separator } = context.scheme;
      if (separator !== undefined && foreignKey === undefined)
        return notApplicable('this scheme does not allow another key of the same kind');
      return acceptIfPossible(
        context,
        withEntriesBefore(context, (delivery) => [toForeignEntry(context, delivery)]),
      );
    },
  },
  {
    id: 'odd-signature-entries',
    group: 'valid',
    severity: 'major',
    sent: 'two entries that are not signatures, then the valid one',
    expected: '2xx',
    impact:
      'As soon as the sender adds a new signature version, every event is rejected, although the old signature is still present.',
    run: (context) =>
      acceptIfPossible(
        context,
        withEntriesBefore(context, ({ fields }) => [
          'v0x',
          `${context.scheme.split(getField(fields, context.scheme.signatureName)).prefix}*`,
        ]),
      ),
  },
  {
    id: 'raw-bytes',
    group: 'valid',
    severity: 'major',
    sent: 'JSON with unusual whitespace, line endings, escapes, characters and $&, signed byte for byte',
    expected: '2xx',
    impact:
      'The signature is verified over a body that was parsed and serialized again: single events fail because of their contents, which is hard to debug.',
    run: (context) => expectAccepted(context, context.make({ body: context.sample.writeOddly })),
  },
  {
    id: 'content-type-parameter',
    group: 'valid',
    severity: 'minor',
    sent: 'a valid delivery with `; charset=utf-8` in the content type',
    expected: '2xx',
    impact: 'If the sender switches to an HTTP library that adds the parameter, nothing arrives any more.',
    run: (context) =>
      expectAccepted(context, { ...context.make(), contentType: `${context.contentType.split(';')[0]}; charset=utf-8` }),
  },
  {
    id: 'header-case',
    group: 'valid',
    severity: 'major',
    sent: 'header names in lower case, and in upper case',
    expected: '2xx to both',
    impact:
      'Header names are case-insensitive, and proxies change their case, especially with HTTP/2: after adding a proxy, nothing arrives.',
    run: (context) =>
      expectAccepted(
        context,
        recase(context.make(), 'lower case', (name) => name.toLowerCase()),
        recase(context.make(), 'upper case', (name) => name.toUpperCase()),
      ),
  },
  {
    id: 'chunked',
    group: 'valid',
    severity: 'major',
    sent: 'a body in chunks, without a Content-Length',
    expected: '2xx',
    impact:
      'Some senders and proxies do not send the length. Code that relies on Content-Length sees an empty or truncated event.',
    run: (context) => expectAccepted(context, { ...context.make(), isChunked: true }),
  },
  {
    id: 'big-body',
    group: 'valid',
    severity: 'major',
    sent: 'a body of 256 KiB',
    expected: '2xx',
    impact: 'Common default limits are 100 KiB. Only events with long lists, such as a large push, never arrive.',
    run: longBody(256),
  },
  {
    id: 'very-big-body',
    group: 'valid',
    severity: 'minor',
    sent: 'a body of 1 MiB',
    expected: '2xx',
    impact:
      'Rare with most senders, but GitHub sends up to 25 MB: events over the limit are lost if the sender does not retry after a 413.',
    run: longBody(1024),
  },
];
