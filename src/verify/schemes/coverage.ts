/** Which parts of a request a signature covers, where the scheme reads from, and how it writes times. */
import { type EpochMilliseconds, toHttpDate, toInstant } from '../../core/clock.ts';
import { METHODS_WITHOUT_CONTENT } from '../../core/request.ts';
import type {
  FieldPiece,
  HeaderListPiece,
  IdSource,
  Piece,
  SchemeDescription,
  SortedFormPiece,
  TimestampSource,
  TimestampUnit,
} from './description.ts';

/** Whether a piece is a single value of the message. */
export function isFieldPiece(piece: Piece): piece is FieldPiece {
  return isRead(piece) && !('headersIn' in piece) && !('sortedForm' in piece);
}

/** Whether the text of a piece is read with the head or the body, and kept in `SignedHead.fields`. */
export function isRead(piece: Piece): piece is FieldPiece | HeaderListPiece | SortedFormPiece {
  return typeof piece === 'object' && !('text' in piece) && !('bodySha256' in piece);
}

const WHOLE_BODY: ReadonlySet<Piece> = new Set<Piece>(['body', 'bodyWithoutSignature', 'form']);
/** The fields of a notification that Amazon SNS signs. */
const SNS_FIELDS = /^\$\.(?:Message|MessageId|Subject|Timestamp|TopicArn|Type)$/;
const WHOLE_TARGET: ReadonlySet<Piece> = new Set<Piece>(['url', 'urlWithoutSignature', 'target']);

/** Whether the signature covers everything in the body, so that an attacker can change nothing in it. */
export function coversBody(description: SchemeDescription): boolean {
  const { signed } = description;
  if (signed.some((piece) => WHOLE_BODY.has(piece) || hasBodyIn(piece))) return true;
  return description.onlySignedFields === true && coversFields(description);
}

/**
 * Whether an attacker without a key or token cannot choose the value at a JSON path of the body. The value of a token in place of a
 * signature counts as covered: its holder can write any event.
 */
export function coversValue(description: SchemeDescription, path: string): boolean {
  if (description.isSignedInContent === true) return SNS_FIELDS.test(path);
  if (description.signed.length === 0 || coversBody(description)) return true;
  return listSignedPlaces(description).some((place) => 'json' in place && place.json === path);
}

function hasBodyIn(piece: Piece): boolean {
  return typeof piece === 'object' && ('bodySha256' in piece || 'sortedForm' in piece);
}

/** Whether all fields of the form are signed, in order of their names. */
export function signsSortedForm({ signed }: SignedForm): boolean {
  return signed.some((piece) => typeof piece === 'object' && 'sortedForm' in piece);
}

type SignedForm = Pick<SchemeDescription, 'signature' | 'signed' | 'timestamp' | 'contentDigestParameter'>;

/** Whether each delivery must be a URL-encoded form, all of whose fields are signed. */
export function needsUrlEncoded(description: SignedForm): boolean {
  const { signed, contentDigestParameter } = description;
  return signsSortedForm(description) || (signed.includes('form') && contentDigestParameter === undefined);
}

/** Whether each delivery must be a form, because the signature, or a signed value, is in its fields. */
export function needsForm(description: SignedForm): boolean {
  const { signature, signed, timestamp } = description;
  const isInForm = (place: unknown): boolean => typeof place === 'object' && place !== null && 'form' in place;
  return signature?.form !== undefined || needsUrlEncoded(description) || isInForm(timestamp?.from) || signed.some(isInForm);
}

/** A path in a field leaves the rest of the field unsigned. */
function coversFields(description: SchemeDescription): boolean {
  const fields = listSignedPlaces(description).filter((place) => 'form' in place);
  const isWhole = fields.every((place) => !('path' in place) || place.path === undefined);
  return fields.length > 0 && isWhole && description.signature?.path === undefined;
}

/** Whether the signature covers the ID, if a delivery has one. */
export function coversId(description: SchemeDescription): boolean {
  const { signed, id } = description;
  if (id === undefined || signed.length === 0 || signed.includes('id') || 'claim' in id) return true;
  if ('query' in id) return coversQuery(description);
  // In `form` nothing separates names from values, so an attacker can move bytes from the ID to the field after it, or from it.
  const isInBody = 'json' in id || 'form' in id || 'xml' in id;
  return isInBody && coversBody(description) && !signed.includes('form');
}

/** Whether the signature covers the query, so that the gate need not reject it. */
export function coversQuery({ signed }: SchemeDescription): boolean {
  return signed.some((piece) => WHOLE_TARGET.has(piece));
}

/** Whether the signature covers the query of requests by this method alone; their body must be empty. */
export function coversQueryOf({ jwt }: SchemeDescription, method: string): boolean {
  return method === 'GET' && jwt?.bodyHash?.query !== undefined;
}

/** Whether the URL is signed as the sender wrote it, so that the gate must know its own public URL. */
export function signsUrl({ signed, contentDigestParameter }: SchemeDescription): boolean {
  return signed.includes('url') || signed.includes('urlWithoutSignature') || contentDigestParameter !== undefined;
}

/** The places of signed values, which must be read before a request is verified. */
export function listSignedPlaces({ signed, timestamp, id }: SchemeDescription): (FieldPiece | TimestampSource | IdSource)[] {
  return [
    ...signed.filter(isFieldPiece),
    ...(timestamp !== undefined && signed.includes('timestamp') ? [timestamp.from] : []),
    ...(id !== undefined && signed.includes('id') ? [id] : []),
  ];
}

