/** Checks that genuine deliveries get in, in every form in which senders write them. */
import { getField, withField } from '../anatomy.ts';
import type { Bench, Delivery } from '../bench.ts';
import { type Check, expectAccepted, type Finding, notApplicable, toForeignEntry } from '../check.ts';

const KIB = 1024;

/** Puts entries before the genuine signature, as a sender with two secrets does. */
function withEntriesBefore(bench: Bench, entries: (delivery: Delivery) => readonly string[]): Delivery | undefined {
  const { separator, signatureName } = bench.anatomy;
  if (separator === undefined) return undefined;
  const delivery = bench.make();
  const list = [...entries(delivery), getField(delivery.fields, signatureName)].join(separator);
  return { ...delivery, fields: withField(delivery.fields, signatureName, () => list) };
}

function recase(delivery: Delivery, label: string, change: (name: string) => string): Delivery {
  return { ...delivery, label, fields: delivery.fields.map(([name, value]) => [change(name), value]) };
}

async function acceptIfAny(bench: Bench, delivery: Delivery | undefined): Promise<Finding> {
  return delivery === undefined ? notApplicable('a header of this scheme holds one signature') : expectAccepted(bench, delivery);
}

function longBody(kib: number) {
  return async (bench: Bench): Promise<Finding> =>
    bench.sample.isJson
      ? expectAccepted(bench, bench.make({ body: (id, now) => bench.sample.writeLong(id, now, kib * KIB) }))
      : notApplicable('the sample is no JSON object, so it cannot be made longer');
}

/** In the order of the report; the first is the one without which the others prove nothing. */
export const GENUINE_CHECKS: readonly Check[] = [
  {
    id: 'valid',
    group: 'genuine',
    severity: 'critical',
    sent: 'a genuine delivery',
    expected: '2xx',
    cost: 'No event arrives. Senders retry for hours or days, then give up, and many switch the endpoint off.',
    run: (bench) => expectAccepted(bench, bench.make()),
  },
  {
    id: 'several-signatures',
    group: 'genuine',
    severity: 'major',
    sent: 'a signature by another key, then the genuine one, in one header',
    expected: '2xx',
    cost: 'While a secret is rotated, senders sign with the old and the new one. Whoever reads a single entry loses every event of that time.',
    async run(bench) {
      const { foreignKey, separator } = bench.anatomy;
      if (separator !== undefined && foreignKey === undefined) return notApplicable('no other key could be made for this scheme');
      return acceptIfAny(
        bench,
        withEntriesBefore(bench, (delivery) => [toForeignEntry(bench, delivery)]),
      );
    },
  },
  {
    id: 'odd-signature-entries',
    group: 'genuine',
    severity: 'major',
    sent: 'two entries that are no signatures, then the genuine one',
    expected: '2xx',
    cost: 'The day the sender adds another version of its signatures, every event is refused, though the old signature is still there.',
    run: (bench) =>
      acceptIfAny(
        bench,
        withEntriesBefore(bench, ({ fields }) => [
          'v0x',
          `${bench.anatomy.split(getField(fields, bench.anatomy.signatureName)).prefix}*`,
        ]),
      ),
  },
  {
    id: 'raw-bytes',
    group: 'genuine',
    severity: 'major',
    sent: 'JSON with unusual spaces, line ends, escapes, letters and $&, signed as it is',
    expected: '2xx',
    cost: 'The signature is checked over content that was parsed and written again: events fail one by one, by what is in them, and are hard to trace.',
    run: (bench) => expectAccepted(bench, bench.make({ body: bench.sample.writeOddly })),
  },
  {
    id: 'content-type-parameter',
    group: 'genuine',
    severity: 'minor',
    sent: 'the same with `; charset=utf-8` after the content type',
    expected: '2xx',
    cost: 'A sender that changes its HTTP library adds the parameter, and from then on nothing arrives.',
    run: (bench) => expectAccepted(bench, { ...bench.make(), contentType: `${bench.contentType.split(';')[0]}; charset=utf-8` }),
  },
  {
    id: 'header-case',
    group: 'genuine',
    severity: 'major',
    sent: 'the names of the headers in lower case, and in upper case',
    expected: '2xx to both',
    cost: 'Names of headers have no case, and proxies, HTTP/2 above all, change it: a new proxy in between and nothing arrives.',
    run: (bench) =>
      expectAccepted(
        bench,
        recase(bench.make(), 'lower case', (name) => name.toLowerCase()),
        recase(bench.make(), 'upper case', (name) => name.toUpperCase()),
      ),
  },
  {
    id: 'chunked',
    group: 'genuine',
    severity: 'major',
    sent: 'content in chunks, without its length',
    expected: '2xx',
    cost: 'Some senders and proxies do not say the length. What reads up to a Content-Length sees an empty event, or a part of it.',
    run: (bench) => expectAccepted(bench, { ...bench.make(), isChunked: true }),
  },
  {
    id: 'big-body',
    group: 'genuine',
    severity: 'major',
    sent: 'content of 256 KiB',
    expected: '2xx',
    cost: 'Common defaults end at 100 KiB. Events with long lists, such as a large push, never arrive, and only those.',
    run: longBody(256),
  },
  {
    id: 'very-big-body',
    group: 'genuine',
    severity: 'minor',
    sent: 'content of 1 MiB',
    expected: '2xx',
    cost: 'Rare with most senders, but GitHub sends up to 25 MB: what is over the limit is lost where the sender takes a 413 for final.',
    run: longBody(1024),
  },
];
