/** Writes a captured delivery as an HTTP Archive (HAR 1.2), which `sidegate explain` and other tools read. */
import { type EpochMilliseconds, toInstant } from '../../core/clock.ts';

/** How much of the body is captured; `withheld`: nothing, because it contains a configured secret. */
export type CapturedBody = 'complete' | 'truncated' | 'not_read' | 'withheld';

/** A rejected delivery, after redaction. */
interface CapturedDelivery {
  readonly requestId: string;
  readonly route: string;
  readonly reason: string;
  readonly detail: string | undefined;
  readonly receivedAt: EpochMilliseconds;
  readonly method: string;
  readonly host: string;
  readonly target: string;
  readonly fields: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer;
  readonly bodyState: CapturedBody;
  /** In bytes, as received. */
  readonly bodySize: number;
  /** The target was not redacted. */
  readonly isTargetWhole: boolean;
}

const BODY_NOTES: Readonly<Record<CapturedBody, string | undefined>> = {
  complete: undefined,
  truncated: 'the body was truncated, because it is too large for a capture: the signature cannot be checked',
  not_read: 'the delivery was rejected because of its headers, and its body was not read: the signature cannot be checked',
  withheld: 'the body was not captured, because it contains a configured secret: the signature cannot be checked',
};

/**
 * Formats the archive into a buffer of exactly its size, so that the capture keeps no memory of the request. HAR 1.2 reserves names
 * with an underscore for applications: `_sidegate` contains everything that HAR has no field for.
 */
export function formatHar(delivery: CapturedDelivery): Buffer {
  const { method, host, target, fields, body, bodySize, bodyState, receivedAt, isTargetWhole } = delivery;
  const { requestId, route, reason, detail } = delivery;
  const notes = [
    BODY_NOTES[bodyState],
    isTargetWhole
      ? undefined
      : 'the query, or the whole target, was redacted: if the sender signs the URL, the signature cannot match',
  ];
  const headers = fields.map(([name, value]) => ({ name, value: Buffer.from(value, 'latin1').toString('utf8') }));
  const mimeType = headers.find(({ name }) => name.toLowerCase() === 'content-type')?.value ?? '';
  const request = {
    method,
    url: `https://${host}${target}`,
    httpVersion: 'HTTP/1.1',
    cookies: [],
    headers,
    queryString: [],
    ...(body.length === 0 ? undefined : { postData: { mimeType, text: body.toString('base64'), encoding: 'base64' } }),
    headersSize: -1,
    bodySize,
  };
  const own = { requestId, route, reason, detail, body: bodyState, notes: notes.filter((note) => note !== undefined) };
  const entry = { startedDateTime: toInstant(receivedAt), time: 0, request, ...NO_RESPONSE, _sidegate: own };
  const text = JSON.stringify({ log: { version: '1.2', creator: { name: 'sidegate', version: '1' }, entries: [entry] } });
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text));
  bytes.write(text);
  return bytes;
}

/** HAR requires these fields. */
const NO_RESPONSE = {
  response: {
    status: 0,
    statusText: '',
    httpVersion: 'HTTP/1.1',
    cookies: [],
    headers: [],
    content: { size: 0, mimeType: '' },
    redirectURL: '',
    headersSize: -1,
    bodySize: -1,
  },
  cache: {},
  timings: { send: 0, wait: 0, receive: 0 },
};
