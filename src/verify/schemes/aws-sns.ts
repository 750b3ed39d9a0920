/** Amazon SNS, which signs inside the body: parses messages, builds the signed string, and decides which URLs may be followed. */
import { type KeyObject, verify } from 'node:crypto';
import { parseBase64 } from '../../core/bytes.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { parseStrictJson } from '../../core/strict-json.ts';
import { findVariant, JSON_BOUNDS } from './body-values.ts';
import { TIMESTAMP_FORMATS } from './coverage.ts';
import { compileCut } from './removal.ts';

/** A parsed message; nothing in it is verified. */
export interface SnsMessage {
  readonly type: 'Notification' | 'SubscriptionConfirmation' | 'UnsubscribeConfirmation';
  readonly id: string;
  readonly topic: string;
  readonly timestamp: EpochMilliseconds;
  readonly certificateUrl: URL;
  /** The URL that confirms a subscription. */
  readonly subscribeUrl: URL | undefined;
  readonly digest: 'sha1' | 'sha256';
  readonly signature: Buffer;
  /** The signed string: the name and the value of each field, one per line. */
  readonly signed: Buffer;
}

const SIGNED_FIELDS: Readonly<Record<SnsMessage['type'], readonly string[]>> = {
  Notification: ['Message', 'MessageId', 'Subject', 'Timestamp', 'TopicArn', 'Type'],
  SubscriptionConfirmation: ['Message', 'MessageId', 'SubscribeURL', 'Timestamp', 'Token', 'TopicArn', 'Type'],
  UnsubscribeConfirmation: ['Message', 'MessageId', 'SubscribeURL', 'Timestamp', 'Token', 'TopicArn', 'Type'],
};
/** By which we verify a message; an app can do no more with them. */
const SIGNATURE_FIELDS = ['Signature', 'SignatureVersion', 'SigningCertURL'];
/** All fields that SNS writes; the signature covers some of them. Unknown fields are allowed, because apps do not know them either. */
const KNOWN_FIELDS = [
  ...new Set(Object.values(SIGNED_FIELDS).flat()),
  ...SIGNATURE_FIELDS,
  'UnsubscribeURL',
  'MessageAttributes',
];
/** Apps follow or trust these fields, so they are rejected in messages whose signature does not cover them. */
const ONLY_WHERE_SIGNED = ['Subject', 'SubscribeURL', 'Token'];
/** The sender omits this field if it is empty. */
const OPTIONAL_FIELD = 'Subject';
const DIGESTS: Readonly<Record<string, SnsMessage['digest']>> = { '1': 'sha1', '2': 'sha256' };

const TOPIC = /^arn:aws(?:-[a-z]+)*:sns:([a-z0-9-]{3,32}):[0-9]{12}:[A-Za-z0-9_.-]{1,256}$/;
const CERTIFICATE_PATH = /^\/[A-Za-z0-9_.-]{1,128}\.pem$/;
/** SNS enforces this for publishers: short, and without control characters. */
const SUBJECT = /^\P{Cc}{0,100}$/u;
/** SNS writes ten, and may add some. Bounds the work for a sender that is not verified yet. */
const MAX_FIELDS = 64;
const LINE_END = /[\r\n]/;
const ID = /^[\x21-\x7e]{1,256}$/;

/** The region in the ARN of a topic; undefined if the text is not an ARN of a topic. */
export function toTopicRegion(topic: string): string | undefined {
  return TOPIC.exec(topic)?.[1];
}

/** Parses a message, or reports what is wrong with it. */
export function parseSnsMessage(body: Buffer): SnsMessage | { readonly problem: string } {
  const fields = parseFields(body);
  if (typeof fields === 'string') return { problem: fields };
  const text = (name: string): string => fields.get(name) ?? '';
  const type = text('Type') as SnsMessage['type'];
  if (!Object.hasOwn(SIGNED_FIELDS, type)) return { problem: 'Type is unknown' };
  const missing = SIGNED_FIELDS[type].find((name) => name !== OPTIONAL_FIELD && !fields.has(name));
  if (missing !== undefined) return { problem: `${missing} is missing` };
  const unclear = SIGNED_FIELDS[type].find((name) => !isUnmistakable(name, fields.get(name)));
  if (unclear !== undefined) return { problem: `${unclear} contains text that SNS would not sign` };
  const unsigned = ONLY_WHERE_SIGNED.find((name) => fields.has(name) && !SIGNED_FIELDS[type].includes(name));
  if (unsigned !== undefined) return { problem: `${unsigned} is not signed in a ${type}` };
  const region = toTopicRegion(text('TopicArn'));
  if (region === undefined) return { problem: 'TopicArn is not the ARN of a topic' };
  const timestamp = TIMESTAMP_FORMATS.rfc3339.parse(text('Timestamp'));
  if (timestamp === undefined || !ID.test(text('MessageId'))) return { problem: 'Timestamp or MessageId is malformed' };
  const certificateUrl = toPinnedUrl(text('SigningCertURL'), region);
  if (certificateUrl === undefined || !CERTIFICATE_PATH.test(certificateUrl.pathname) || certificateUrl.search !== '')
    return { problem: "SigningCertURL does not point to SNS in the topic's region" };
  // Not signed: an app that follows it to unsubscribe must not be sent to another host.
  if (fields.has('UnsubscribeURL') && toPinnedUrl(text('UnsubscribeURL'), region) === undefined)
    return { problem: "UnsubscribeURL does not point to SNS in the topic's region" };
  const digest = DIGESTS[text('SignatureVersion')];
  const signature = parseBase64(text('Signature'));
  if (digest === undefined || signature === undefined || signature.length === 0)
    return { problem: 'Signature or SignatureVersion is malformed' };
  const signed = Buffer.from(SIGNED_FIELDS[type].map((name) => (fields.has(name) ? `${name}\n${text(name)}\n` : '')).join(''));
  const subscribeUrl = toSubscribeUrl(text('SubscribeURL'), region, text('TopicArn'));
  return {
    type,
    id: text('MessageId'),
    topic: text('TopicArn'),
    timestamp,
    certificateUrl,
    subscribeUrl,
    digest,
    signature,
    signed,
  };
}

