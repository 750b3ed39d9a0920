/** Checks the fields of a scheme that an app wrote: a mistyped name would make every delivery fail, or switch a check off. Loaded only for such a scheme. */
import { checkDescription } from '../config/rules/validate-places.ts';
import type { Problem } from '../core/problem.ts';
import { ALGORITHMS } from '../verify/schemes/algorithms.ts';
import type {
  SchemeDescription,
  SecretDescription,
  SignatureDescription,
  SignatureForm,
  TimestampDescription,
} from '../verify/schemes/description.ts';
import type { PublicKeyDescription } from '../verify/schemes/key-description.ts';
import { findAmbiguity, toPieceTitle } from '../verify/schemes/layout.ts';
import {
  ANY,
  COUNT,
  check,
  checkSettings,
  fail,
  isListOf,
  isObject,
  LABEL,
  oneOf,
  type Rule,
  type Rules,
  TEXT,
  VERIFIER,
} from './settings.ts';

const FLAG: Rule = [(value) => value === true, 'true'];
/** Also an empty one. */
const STRING: Rule = [(value) => typeof value === 'string', 'text'];
const INDEX: Rule = [(value) => Number.isSafeInteger(value) && (value as number) >= 0, 'a position, counted from 0'];
const TIME: Rule = [(value) => Number.isFinite(value) && (value as number) >= 0, 'a number of milliseconds', true];
const NAMES: Rule = [(value) => String(value) === '' || isListOf(/./, value), 'a list of names'];

function needed([isRight, title]: Rule): Rule {
  return [isRight, title, true];
}

/** For an object with these settings. */
function fields<Settings>(rules: Rules<Settings>): Rule {
  const isRight = (value: unknown, setting: string): boolean => {
    checkSettings(value as Settings, rules, setting);
    return true;
  };
  return [isRight, ''];
}

function listOf(rule: Rule): Rule {
  const isRight = (value: unknown, setting: string): boolean => {
    if (!Array.isArray(value)) return false;
    for (const [at, each] of value.entries()) check(each, needed(rule), `${setting}[${at}]`);
    return true;
  };
  return [isRight, 'a list'];
}

/** For an object that has at least one of these fields, and no other. */
function objectOf(names: readonly string[]): Rule {
  const isRight = (value: unknown): boolean => {
    const keys = isObject(value) ? Object.keys(value) : [];
    return keys.length > 0 && keys.every((key) => names.includes(key));
  };
  return [isRight, `an object such as { header: 'X-Name' }, with ${names.join(', ')}`];
}

const PLACES = ['header', 'query', 'signaturePart', 'json', 'form', 'path'];
const WORDS = 'id timestamp body bodyWithoutSignature method url urlWithoutSignature target form crc32 receiverId'.split(' ');
const [isField, fieldTitle] = objectOf([
  ...PLACES,
  ...'type optional mayContainSeparator escape text headersIn sortedForm bodySha256'.split(' '),
]);
const PIECE: Rule = [
  (value, setting) => WORDS.includes(value as string) || isField(value, setting),
  `${WORDS.join(', ')}, or ${fieldTitle}`,
];

const SCHEME: Rules<SchemeDescription> = {
  name: needed(LABEL),
  from: ANY,
  signature: fields<SignatureDescription>({
    header: needed(STRING),
    moreHeaders: NAMES,
    query: TEXT,
    json: TEXT,
    form: TEXT,
    path: TEXT,
    content: TEXT,
    encoding: needed(oneOf('hex', 'base64', 'base64url', 'text', 'jwt')),
    list: oneOf(...',; &|:'),
    parts: fields<NonNullable<SignatureDescription['parts']>>({
      separator: needed(TEXT),
      count: needed(COUNT),
      signature: needed(INDEX),
    }),
    forms: needed(
      listOf(fields<SignatureForm>({ prefix: needed(STRING), algorithm: needed(oneOf(...Object.keys(ALGORITHMS))) })),
    ),
  }),
  isSignedInContent: FLAG,
  signed: needed(listOf(PIECE)),
  separator: needed(STRING),
  unsignedBody: FLAG,
  onlySignedFields: FLAG,
  contentField: TEXT,
  timestamp: fields<TimestampDescription>({
    from: needed(objectOf([...PLACES, 'entry', 'first', 'claim'])),
    unit: needed(oneOf('s', 'ms', 'rfc3339', 'http-date')),
  }),
  id: objectOf([...PLACES, 'part', 'xml', 'claim']),
  repeatsBytes: FLAG,
  perAttempt: listOf(objectOf(PLACES)),
  comparedHeaders: NAMES,
  kind: NAMES,
  secret: needed(
    fields<SecretDescription>({
      encoding: needed(oneOf('utf8', 'base64', 'hex')),
      usualStart: STRING,
      prefix: STRING,
      digest: oneOf('sha1', 'sha256'),
      transform: oneOf('nfkd', 'html-entities'),
    }),
  ),
  publicKey: fields<PublicKeyDescription>({
    encoding: needed(oneOf('hex', 'base64')),
    format: needed(oneOf('raw', 'spki')),
    prefix: STRING,
    privatePrefix: STRING,
  }),
  certificate: ANY,
  jwksUrl: [() => false, 'supported: list the public keys in secrets'],
  jwt: ANY,
  tolerance: needed(fields<SchemeDescription['tolerance']>({ past: TIME, future: TIME })),
  contentTypes: needed(VERIFIER.contentTypes),
  methods: [(value) => isListOf(/^[A-Z]{1,32}$/, value), 'a list of methods'],
  isPortOptional: FLAG,
  contentDigestParameter: TEXT,
  decodedInUrl: TEXT,
  contentShape: oneOf('json-object', 'json-array', 'json-object-or-array'),
  twins: [isObject, 'an object'],
  acceptsTwins: FLAG,
  handshake: TEXT,
  leastSecretBytes: COUNT,
};

/** Throws VerifierError for the first wrong field. Returns what the rules of the gate find. */
export function* checkCustomScheme(scheme: SchemeDescription): Iterable<Problem> {
  checkSettings(scheme, SCHEME, 'scheme');
  if (scheme.signature?.forms.length === 0) fail('scheme.signature.forms: the list is empty, so no delivery could be verified');
  yield* checkDescription(scheme, ['scheme']);
  const ambiguity = findAmbiguity(scheme);
  if (ambiguity === undefined) return;
  const [before, after] = [toPieceTitle(ambiguity.before), toPieceTitle(ambiguity.after)];
  fail(`scheme: bytes could move between ${before} and ${after} under one signature; set a separator`);
}
