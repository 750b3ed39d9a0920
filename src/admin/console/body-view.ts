/** Shows the stored body of a request, or says why there is none. */
import { containsSecret } from '../../core/secret-search.ts';
import type { BodyAbsence, JournalBody } from '../../telemetry/journal/journal.ts';
import type { BodyDenial, BodyView } from './delivery-schemas.ts';

/** The context of a stored body. */
export interface BodyContext {
  /** Of the current config: a body that contains one is not shown. */
  readonly secrets: readonly Buffer[];
  /** Undefined if the reader may see it. */
  readonly denial: BodyDenial | undefined;
  /** Its host. */
  readonly replica: string;
  /** Size of the body as it arrived. */
  readonly bytes: number;
}

const ABSENCES: Readonly<Record<BodyAbsence, string>> = {
  not_verified: 'Not stored: only bodies of verified requests are stored.',
  not_forwarded: 'Not stored: only bodies of events that the app gets are stored. If it is a duplicate, see the first delivery.',
  too_large: 'Not stored: it is larger than storeBody.maxBytes, and values can be redacted only in a whole body.',
  not_json: 'Not stored: values can be redacted only in JSON in UTF-8 with one interpretation and at most 10,000 values.',
  not_text: 'Not stored: it is not text in UTF-8.',
  has_secret: 'Not stored: it contains a signing secret of the config.',
  memory_low: 'Not stored: the gate was near its memory limit, and deliveries come first.',
  evicted: 'No longer stored: newer bodies or requests needed the memory of the journal (journal.maxBodyBytes).',
  expired: 'No longer stored: storeBody.retention has passed, or the settings of the route have changed.',
};

/** Returns null if the route stores no bodies. */
export function toBodyView(body: JournalBody | undefined, context: BodyContext): BodyView | null {
  if (body === undefined) return null;
  const { content, isTruncated, redactions } = body;
  const { bytes, secrets, denial } = context;
  const none = { text: null, bytes, isTruncated: false, redactions: 0 };
  if (!Buffer.isBuffer(content)) return { ...none, absence: content, note: ABSENCES[content] };
  if (denial !== undefined) return { ...none, absence: denial, note: toDenialNote(denial, context) };
  // A secret that was configured later.
  if (containsSecret(content, secrets)) return { ...none, absence: 'has_secret', note: ABSENCES.has_secret };
  const notes = [
    ...(isTruncated ? [`The first ${content.length} of ${bytes} bytes.`] : []),
    ...(redactions > 0 ? [`${redactions} ${redactions === 1 ? 'value is' : 'values are'} redacted.`] : []),
  ];
  return {
    text: content.toString(),
    bytes,
    isTruncated,
    redactions,
    absence: null,
    note: notes.length === 0 ? null : notes.join(' '),
  };
}

function toDenialNote(denial: BodyDenial, { replica }: BodyContext): string {
  if (denial === 'login_required') return 'Stored, but hidden: log in to read it.';
  if (denial === 'not_loopback')
    return 'Stored, but only shown to clients on the same machine, as the admin port has no TLS: use kubectl port-forward.';
  return `Stored on ${replica} only: open the console of that replica.`;
}