/** Whether the scheme reads single parameters of the query. */
export function readsQuery(description: SchemeDescription): boolean {
  const { signature, id } = description;
  const isSigned = listSignedPlaces(description).some((place) => 'query' in place);
  return isSigned || signature?.query !== undefined || (id !== undefined && 'query' in id);
}

/** Whether the signature, or a signed value, is in the body, so that it must be parsed before it is verified. */
export function readsBody(description: SchemeDescription): boolean {
  const { signature } = description;
  const isSigned = listSignedPlaces(description).some((place) => 'json' in place || 'form' in place);
  return isSigned || signature?.json !== undefined || signature?.form !== undefined || signsSortedForm(description);
}

/** The methods by which the sender sends deliveries; undefined if the sender is not known. */
export function toSenderMethods({ methods, from }: SchemeDescription): readonly string[] | undefined {
  return methods ?? (from === undefined ? undefined : ['POST']);
}

/**
 * Whether the sender may send a delivery without content by this method, which then needs no Content-Type. Not if only the content is
 * signed: all requests without content would have the same signature.
 */
export function mayBeEmpty(description: SchemeDescription, method: string): boolean {
  if (coversQueryOf(description, method)) return true;
  const methods = toSenderMethods(description);
  const { signed } = description;
  const signsOnlyContent = signed.length > 0 && signed.every((piece) => WHOLE_BODY.has(piece) || hasBodyIn(piece));
  return METHODS_WITHOUT_CONTENT.has(method) && methods?.includes(method) === true && !signsOnlyContent;
}

/** Whether no request without content can be accepted. */
export function needsContent(description: SchemeDescription): boolean {
  const { contentShape, isSignedInContent, signature, jwt, timestamp } = description;
  const needs = contentShape !== undefined || isSignedInContent === true || signature?.content !== undefined;
  const isTimeInBody = timestamp !== undefined && ('json' in timestamp.from || 'form' in timestamp.from);
  return needs || isTimeInBody || jwt?.content !== undefined || readsBody(description);
}

/** The headers with signatures or signed values, beside those of the ID and the timestamp. */
export function listFieldHeaders({ signature, signed }: SchemeDescription): string[] {
  const pieces = signed.flatMap((piece) => {
    if (!isRead(piece) || 'sortedForm' in piece) return [];
    if ('headersIn' in piece) return [piece.headersIn];
    return 'header' in piece ? [piece.header] : [];
  });
  return [...(signature?.moreHeaders ?? []), ...pieces];
}

/** Whether the scheme reads more than an ID, a timestamp and signatures in one header each. */
export function needsFields(description: SchemeDescription): boolean {
  const { signature, signed, timestamp, id } = description;
  const isPlain = (place: object): boolean => !('query' in place || 'signaturePart' in place || 'part' in place);
  return (
    readsQuery(description) ||
    readsBody(description) ||
    signature?.moreHeaders !== undefined ||
    signed.some(isRead) ||
    (timestamp !== undefined && !isPlain(timestamp.from)) ||
    (id !== undefined && !isPlain(id))
  );
}

// The formats of timestamps. Parsing is strict, because lenient parsers disagree with each other.

/** How to parse and format one unit. */
interface TimestampFormat {
  /** Name of the unit. */
  readonly title: string;
  /** Description for the operator. */
  readonly form: string;
  /** Whether the text is a number. */
  readonly isNumber: boolean;
  /** Undefined if the text does not have this format. */
  parse(text: string): EpochMilliseconds | undefined;
  format(at: EpochMilliseconds): string;
}

/**
 * The form has no proper beginning or end that is also a time: no byte can move between a time and the signed part next to it. So the
 * offset has exactly one form, and nothing but the fraction has a variable length.
 */
const RFC_3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/;
/** IMF-fixdate (RFC 9110 §5.6.7), always 29 characters. */
const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/;

function digits(title: string, max: number, factor: number): TimestampFormat {
  // Digits only: lenient parsers disagree about `1700000000junk`, signs, fractions and exponents.
  // No leading zeros: with `signed: [body, timestamp]` an attacker could move them from the end of the body into the timestamp.
  const pattern = new RegExp(`^(?:0|[1-9][0-9]{0,${max - 1}})$`);
  return {
    title,
    form: `1 to ${max} digits without leading zeros`,
    isNumber: true,
    parse: (text) => (pattern.test(text) ? Number(text) * factor : undefined),
    format: (at) => String(Math.floor(at / factor)),
  };
}

/** All units. */
export const TIMESTAMP_FORMATS: Readonly<Record<TimestampUnit, TimestampFormat>> = {
  s: digits('seconds', 12, 1_000),
  ms: digits('milliseconds', 15, 1),
  rfc3339: {
    title: 'RFC 3339',
    form: 'a time such as 2026-12-31T00:00:00Z or 2026-12-31T01:00:00.5+01:00',
    isNumber: false,
    parse(text) {
      const at = RFC_3339.test(text) ? Date.parse(text) : Number.NaN;
      return Number.isNaN(at) ? undefined : at;
    },
    format: toInstant,
  },
  'http-date': {
    title: 'an HTTP date',
    form: 'an HTTP date such as Thu, 31 Dec 2026 00:00:00 GMT',
    isNumber: false,
    parse(text) {
      const at = HTTP_DATE.test(text) ? Date.parse(text) : Number.NaN;
      // Each instant has one spelling: a wrong weekday and 31 February are rejected.
      return toHttpDate(at) === text ? at : undefined;
    },
    format: toHttpDate,
  },
};

/** All units, likely ones first. */
export const TIMESTAMP_UNITS: readonly TimestampUnit[] = ['s', 'ms', 'rfc3339', 'http-date'];