const cutOpen = compileCut([...SIGNED_FIELDS.Notification, ...SIGNATURE_FIELDS].map((name) => ({ json: `$.${name}` })));

/**
 * The body of a parsed notification without what is signed or is the signature: it has attributes, the URL to unsubscribe, and members that
 * SNS may add. SNS sends the same message in each attempt.
 */
export function toSnsOpenContent(body: Buffer): Buffer {
  return cutOpen({ body });
}

/** Whether the certificate's key signed the message. */
export function isSignedByCertificate({ digest, signed, signature }: SnsMessage, key: KeyObject): boolean {
  return key.asymmetricKeyType === 'rsa' && verify(digest, signed, key, signature);
}

/**
 * Only `Message` may contain line breaks. The signed string has one line per field, so with line breaks in other fields, messages
 * with different fields could share a signed string. All lone surrogates would be encoded as the same bytes.
 */
function isUnmistakable(name: string, text: string | undefined): boolean {
  if (text === undefined) return true;
  if (!text.isWellFormed()) return false;
  if (name === OPTIONAL_FIELD) return SUBJECT.test(text);
  return name === 'Message' || !LINE_END.test(text);
}

/** Returns the string fields, or what is wrong. Strict UTF-8, because invalid bytes would be replaced, and so signed as other bytes. */
function parseFields(body: Buffer): ReadonlyMap<string, string> | string {
  const parsed = parseStrictJson(body, JSON_BOUNDS);
  if (parsed.kind === 'problem')
    return `the body is not an SNS message in JSON (raw message delivery is not signed): ${parsed.problem}`;
  const { value } = parsed;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'the body is not a JSON object';
  if (Object.keys(value).length > MAX_FIELDS) return `the message has more than ${MAX_FIELDS} fields`;
  // The app could read a field that was not verified.
  const variant = KNOWN_FIELDS.map((name) => findVariant(value, name, true)).find((problem) => problem !== undefined);
  if (variant !== undefined) return variant;
  // The app could use another type of value as a subject or a URL, although the signature does not cover it.
  const odd = KNOWN_FIELDS.find((name) => isOddlyTyped(name, value));
  if (odd !== undefined) return `${odd} is not a string`;
  return new Map(Object.entries(value).filter((entry): entry is [string, string] => typeof entry[1] === 'string'));
}

function isOddlyTyped(name: string, value: object): boolean {
  if (name === 'MessageAttributes' || !Object.hasOwn(value, name)) return false;
  const field = (value as Readonly<Record<string, unknown>>)[name];
  return typeof field !== 'string' && (name !== OPTIONAL_FIELD || field !== null);
}

/** The host of SNS in a region. */
export function toSnsHost(region: string): string {
  return `sns.${region}.amazonaws.com${region.startsWith('cn-') ? '.cn' : ''}`;
}

/** An attacker can put any URL into a message, so only the host of SNS in the topic's region is accepted. */
function toPinnedUrl(text: string, region: string): URL | undefined {
  if (!URL.canParse(text)) return undefined;
  const url = new URL(text);
  const isPlain = url.username === '' && url.password === '' && url.port === '' && url.hash === '';
  return url.protocol === 'https:' && url.hostname === toSnsHost(region) && isPlain ? url : undefined;
}

function toSubscribeUrl(text: string, region: string, topic: string): URL | undefined {
  const url = toPinnedUrl(text, region);
  const isConfirmation = url?.searchParams.get('Action') === 'ConfirmSubscription' && url.searchParams.get('TopicArn') === topic;
  return isConfirmation ? url : undefined;
}
